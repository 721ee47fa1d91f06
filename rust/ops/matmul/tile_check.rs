//! Checks that matrix instructions compute right results, for each form of the kernel before its first use.
//!
//! It multiplies matrices of small integers, whose sums are exact in any order.

use half::{bf16, f16};
use serde_json::json;

use super::epilogue::Epilogue;
use super::im2col::{Im2col, KernelMap, Volume, SPATIAL};
use super::matrix::{halves, Axis, Matrix, MatrixOperand};
use super::tile_form::{Form, CHUNK_BYTES};
use super::tile_kind::TileUnit;
use crate::cl::Memory;
use crate::error::Result;
use crate::kernels::entry;
use crate::kernels::structs::gemm_block::Extent;
use crate::kernels::{Class, DType, Family};
use crate::ops::core::checked::{counts, start_of, Counts, Outcomes, Subject, Trial};
use crate::ops::core::space::div_ceil;
use crate::ops::Target;

#[cxx::bridge(namespace = "torch_opencl::bridge")]
mod ffi {
    extern "Rust" {
        fn matrix_instructions(device: i32) -> Result<String>;
    }
}

static OUTCOMES: Outcomes<Form> = Outcomes::empty();

/// Elements after the last column of a row of results, and rows after the last, which nothing may write.
const GAP: i64 = 5;
const UNTOUCHED: i64 = -12345;
/// Groups that add to the same int32 results.
const SPLITS: i64 = 2;

/// Returns true if a form may be used on a device. The first use on a driver checks it.
pub(super) fn is_right(target: &Target, form: &Form) -> bool {
    let subject = Subject { family: Family::GemmTile, kernel: "matmul", kind: form.unit.kind.name() };
    OUTCOMES.is_right(target, form, subject, || check(target, form))
}

/// Returns true if a form for a dtype has computed wrong results on a device, or has not compiled.
pub(super) fn has_failed(target: &Target, dtype: DType) -> bool {
    OUTCOMES.has_failed(target.device.index, |form| form.dtype == dtype)
}

/// Returns as JSON the kinds of instructions of a device by dtype, and how many forms of kernels this process uses and
/// has refused after their check.
///
/// # Errors
/// [`crate::error::Error::Invalid`] for a wrong value of `TORCH_OPENCL_MATRIX`.
fn matrix_instructions(device: i32) -> Result<String> {
    let target = Target::at(device)?;
    let unit_of = |dtype| if target.is_cpu() { Ok(None) } else { TileUnit::of(&target.device.info, dtype) };
    let dtypes = [(DType::F16, "float16"), (DType::BF16, "bfloat16"), (DType::F32, "tfloat32"), (DType::I8, "int8")];
    let mut kinds = serde_json::Map::new();
    let mut is_emulated = false;
    for (dtype, name) in dtypes {
        if let Some(unit) = unit_of(dtype)? {
            kinds.insert(name.to_owned(), unit.kind.name().into());
            is_emulated |= unit.emulated != 0;
        }
    }
    let Counts { used, refused } = counts(device);
    let report = json!({"kinds": kinds, "emulated": is_emulated, "used": used, "refused": refused});
    Ok(report.to_string())
}

/// An integer from -3 to 12, different along rows and columns. Sums of products are integers that float32
/// represents, and that 16-bit floats would round.
fn value_of(row: i64, column: i64) -> i64 {
    let hash = (row * 7919 + column * 104_729 + 12_345).wrapping_mul(2_654_435_761);
    (hash >> 16).rem_euclid(16) - 3
}

/// The bytes of a small integer in a dtype.
fn bytes_of(dtype: DType, integer: i64) -> Vec<u8> {
    let value = integer as f32;
    match dtype {
        DType::BF16 => bf16::from_f32(value).to_ne_bytes().to_vec(),
        DType::F16 => f16::from_f32(value).to_ne_bytes().to_vec(),
        DType::I8 => vec![integer as u8],
        DType::I32 => (integer as i32).to_ne_bytes().to_vec(),
        _ => value.to_ne_bytes().to_vec(),
    }
}

