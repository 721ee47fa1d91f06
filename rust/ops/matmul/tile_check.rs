//! Checks that matrix instructions compute right results, for each form of the kernel before its first use.
//!
//! Drivers are known that compile matrix instructions to wrong results, or crash their compiler. So a form is used only
//! after it has multiplied matrices of small integers, whose sums are exact in any order, and every result was
//! right. The outcome is remembered with the driver's version beside the compiled programs.

use std::sync::{PoisonError, RwLock};

use foldhash::HashMap;
use half::{bf16, f16};
use serde_json::json;

use super::epilogue::Epilogue;
use super::im2col::{Im2col, KernelMap, Volume, SPATIAL};
use super::matrix::{Axis, Matrix, MatrixOperand};
use super::tile_form::{Form, CHUNK};
use super::tile_kind::TileUnit;
use crate::cl::{Arg, Buffer, Deferred, Grid, Memory, Queue, Read, Start, Untraced};
use crate::error::Result;
use crate::kernels::entry::{self, Arguments};
use crate::kernels::structs::gemm_block::Extent;
use crate::kernels::{is_recording, warn, Class, DType, DiskEntry, Family, Switch};
use crate::ops::core::space::div_ceil;
use crate::ops::Target;

#[cxx::bridge(namespace = "torch_opencl::bridge")]
mod ffi {
    extern "Rust" {
        fn matrix_instructions(device: i32) -> Result<String>;
    }
}

/// The outcomes, by device and form.
static OUTCOMES: RwLock<Option<HashMap<(i32, Form), bool>>> = RwLock::new(None);

/// Elements after the last column of a row of results, and rows after the last, which nothing may write.
const GAP: i64 = 5;
const UNTOUCHED: f32 = -12345.0;

/// Returns true if a form may be used on a device. The first use on a driver checks it.
pub(super) fn is_right(target: &Target, form: &Form) -> bool {
    let key = (target.device.index, *form);
    let known = OUTCOMES.read().unwrap_or_else(PoisonError::into_inner).as_ref().and_then(|all| all.get(&key).copied());
    known.unwrap_or_else(|| {
        let outcome = recall(target, form);
        OUTCOMES.write().unwrap_or_else(PoisonError::into_inner).get_or_insert_default().insert(key, outcome);
        outcome
    })
}

/// Returns true if a form has computed wrong results on a device, or has not compiled.
pub(super) fn has_failed(target: &Target) -> bool {
    let all = OUTCOMES.read().unwrap_or_else(PoisonError::into_inner);
    all.iter().flatten().any(|((index, _), outcome)| *index == target.device.index && !outcome)
}

/// Returns as JSON the kind of matrix instructions of a device, and how many forms of the kernel this process uses and
/// has refused after their check.
///
/// # Errors
/// [`crate::error::Error::Invalid`] for a wrong value of `TORCH_OPENCL_MATRIX`.
fn matrix_instructions(device: i32) -> Result<String> {
    let target = Target::at(device)?;
    let unit = if target.is_cpu() { None } else { TileUnit::of(&target.device.info)? };
    let all = OUTCOMES.read().unwrap_or_else(PoisonError::into_inner);
    let outcomes = all.iter().flatten().filter(|((index, _), _)| *index == device);
    let (right, wrong): (Vec<bool>, Vec<bool>) = outcomes.map(|(_, outcome)| *outcome).partition(|outcome| *outcome);
    let report = json!({
        "kind": unit.map(|unit| unit.kind.name()),
        "emulated": unit.is_some_and(|unit| unit.emulated != 0),
        "used": right.len(),
        "refused": wrong.len(),
    });
    Ok(report.to_string())
}

/// The outcome that an earlier process has noted, or that of a check.
fn recall(target: &Target, form: &Form) -> bool {
    let source = Family::GemmTile.source(&Switch::default());
    let note = DiskEntry::note(&target.device.info, &source, &format!("results of {form:?}"));
    // A bundle also needs the program of the check.
    match note.load().as_deref().filter(|_| !is_recording()) {
        Some(b"right") => return true,
        Some(b"wrong") => return false,
        _ => {}
    }
    // A signal may not end this, nor does it belong to the user's profile.
    let _deferred = Deferred::new();
    let _untraced = Untraced::begin();
    match check(target, form) {
        Ok(outcome) => {
            if !outcome {
                tell(target, form, "computes wrong results");
            }
            note.store(if outcome { b"right" } else { b"wrong" });
            outcome
        }
        // Not noted: memory may have been short.
        Err(error) => {
            let text = error.message();
            tell(target, form, &format!("fails ({})", text.lines().next().unwrap_or_default()));
            false
        }
    }
}

fn tell(target: &Target, form: &Form, what: &str) {
    let (info, kind) = (&target.device.info, form.unit.kind.name());
    warn(&format!(
        "OpenCL: on {} (driver {}) the matmul kernel for matrix instructions ({kind}) {what}. It is not used: matmuls in \
         float16 and bfloat16 take longer. A newer driver may help.",
        info.name, info.driver_version
    ));
}

