//! Bags of embeddings.

use crate::error::Result;
use crate::kernels::{entry, Family};
use crate::ops::core::geometry::Geometry;
use crate::ops::core::space::div_ceil;
use crate::ops::core::tier::tier;
use crate::ops::Target;

#[cxx::bridge(namespace = "torch_opencl::bridge")]
mod ffi {
    /// Inputs of `embedding_bag`. Indices and offsets are contiguous and of one dtype, 32- or 64-bit.
    #[derive(Clone, Copy, Debug)]
    pub struct EmbeddingBagInputs<'a> {
        /// The embeddings, one per row; columns are contiguous.
        pub weight: Tensor<'a>,
        /// Rows of all bags, one bag after the other.
        pub indices: Tensor<'a>,
        /// Start of each bag; an additional last offset is checked, but not read.
        pub offsets: Tensor<'a>,
        /// Per-sample weight of each index; may be absent.
        pub scales: Tensor<'a>,
        /// Padding index, which is ignored; -1 for none.
        pub padding: i64,
        /// `at::native::EmbeddingBagMode`.
        pub mode: i32,
    }

    /// Outputs of `embedding_bag`, contiguous; all but the first have the indices' dtype.
    #[derive(Clone, Copy, Debug)]
    pub struct EmbeddingBagOutputs<'a> {
        /// The bags, one per row.
        pub output: Tensor<'a>,
        /// Number of rows of each bag.
        pub bag_size: Tensor<'a>,
        /// The bag of each index.
        pub offset2bag: Tensor<'a>,
        /// For the maximum, the row that each element is from; else empty.
        pub rows: Tensor<'a>,
    }

    unsafe extern "C++" {
        include!("torch_opencl/rust/abi.rs.h");
        type Tensor<'a> = crate::abi::Tensor<'a>;
    }

    extern "Rust" {
        fn embedding_bag(inputs: &EmbeddingBagInputs, outputs: &EmbeddingBagOutputs) -> Result<()>;
    }
}

pub use ffi::{EmbeddingBagInputs, EmbeddingBagOutputs};

/// Computes the bags; does nothing without offsets.
///
/// # Errors
/// Errors reported by the driver; an index out of range is reported at the next synchronising read.
pub fn embedding_bag(inputs: &EmbeddingBagInputs<'_>, outputs: &EmbeddingBagOutputs<'_>) -> Result<()> {
    // Offsets are checked even without columns, and even if no bag begins at them.
    if inputs.offsets.numel() == 0 {
        return Ok(());
    }
    let output = &outputs.output;
    let (count, columns) = (output.size(0), output.size(1));
    let target = Target::of(inputs.offsets.address)?;
    let class = output.class();
    let geometry = Geometry::of(&target, class);
    let constants =
        [("SPEC_OP", inputs.mode), ("SPEC_DTYPE0", output.dtype.code()), ("SPEC_DTYPE1", inputs.indices.dtype.code())];
    let spec = geometry.define(tier(inputs.indices.numel() * columns, &constants));
    let program = target.program(Family::EmbeddingBag, class, &spec)?;
    let args = entry::EmbeddingBag {
        output: target.tensor(output)?,
        bag_size: target.tensor(&outputs.bag_size)?,
        offset2bag: target.tensor(&outputs.offset2bag)?,
        rows: target.tensor(&outputs.rows)?,
        weight: target.tensor(&inputs.weight)?,
        indices: target.tensor(&inputs.indices)?,
        offsets: target.tensor(&inputs.offsets)?,
        scales: target.tensor(&inputs.scales)?,
        faults: target.faults()?,
        dtype0: output.dtype,
        dtype1: inputs.indices.dtype,
        op: inputs.mode,
        bags: count,
        starts: inputs.offsets.numel(),
        count: inputs.indices.numel(),
        columns,
        embeddings: inputs.weight.size(0),
        step: inputs.weight.stride(0),
        padding: inputs.padding,
    };
    let strips = div_ceil(columns, geometry.lanes as i64).max(1);
    target.launch(&program, entry::EMBEDDING_BAG, &args, &geometry.items_for((count * strips).max(1)), None)
}