/// An operand: its values by the index of C and k, its memory, and its layout by these indices.
struct Operand {
    values: Vec<Vec<i64>>,
    memory: Vec<u8>,
    layout: Matrix,
}

impl Operand {
    /// A matrix of `outers` by `k`. Its rows in memory are whole chunks.
    fn matrix(dtype: DType, outers: i64, k: i64, along_k: bool, seed: i64) -> Self {
        let (rows, columns) = if along_k { (outers, k) } else { (k, outers) };
        let chunk = CHUNK_BYTES as u64 / dtype.size() as u64;
        let pitch = (columns as u64).next_multiple_of(chunk) as i64;
        let value = |row: i64, column: i64| match (along_k, column < columns) {
            // Elements after the last column of a row must not count.
            (_, false) => 2,
            (true, _) => value_of(row + seed, column),
            (false, _) => value_of(column + seed, row),
        };
        let row = |row: i64| (0..pitch).flat_map(move |column| bytes_of(dtype, value(row, column)));
        let (outer, inner) = if along_k { (pitch, 1) } else { (1, pitch) };
        Self {
            values: (0..outers).map(|outer| (0..k).map(|k| value_of(outer + seed, k)).collect()).collect(),
            memory: (0..rows).flat_map(row).collect(),
            layout: Matrix { rows: Axis::line(outers, outer), columns: Axis::line(k, inner), batch_stride: 0 },
        }
    }

    /// The im2col matrix of two images, 13 x 13 with 24 channels innermost, for a kernel of 3 x 3 elements and padding:
    /// output positions by kernel elements, or the other way round.
    fn images(dtype: DType, is_transposed: bool) -> (Self, Im2col) {
        const CHANNELS: i64 = 24;
        const SIDE: i64 = 13;
        const IMAGES: i64 = 2;
        let sizes = [SIDE, SIDE, 1];
        let input = Volume {
            memory: Memory::ABSENT,
            dtype,
            images: IMAGES,
            channels: CHANNELS,
            image_stride: SIDE * SIDE * CHANNELS,
            channel_stride: 1,
            sizes,
            strides: [CHANNELS, SIDE * CHANNELS, SIDE * SIDE * CHANNELS],
        };
        let map = KernelMap {
            out_sizes: sizes,
            kernel_size: [3, 3, 1],
            stride: [1; SPATIAL],
            origin: [-1, -1, 0],
            dilation: [1; SPATIAL],
        };
        let (positions, kernel_elements) = (IMAGES * SIDE * SIDE, 9 * CHANNELS);
        let value = |position: i64, k: i64| {
            let (element, channel) = (k / CHANNELS, k % CHANNELS);
            let (x, y) = (position % SIDE + element % 3 - 1, position / SIDE % SIDE + element / 3 - 1);
            let is_inside = (0..SIDE).contains(&x) && (0..SIDE).contains(&y);
            let row = position / (SIDE * SIDE) * SIDE * SIDE + y * SIDE + x;
            if is_inside {
                value_of(row, channel)
            } else {
                0
            }
        };
        let (outers, k) = if is_transposed { (kernel_elements, positions) } else { (positions, kernel_elements) };
        let value_at = |outer: i64, k: i64| if is_transposed { value(k, outer) } else { value(outer, k) };
        let row = |row: i64| (0..CHANNELS).flat_map(move |channel| bytes_of(dtype, value_of(row, channel)));
        let operand = Self {
            values: (0..outers).map(|outer| (0..k).map(|k| value_at(outer, k)).collect()).collect(),
            memory: (0..positions).flat_map(row).collect(),
            layout: Matrix::dense(0, 0),
        };
        (operand, Im2col::of(&input, map, 1))
    }
}

