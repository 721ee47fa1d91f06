//! Matmuls with weights of 2 to 8 bits in the formats of other libraries, and unpacking of such weights.

mod format;

use self::format::{check, Checked};
use crate::error::Result;
use crate::kernels::structs::formats::QuantizedLayout;
use crate::kernels::{entry, Class, Family, Spec};
use crate::ops::core::space::div_ceil;
use crate::ops::core::tier::tier;
use crate::ops::{Target, Tensor};

#[cxx::bridge(namespace = "torch_opencl::bridge")]
mod ffi {
    /// A quantised weight; `python/torch_opencl/quantized.py` describes the formats.
    #[derive(Clone, Copy, Debug)]
    pub struct QuantizedWeight<'a> {
        /// Dense.
        pub codes: Tensor<'a>,
        /// Absent if the codes' blocks have their scales.
        pub scales: Tensor<'a>,
        /// With the strides of `scales`, or codes of nested scales; may be absent.
        pub zeros: Tensor<'a>,
        /// Dense; may be absent.
        pub table: Tensor<'a>,
        /// Name of the format.
        pub format: &'a str,
        /// Rows of the weight.
        pub rows: i64,
        /// Columns of the weight.
        pub k: i64,
        /// Columns of a group.
        pub group_size: i64,
        /// Subtracted from each code.
        pub bias: i64,
        /// What `zeros` are: "absent", "codes" or "values".
        pub zeros_kind: &'a str,
    }

    unsafe extern "C++" {
        include!("torch_opencl/rust/abi.rs.h");
        type Tensor<'a> = crate::abi::Tensor<'a>;
    }

    extern "Rust" {
        fn check_quantized(weight: &QuantizedWeight) -> Result<()>;
        fn quantized_few_rows(out: &Tensor, x: &Tensor, weight: &QuantizedWeight) -> Result<bool>;
        fn quantized_unpack(out: &Tensor, weight: &QuantizedWeight) -> Result<()>;
    }
}

pub use ffi::QuantizedWeight;

/// Up to this many rows, the weight is unpacked again for each few of them; for more it is unpacked once, for a matmul.
/// On CPUs unpacking takes longer than reading.
const FEW_ROWS: i64 = 16;
const FEW_ROWS_OF_CPU: i64 = 4;
/// Items that share a row of the weight on GPUs: a wavefront of older AMD GPUs, whole ones of others.
const GPU_GROUP: usize = 64;
/// Groups per compute unit of a CPU, where each group takes several tiles.
const CPU_GROUPS: usize = 16;
/// Columns that are unpacked together.
const CHUNK: i64 = 32;
/// Elements of a vector.
const LANES: usize = 16;

/// A weight that fits its format.
struct Packed<'a> {
    weight: &'a QuantizedWeight<'a>,
    format: Checked,
}

impl<'a> Packed<'a> {
    fn of(weight: &'a QuantizedWeight<'a>) -> Result<Self> {
        Ok(Self { weight, format: check(weight)? })
    }

    /// A program that loads or stores `dense` in vectors.
    fn spec(&self, elements: i64, dense: &Tensor<'_>, group: usize) -> Spec {
        let (weight, format) = (self.weight, self.format);
        let is_aligned = group > 1 && dense.address.is_multiple_of(LANES * dense.dtype.size());
        let constants =
            [("SPEC_DTYPE0", dense.dtype.code())].into_iter().chain(is_aligned.then_some(("SPEC_ALIGNED", 1)));
        // Codes are read 16 bytes at a time.
        let aligned = [16, 2, 1].into_iter().find(|&bytes| weight.codes.address.is_multiple_of(bytes)).unwrap_or(1);
        let spec = tier(elements, constants)
            .define("FORMAT", format.format)
            .define("ZEROS", format.zeros)
            .define("SCALE_DTYPE", i64::from(weight.scales.dtype.code()))
            .define("ZERO_DTYPE", i64::from(weight.zeros.dtype.code()))
            .define("BYTES_ALIGNED", aligned as i64)
            .define("VEC", LANES as i64)
            .define("LSIZE", group as i64);
        let spec = if format.pairs > 0 { spec.define("PAIRS", format.pairs) } else { spec };
        if format.is_nested {
            spec.define("NESTED", 1)
        } else {
            spec
        }
    }

