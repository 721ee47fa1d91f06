//! Bags of embeddings.

use crate::error::Result;
use crate::kernels::{entry, Family};
use crate::ops::core::geometry::Geometry;
use crate::ops::core::space::div_ceil;
use crate::ops::core::tier::tier;
use crate::ops::{Target, Tensor};

#[cxx::bridge(namespace = "torch_opencl::bridge")]
mod ffi {
    /// Inputs of `embedding_bag`. Indices and offsets are contiguous and of one dtype, 32- or 64-bit.
    #[derive(Clone, Copy, Debug)]
    pub struct EmbeddingBagInputs<'a> {
        /// The embeddings, one a row; columns are contiguous.
        pub weight: Tensor<'a>,
        /// Rows of all bags, one bag after the other.
        pub indices: Tensor<'a>,
        /// Start of each bag; one more is checked but not read.
        pub offsets: Tensor<'a>,
        /// Per-sample weight of each index; may be absent.
        pub scales: Tensor<'a>,
        /// Padding index, which is ignored; -1 for none.
        pub padding: i64,
        /// `at::native::EmbeddingBagMode`.
        pub mode: i32,
    }

    unsafe extern "C++" {
        include!("torch_opencl/rust/abi.rs.h");
        type Tensor<'a> = crate::abi::Tensor<'a>;
    }

    extern "Rust" {
        fn embedding_bag(inputs: &EmbeddingBagInputs, output: &Tensor, bag_size: &Tensor, rows: &Tensor) -> Result<()>;
    }
}

pub use ffi::EmbeddingBagInputs;

/// Writes each bag's row of `output`, how many rows it has and, for the maximum, which row each element is from.
///
/// # Errors
/// As the driver reports; an index out of range is reported at the next synchronising read.
pub fn embedding_bag(
    inputs: &EmbeddingBagInputs<'_>,
    output: &Tensor<'_>,
    bag_size: &Tensor<'_>,
    rows: &Tensor<'_>,
) -> Result<()> {
    // Offsets are checked even where there are no columns, or no bag begins at them.
    if inputs.offsets.numel() == 0 {
        return Ok(());
    }
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
        bag_size: target.tensor(bag_size)?,
        rows: target.tensor(rows)?,
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
    let strips = div_ceil(columns, geometry.lanes as i64);
    target.launch(&program, entry::EMBEDDING_BAG, &args, &geometry.items_for((count * strips).max(1)), None)
}
