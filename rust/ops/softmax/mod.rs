//! Softmax and log-softmax along one dimension of contiguous tensors.

use std::sync::Arc;

use crate::error::{Error, Result};
use crate::kernels::entry::{self, Arguments, EntryPoint};
use crate::kernels::{CachedProgram, Class, DType, Family, Spec};
use crate::ops::core::forms::{rows_and_columns, Form, FLOATS};
use crate::ops::core::geometry::{Columns, Geometry};
use crate::ops::core::space::div_ceil;
use crate::ops::core::tier::tier;
use crate::ops::core::vectors::Vectors;
use crate::ops::{Target, Tensor};

#[cxx::bridge(namespace = "torch_opencl::bridge")]
mod ffi {
    unsafe extern "C++" {
        include!("torch_opencl/rust/abi.rs.h");
        type Tensor<'a> = crate::abi::Tensor<'a>;
    }

    extern "Rust" {
        fn softmax(input: &Tensor, output: &Tensor, dim: usize, log: bool) -> Result<()>;
        fn softmax_backward(grad: &Tensor, output: &Tensor, grad_input: &Tensor, dim: usize, log: bool) -> Result<()>;
    }
}

/// Maximum number of vectors of columns that an item takes: pieces of 2 KiB, whose sums all fit L1.
const WIDEST_STRIP: i64 = 32;
/// Wide strips are worth more than even shares: a quarter of the groups that `Geometry` would make.
const STRIPS_FOR_GROUP: i64 = 4;

/// Writes the softmax of `input` along `dim`, or its logarithm, into `output`. Both are contiguous and have the same
/// shape.
///
/// # Errors
/// Errors reported by the driver.
pub fn softmax(input: &Tensor<'_>, output: &Tensor<'_>, dim: usize, log: bool) -> Result<()> {
    if input.numel() == 0 {
        return Ok(());
    }
    let call = SoftmaxCall::new(&[input, output], dim, log)?;
    let softmax = entry::SoftmaxArguments {
        input: call.target.tensor(input)?,
        dtype0: input.dtype,
        output: call.target.tensor(output)?,
        dtype1: output.dtype,
        outer: call.outer,
        length: call.length,
        is_log: i32::from(log),
    };
    let (inner, strip) = (call.inner, call.strip.vectors);
    call.launch(
        (entry::SOFTMAX_ROWS, entry::SoftmaxRows { softmax }),
        (entry::SOFTMAX_COLUMNS, |parts| entry::SoftmaxColumns { softmax, inner, strip, parts }),
    )
}

/// Writes the gradient of the softmax's input, from the gradient of its output and from the output. All are contiguous
/// and have the same shape.
///
/// # Errors
/// Errors reported by the driver.
pub fn softmax_backward(
    grad: &Tensor<'_>,
    output: &Tensor<'_>,
    grad_input: &Tensor<'_>,
    dim: usize,
    log: bool,
) -> Result<()> {
    if grad.numel() == 0 {
        return Ok(());
    }
    let call = SoftmaxCall::new(&[grad, output, grad_input], dim, log)?;
    let softmax_backward = entry::SoftmaxBackwardArguments {
        grad: call.target.tensor(grad)?,
        dtype0: grad.dtype,
        output: call.target.tensor(output)?,
        dtype1: output.dtype,
        grad_input: call.target.tensor(grad_input)?,
        dtype2: grad_input.dtype,
        outer: call.outer,
        length: call.length,
        is_log: i32::from(log),
    };
    let (inner, strip) = (call.inner, call.strip.vectors);
    call.launch(
        (entry::SOFTMAX_BACKWARD_ROWS, entry::SoftmaxBackwardRows { softmax_backward }),
        (entry::SOFTMAX_BACKWARD_COLUMNS, |parts| entry::SoftmaxBackwardColumns {
            softmax_backward,
            inner,
            strip,
            parts,
        }),
    )
}

