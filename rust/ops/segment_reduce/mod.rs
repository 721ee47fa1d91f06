//! Reductions of runs of rows.

pub mod sparse_mm;

use std::sync::Arc;

use crate::error::Result;
use crate::kernels::entry::{self, Value};
use crate::kernels::{CachedProgram, Family};
use crate::ops::core::geometry::Geometry;
use crate::ops::core::tier::tier;
use crate::ops::{Target, Tensor};

#[cxx::bridge(namespace = "torch_opencl::bridge")]
mod ffi {
    /// Segments of the rows of a tensor, and how they are reduced.
    #[derive(Clone, Copy, Debug)]
    pub struct Segments<'a> {
        /// Contiguous; rows are along `axis`.
        pub data: Tensor<'a>,
        /// First row of each segment: contiguous int64, with the dimensions of `data` up to `axis`.
        pub starts: Tensor<'a>,
        /// Number of rows of each segment; contiguous int64, with the dimensions of `starts`.
        pub lengths: Tensor<'a>,
        /// The dimension of rows.
        pub axis: usize,
        /// `at::native::ReductionType`.
        pub op: i32,
        /// The value that a reduction begins with.
        pub initial: f64,
        /// True if the caller gave `initial`.
        pub has_initial: bool,
    }

    unsafe extern "C++" {
        include!("torch_opencl/rust/abi.rs.h");
        type Tensor<'a> = crate::abi::Tensor<'a>;
    }

    extern "Rust" {
        fn segment_reduce(output: &Tensor, segments: &Segments) -> Result<()>;
        fn segment_reduce_backward(
            grad_input: &Tensor,
            grad: &Tensor,
            output: &Tensor,
            segments: &Segments,
        ) -> Result<()>;
    }
}

pub use ffi::Segments;

/// Device, program and geometry of one call.
struct Call {
    target: Target,
    geometry: Geometry,
    program: Arc<CachedProgram>,
}

impl Call {
    fn new(segments: &Segments<'_>) -> Result<Self> {
        let data = &segments.data;
        let target = Target::of(data.address)?;
        let geometry = Geometry::of(&target, data.class());
        let constants = [("SPEC_OP", segments.op), ("SPEC_DTYPE0", data.dtype.code())];
        let spec = geometry.define(tier(data.numel(), &constants));
        let program = target.program(Family::SegmentReduce, data.class(), &spec)?;
        Ok(Self { target, geometry, program })
    }

    fn segments(&self, segments: &Segments<'_>, output: &Tensor<'_>) -> Result<entry::SegmentsArguments> {
        let Segments { data, starts, lengths, axis, op, initial, has_initial } = segments;
        Ok(entry::SegmentsArguments {
            data: self.target.tensor(data)?,
            starts: self.target.tensor(starts)?,
            lengths: self.target.tensor(lengths)?,
            dtype0: data.dtype,
            op: *op,
            n: output.numel(),
            size: data.size(*axis),
            segments: output.size(*axis),
            inner: data.sizes.iter().skip(axis + 1).product(),
            initial: Value::real(data.class(), *initial),
            has_initial: i32::from(*has_initial),
        })
    }
}

/// Reduces each segment into a row of `output`, contiguous.
///
/// # Errors
/// Errors reported by the driver.
pub fn segment_reduce(output: &Tensor<'_>, segments: &Segments<'_>) -> Result<()> {
    let call = Call::new(segments)?;
    let args = entry::SegmentReduce { segments: call.segments(segments, output)?, out: call.target.tensor(output)? };
    let items = call.geometry.items_for(output.numel());
    call.target.launch(&call.program, entry::SEGMENT_REDUCE, &args, &items, None)
}

/// Writes the gradient of the rows of each segment; other rows do not change.
///
/// # Errors
/// Errors reported by the driver.
pub fn segment_reduce_backward(
    grad_input: &Tensor<'_>,
    grad: &Tensor<'_>,
    output: &Tensor<'_>,
    segments: &Segments<'_>,
) -> Result<()> {
    let call = Call::new(segments)?;
    let args = entry::SegmentReduceBackward {
        segments: call.segments(segments, output)?,
        grad: call.target.tensor(grad)?,
        output: call.target.tensor(output)?,
        grad_input: call.target.tensor(grad_input)?,
    };
    let items = call.geometry.items_for(output.numel());
    call.target.launch(&call.program, entry::SEGMENT_REDUCE_BACKWARD, &args, &items, None)
}
