//! Bags of embeddings.

use crate::error::Result;
use crate::kernels::{entry, Family};
use crate::ops::core::geometry::Geometry;
use crate::ops::core::space::div_ceil;
use crate::ops::core::tier::tier;
use crate::ops::{Target, Tensor};

#[cxx::bridge(namespace = "torch_opencl::bridge")]
mod ffi {
    /// Inputs of embedding bags. Indices and offsets are contiguous and of one dtype, 32- or 64-bit.
    #[derive(Clone, Copy, Debug)]
    pub struct Bags<'a> {
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
        fn embedding_bag(bags: &Bags, output: &Tensor, sizes: &Tensor, rows: &Tensor) -> Result<()>;
    }
}

pub use ffi::Bags;

/// Writes each bag's row of `output`, how many rows it has and, for the maximum, which row each element is from.
///
/// # Errors
/// As the driver reports; an index out of range is reported at the next synchronising read.
pub fn embedding_bag(bags: &Bags<'_>, output: &Tensor<'_>, sizes: &Tensor<'_>, rows: &Tensor<'_>) -> Result<()> {
    // Offsets are checked even where there are no columns, or no bag begins at them.
    if bags.offsets.numel() == 0 {
        return Ok(());
    }
    let (count, columns) = (output.size(0), output.size(1));
    let target = Target::of(bags.offsets.address)?;
    let class = output.class();
    let geometry = Geometry::of(&target, class);
    let spec = geometry.define(tier(bags.indices.numel() * columns, &[("SPEC_DTYPE0", output.dtype.code())]));
    let program = target.program(Family::EmbeddingBag, class, &spec)?;
    let args = entry::EmbeddingBag {
        output: target.tensor(output)?,
        bag_sizes: target.tensor(sizes)?,
        rows: target.tensor(rows)?,
        weight: target.tensor(&bags.weight)?,
        indices: target.tensor(&bags.indices)?,
        offsets: target.tensor(&bags.offsets)?,
        scales: target.tensor(&bags.scales)?,
        faults: target.faults()?,
        dtype0: output.dtype,
        index_dtype: bags.indices.dtype,
        mode: bags.mode,
        bags: count,
        starts: bags.offsets.numel(),
        count: bags.indices.numel(),
        columns,
        embeddings: bags.weight.size(0),
        step: bags.weight.stride(0),
        padding: bags.padding,
    };
    let strips = div_ceil(columns, geometry.lanes as i64);
    target.launch(&program, entry::EMBEDDING_BAG, &args, &geometry.items_for((count * strips).max(1)), None)
}