/// The operands of a check, with a whole block of C and parts of blocks at its edges, and the layout of images.
fn operands(form: &Form) -> (Operand, Operand, Im2col) {
    const SEED: i64 = 1000;
    let Form { block, dtype, a, b, .. } = form;
    let (rows, columns) = (block.rows + 21, block.columns + 11);
    let images = (a.kind != 0 || b.kind != 0).then(|| Operand::images(*dtype, b.kind == 2));
    let Some((images, im2col)) = images else {
        // Steps for all blocks in local memory, and one of fewer values of k, in each part of k.
        let parts = if *dtype == DType::I8 { SPLITS } else { 1 };
        let k = (parts * 5 * block.k + 7) * 2 / dtype.size() as i64;
        let a = Operand::matrix(*dtype, rows, k, a.along_k, 0);
        return (a, Operand::matrix(*dtype, columns, k, b.along_k, SEED), Im2col::default());
    };
    let k = images.values.first().map_or(0, Vec::len) as i64;
    if a.kind != 0 {
        (images, Operand::matrix(*dtype, columns, k, b.along_k, SEED), im2col)
    } else {
        (Operand::matrix(*dtype, rows, k, a.along_k, SEED), images, im2col)
    }
}

/// Multiplies two operands, and compares all results.
fn check(target: &Target, form: &Form) -> Result<bool> {
    let block = &form.block;
    let (a, b, im2col) = operands(form);
    let (rows, columns) = (a.values.len() as i64, b.values.len() as i64);
    let k = a.values.first().map_or(0, Vec::len) as i64;
    let out_pitch = columns + GAP;
    let dtype = form.sum_dtype();
    let adds = dtype == DType::I32;
    let (zero, untouched) = (bytes_of(dtype, 0), bytes_of(dtype, UNTOUCHED));
    let is_result = |index: i64| index % out_pitch < columns && index / out_pitch < rows;
    let start: Vec<u8> = (0..(rows + GAP) * out_pitch)
        .flat_map(|index| if adds && is_result(index) { zero.clone() } else { untouched.clone() })
        .collect();
    let sum = |a: &[i64], b: &[i64]| a.iter().zip(b).map(|(a, b)| a * b).sum::<i64>();
    let is_right = |(index, found): (i64, &[u8])| {
        let row = a.values.get((index / out_pitch) as usize);
        let column = b.values.get((index % out_pitch) as usize);
        let expected = row.zip(column).map_or(UNTOUCHED, |(row, column)| sum(row, column));
        found == bytes_of(dtype, expected)
    };

    let trial = Trial::new(target)?;
    let (a_memory, b_memory) = (trial.upload(&a.memory)?, trial.upload(&b.memory)?);
    let out_layout =
        Matrix { rows: Axis::line(rows, out_pitch), columns: Axis::line(columns, 1), batch_stride: rows * out_pitch };
    for splits in 1..=if adds { SPLITS } else { 1 } {
        let mut out = start.clone();
        let out_memory = trial.upload(&out)?;
        let out_operand = MatrixOperand { memory: start_of(&out_memory), dtype, layout: out_layout };
        let epilogue = Epilogue::plain(out_operand, None);
        let args = entry::GemmTile {
            a: start_of(&a_memory),
            b: start_of(&b_memory),
            a_layout: a.layout.in_halves(form.dtype),
            b_layout: b.layout.transposed().in_halves(form.dtype),
            im2col: im2col.layout(),
            extent: Extent { rows, columns, k: halves(k, form.dtype), splits, split_stride: 0 },
            epilogue: epilogue.arguments(Class::Float),
        };
        let kernel = form.program(target, &epilogue)?.kernel(entry::GEMM_TILE.name)?;
        let blocks = (div_ceil(rows, block.rows) * div_ceil(columns, block.columns) * splits) as usize;
        trial.run(&kernel, &args, blocks, block.items(form.unit) as usize)?;
        trial.download(&out_memory, &mut out)?;
        if !(0..).zip(out.chunks_exact(dtype.size())).all(is_right) {
            return Ok(false);
        }
    }
    Ok(true)
}