    fn arguments(&self, target: &Target) -> Result<entry::QuantizedArguments> {
        let (weight, format) = (self.weight, self.format);
        let layout = QuantizedLayout {
            rows: weight.rows,
            k: weight.k,
            row_bytes: weight.codes.numel() * weight.codes.dtype.size() as i64 / weight.rows.max(1),
            scale_row: format.scale_row,
            scale_group: format.scale_group,
            log2_group: format.log2_group,
            bias: weight.bias as i32,
        };
        Ok(entry::QuantizedArguments {
            weight: target.tensor(&weight.codes)?,
            scales: target.tensor(&weight.scales)?,
            zeros: target.tensor(&weight.zeros)?,
            table: target.tensor(&weight.table)?,
            layout,
        })
    }
}

/// Rows of the weight and rows of x that are multiplied at a time: their sums fit into registers, and a chunk is unpacked
/// once for all rows of x.
fn block(target: &Target, rows: i64) -> (i64, i64) {
    (if target.is_cpu() { 4 } else { 2 }, if rows == 1 { 1 } else { 4 })
}

/// Checks a weight before results are allocated for it.
///
/// # Errors
/// [`crate::error::Error::Invalid`] if the weight does not fit its format.
pub fn check_quantized(weight: &QuantizedWeight<'_>) -> Result<()> {
    check(weight).map(|_| ())
}

/// `out = x @ weight.T` for a dense x. Returns false, and computes nothing, if x has too many rows.
///
/// # Errors
/// [`crate::error::Error::Invalid`] if the weight does not fit its format; errors reported by the driver.
pub fn quantized_few_rows(out: &Tensor<'_>, x: &Tensor<'_>, weight: &QuantizedWeight<'_>) -> Result<bool> {
    let packed = Packed::of(weight)?;
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
    let spec = packed.spec(weight.rows * weight.k, x, group).define("TILE", tile).define("ROWS", shared);
    let program = target.program(Family::Quantized, Class::Float, &spec)?;
    let args = entry::QuantizedFewRows {
        x: target.tensor(x)?,
        dtype0: x.dtype,
        quantized: packed.arguments(&target)?,
        out: target.tensor(out)?,
        rows,
    };
    target.launch(&program, entry::QUANTIZED_FEW_ROWS, &args, &[groups * group], Some(&[group]))?;
    Ok(true)
}

/// The values of a weight, [rows, k] and dense.
///
/// # Errors
/// [`crate::error::Error::Invalid`] if the weight does not fit its format; errors reported by the driver.
pub fn quantized_unpack(out: &Tensor<'_>, weight: &QuantizedWeight<'_>) -> Result<()> {
    let packed = Packed::of(weight)?;
    if out.numel() == 0 {
        return Ok(());
    }
    let target = Target::of(out.address)?;
    let chunks = (weight.rows * weight.k / CHUNK) as usize;
    let group = if target.is_cpu() { 1 } else { GPU_GROUP };
    let groups =
        if target.is_cpu() { (target.compute_units() * CPU_GROUPS).min(chunks) } else { chunks.div_ceil(group) };
    let spec = packed.spec(out.numel(), out, group).define("TILE", 1).define("ROWS", 1);
    let program = target.program(Family::Quantized, Class::Float, &spec)?;
    let args =
        entry::QuantizedUnpack { quantized: packed.arguments(&target)?, dtype0: out.dtype, out: target.tensor(out)? };
    target.launch(&program, entry::QUANTIZED_UNPACK, &args, &[groups * group], Some(&[group]))
}
