//! Matmuls with weights of 2 to 8 bits in the formats of other libraries, and unpacking of such weights.

use crate::error::Result;
use crate::kernels::structs::formats::QuantizedLayout;
use crate::kernels::{entry, Class, DType, Family, Spec};
use crate::ops::core::space::div_ceil;
use crate::ops::core::tier::tier;
use crate::ops::{Target, Tensor};

#[cxx::bridge(namespace = "torch_opencl::bridge")]
mod ffi {
    /// A quantised weight.
    #[derive(Clone, Copy, Debug)]
    pub struct QuantizedWeight<'a> {
        /// The codes, dense.
        pub codes: Tensor<'a>,
        /// Scales of groups; the codes if the format has none.
        pub scales: Tensor<'a>,
        /// Zeros of groups, or codes of nested scales; the codes if there are none.
        pub zeros: Tensor<'a>,
        /// float32: the values of 4-bit codes, then those of nested scales and their offset; the codes if there is none.
        pub table: Tensor<'a>,
        /// `FORMAT` of `formats.cl`.
        pub format: i32,
        /// `ZEROS` of `formats.cl`.
        pub zeros_kind: i32,
        /// Whether the scales have scales.
        pub is_nested: bool,
        /// Subtracted from each code.
        pub bias: i32,
        /// Rows of the weight.
        pub rows: i64,
        /// Columns of the weight.
        pub k: i64,
        /// Columns of a group.
        pub group_size: i64,
        /// Elements of `scales` between rows.
        pub scale_row: i64,
        /// Elements of `scales` between the groups of a row.
        pub scale_group: i64,
    }

    unsafe extern "C++" {
        include!("torch_opencl/rust/abi.rs.h");
        type Tensor<'a> = crate::abi::Tensor<'a>;
    }

    extern "Rust" {
        fn quantized_few_rows(out: &Tensor, x: &Tensor, weight: &QuantizedWeight) -> Result<bool>;
        fn quantized_unpack(out: &Tensor, weight: &QuantizedWeight) -> Result<()>;
    }
}

pub use ffi::QuantizedWeight;

/// Up to this many rows, the weight is unpacked again for each few of them; for more it is unpacked once, for a matmul.
/// On CPUs unpacking takes longer than reading.
const FEW_ROWS: i64 = 16;
const FEW_ROWS_OF_CPU: i64 = 4;
/// Items that share a row of the weight on GPUs: they read 512 bytes side by side.
const GPU_GROUP: usize = 32;
/// Groups per compute unit of a CPU, where each group takes several tiles.
const CPU_GROUPS: usize = 16;
/// Columns that are unpacked together.
const CHUNK: i64 = 32;

impl QuantizedWeight<'_> {
    fn spec(&self, elements: i64, dtype: DType, group: usize) -> Spec {
        // Blocks of ggml's formats have even sizes, and codes of the others are read 16 bytes at a time.
        let aligned = if self.codes.address.is_multiple_of(16) { 16 } else { 1 };
        let spec = tier(elements, &[("SPEC_DTYPE0", dtype.code())])
            .define("FORMAT", i64::from(self.format))
            .define("ZEROS", i64::from(self.zeros_kind))
            .define("SCALE_DTYPE", i64::from(self.scales.dtype.code()))
            .define("ZERO_DTYPE", i64::from(self.zeros.dtype.code()))
            .define("BYTES_ALIGNED", aligned)
            .define("VEC", 16)
            .define("LSIZE", group as i64);
        if self.is_nested {
            spec.define("NESTED", 1)
        } else {
            spec
        }
    }

    fn arguments(&self, target: &Target) -> Result<entry::QuantizedArguments> {
        Ok(entry::QuantizedArguments {
            weight: target.tensor(&self.codes)?,
            scales: target.tensor(&self.scales)?,
            zeros: target.tensor(&self.zeros)?,
            table: target.tensor(&self.table)?,
            layout: self.layout(),
        })
    }

    fn layout(&self) -> QuantizedLayout {
        QuantizedLayout {
            rows: self.rows,
            k: self.k,
            row_bytes: if self.rows == 0 { 0 } else { self.codes.numel() * self.codes.dtype.size() as i64 / self.rows },
            scale_row: self.scale_row,
            scale_group: self.scale_group,
            log2_group: self.group_size.max(1).ilog2() as i32,
            bias: self.bias,
        }
    }
}

/// Rows of the weight and rows of x that are multiplied at a time: their sums fit into registers, and a chunk is unpacked
/// once for all rows of x.
fn block(target: &Target, rows: i64) -> (i64, i64) {
    (if target.is_cpu() { 4 } else { 2 }, if rows == 1 { 1 } else { 4 })
}

/// `out = x @ weight.T` for a dense x. Returns false, and computes nothing, if x has too many rows.
///
/// # Errors
/// Errors reported by the driver.
pub fn quantized_few_rows(out: &Tensor<'_>, x: &Tensor<'_>, weight: &QuantizedWeight<'_>) -> Result<bool> {
    if out.numel() == 0 {
        return Ok(true);
    }
    let (rows, target) = (out.size(0), Target::of(out.address)?);
    if rows > if target.is_cpu() { FEW_ROWS_OF_CPU } else { FEW_ROWS } {
        return Ok(false);
    }
    let (tile, shared) = block(&target, rows);
    let tiles = div_ceil(weight.rows, tile) as usize;
    let (group, groups) =
        if target.is_cpu() { (1, (target.compute_units() * CPU_GROUPS).min(tiles)) } else { (GPU_GROUP, tiles) };
    let spec = weight.spec(weight.rows * weight.k, x.dtype, group).define("TILE", tile).define("ROWS", shared);
    let program = target.program(Family::Quantized, Class::Float, &spec)?;
    let args = entry::QuantizedFewRows {
        x: target.tensor(x)?,
        dtype0: x.dtype,
        quantized: weight.arguments(&target)?,
        out: target.tensor(out)?,
        rows,
    };
    target.launch(&program, entry::QUANTIZED_FEW_ROWS, &args, &[groups * group], Some(&[group]))?;
    Ok(true)
}

/// The values of a weight, [rows, k] and dense.
///
/// # Errors
/// Errors reported by the driver.
pub fn quantized_unpack(out: &Tensor<'_>, weight: &QuantizedWeight<'_>) -> Result<()> {
    if out.numel() == 0 {
        return Ok(());
    }
    let target = Target::of(out.address)?;
    let chunks = (weight.rows * weight.k / CHUNK) as usize;
    let group = if target.is_cpu() { 1 } else { GPU_GROUP };
    let groups =
        if target.is_cpu() { (target.compute_units() * CPU_GROUPS).min(chunks) } else { chunks.div_ceil(group) };
    let spec = weight.spec(out.numel(), out.dtype, group).define("TILE", 1).define("ROWS", 1);
    let program = target.program(Family::Quantized, Class::Float, &spec)?;
    let args =
        entry::QuantizedUnpack { quantized: weight.arguments(&target)?, dtype0: out.dtype, out: target.tensor(out)? };
    target.launch(&program, entry::QUANTIZED_UNPACK, &args, &[groups * group], Some(&[group]))
}