/// An integer from -3 to 12, different along rows and columns. Sums of products are integers that float32
/// represents, and that 16-bit floats would round.
fn value_of(row: i64, column: i64) -> i64 {
    let hash = (row * 7919 + column * 104_729 + 12_345).wrapping_mul(2_654_435_761);
    (hash >> 16).rem_euclid(16) - 3
}

/// The bits of a small integer.
fn bits(dtype: DType, integer: i64) -> u16 {
    let value = integer as f32;
    if dtype == DType::BF16 {
        bf16::from_f32(value).to_bits()
    } else {
        f16::from_f32(value).to_bits()
    }
}

/// An operand: its values by the index of C and k, its memory, and its layout by these indices.
struct Operand {
    values: Vec<Vec<i64>>,
    memory: Vec<u16>,
    layout: Matrix,
}

impl Operand {
    /// A matrix of `outers` by `k`. Its rows in memory are whole chunks.
    fn matrix(dtype: DType, outers: i64, k: i64, along_k: bool, seed: i64) -> Self {
        let (rows, columns) = if along_k { (outers, k) } else { (k, outers) };
        let pitch = (columns as u64).next_multiple_of(CHUNK as u64) as i64;
        let value = |row: i64, column: i64| match (along_k, column < columns) {
            // Elements after the last column of a row must not count.
            (_, false) => 2,
            (true, _) => value_of(row + seed, column),
            (false, _) => value_of(column + seed, row),
        };
        let row = |row: i64| (0..pitch).map(move |column| bits(dtype, value(row, column)));
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
        let row = |row: i64| (0..CHANNELS).map(move |channel| bits(dtype, value_of(row, channel)));
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
        // Steps for all blocks in local memory, and one of fewer values of k.
        let k = 5 * block.k + 7;
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
    let mut out = vec![UNTOUCHED; ((rows + GAP) * out_pitch) as usize];

    let context = &target.state.context;
    let queue = Queue::new(context)?;
    let device = |bytes: &[u8]| -> Result<Buffer> {
        let buffer = Buffer::new(context, bytes.len(), false)?;
        // SAFETY: the bytes are borrowed until the queue has finished.
        let _event = unsafe { queue.write(buffer.handle(), 0, bytes.as_ptr(), bytes.len())? };
        queue.finish()?;
        Ok(buffer)
    };
    let a_memory = device(bytemuck::cast_slice(&a.memory))?;
    let b_memory = device(bytemuck::cast_slice(&b.memory))?;
    let out_memory = device(bytemuck::cast_slice(&out))?;
    let at = |buffer: &Buffer| Memory { handle: buffer.handle(), offset: 0 };
    let out_layout =
        Matrix { rows: Axis::line(rows, out_pitch), columns: Axis::line(columns, 1), batch_stride: rows * out_pitch };
    let out_operand = MatrixOperand { memory: at(&out_memory), dtype: DType::F32, layout: out_layout };
    let epilogue = Epilogue::plain(out_operand, None);
    let args = entry::GemmTile {
        a: at(&a_memory),
        b: at(&b_memory),
        a_layout: a.layout,
        b_layout: b.layout.transposed(),
        im2col: im2col.layout(),
        extent: Extent { rows, columns, k, splits: 1, split_stride: rows * out_pitch },
        epilogue: epilogue.arguments(Class::Float),
    };
    let kernel = form.program(target, &epilogue)?.kernel(entry::GEMM_TILE.name)?;
    let items = block.items(form.unit) as usize;
    let blocks = (div_ceil(rows, block.rows) * div_ceil(columns, block.columns)) as usize;
    let grid = Grid { first: None, global: &[blocks * items], local: Some(&[items]) };
    args.bind(|args: &[Arg<'_>]| queue.launch(&kernel, args, &grid, Start::Now))?;
    queue.finish()?;
    let (pointer, size) = (out.as_mut_ptr().cast(), size_of_val(out.as_slice()));
    // SAFETY: `out` is exclusively borrowed during the call.
    unsafe { queue.read_now(&[Read { source: out_memory.handle(), offset: 0, target: pointer, size }])? };

    let sum = |a: &[i64], b: &[i64]| a.iter().zip(b).map(|(a, b)| a * b).sum::<i64>() as f32;
    let is_row = |(found, row): (&[f32], &Vec<i64>)| {
        let (results, gap) = found.split_at(b.values.len());
        results.iter().zip(&b.values).all(|(result, column)| *result == sum(row, column))
            && gap.iter().all(|x| *x == UNTOUCHED)
    };
    let after = out.get((rows * out_pitch) as usize..).unwrap_or_default();
    Ok(out.chunks_exact(out_pitch as usize).zip(&a.values).all(is_row) && after.iter().all(|x| *x == UNTOUCHED))
}