/// The generic programs.
pub(in crate::ops) fn forms(target: &Target) -> Vec<Form> {
    let spec = |geometry: Geometry| geometry.define(Spec::generic()).define("STRIP", Strip::longest(&geometry));
    rows_and_columns(target, &FLOATS).into_iter().map(|(class, geometry)| (class, spec(geometry))).collect()
}

/// Target and geometry of a call.
struct SoftmaxCall {
    target: Target,
    geometry: Geometry,
    program: Arc<CachedProgram>,
    outer: i64,
    length: i64,
    inner: i64,
    by_rows: bool,
    strip: Strip,
}

impl SoftmaxCall {
    /// All tensors have the same shape.
    fn new(tensors: &[&Tensor<'_>], dim: usize, log: bool) -> Result<Self> {
        const DTYPES: [&str; 3] = ["SPEC_DTYPE0", "SPEC_DTYPE1", "SPEC_DTYPE2"];
        let [first, ..] = tensors else { return Err(Error::Invalid("OpenCL: softmax without a tensor".to_owned())) };
        let count = first.numel();
        let length = first.size(dim);
        let inner: i64 = first.sizes.iter().skip(dim + 1).product();
        let outer = count / length / inner;

        let target = Target::of(first.address)?;
        // Mixed calls (half in, float out) compute in float as well.
        let class = if first.dtype == DType::F64 { Class::Double } else { Class::Float };
        let geometry = Geometry::of(&target, class);
        let by_rows = inner == 1 && !geometry.starves(length);
        let (geometry, vectors, row) = if by_rows {
            (geometry, Vectors::of_rows(geometry, length, first.dtype), length)
        } else {
            let columns = geometry.for_columns(inner, outer * inner);
            (columns, Vectors::of(columns), inner)
        };
        let vectors = tensors.iter().fold(vectors, |vectors, tensor| vectors.along(tensor, row));
        let mut constants: Vec<_> = DTYPES.into_iter().zip(tensors.iter().map(|tensor| tensor.dtype.code())).collect();
        constants.push(("SPEC_LOG", i32::from(log)));
        constants.extend(vectors.constants());
        let strip = Strip::of(&geometry, outer, inner);
        let spec = geometry.define(tier(count, &constants)).define("STRIP", strip.longest);
        let program = target.program(Family::Softmax, class, &spec)?;
        Ok(Self { target, geometry, program, outer, length, inner, by_rows, strip })
    }

    /// Runs one of a pair of kernels: for softmax along the innermost dimension, or along another.
    fn launch<R: Arguments, C: Arguments>(
        &self,
        (rows, of_rows): (EntryPoint<R>, R),
        (columns, of_columns): (EntryPoint<C>, impl FnOnce(i32) -> C),
    ) -> Result<()> {
        let Self { target, geometry, program, strip, .. } = self;
        if self.by_rows {
            let (global, local) = geometry.groups_for(self.outer);
            return target.launch(program, rows, &of_rows, &global, Some(&local));
        }
        let tasks = Columns {
            tasks: self.outer * strip.count,
            beside: strip.count,
            length: self.length,
            is_row: self.inner == 1,
        };
        geometry.launch_columns(target, program, columns, of_columns, tasks)
    }
}

/// Strips of columns.
struct Strip {
    /// Maximum number of vectors of a strip, for which the program is built.
    longest: i64,
    /// Vectors of a strip.
    vectors: i64,
    /// Strips of a row.
    count: i64,
}

impl Strip {
    fn longest(geometry: &Geometry) -> i64 {
        if geometry.group == 1 {
            WIDEST_STRIP
        } else {
            1
        }
    }

    /// On CPUs, as wide as possible while every core has some. On other devices, items take one vector.
    fn of(geometry: &Geometry, outer: i64, inner: i64) -> Self {
        let longest = Self::longest(geometry);
        let vectors = div_ceil(inner, geometry.lanes as i64);
        let share = vectors * outer * STRIPS_FOR_GROUP / geometry.groups as i64;
        let strip = share.clamp(1, longest);
        Self { longest, vectors: strip, count: div_ceil(vectors, strip) }
    }
}
