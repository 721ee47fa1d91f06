//! GEMM of float16 and bfloat16 by matrix instructions, for GPUs that have them.

use std::sync::Arc;

use super::epilogue::{Activation, Epilogue};
use super::gemm_local::{finish, is_along_k, is_plain, SHORTEST_SPLIT};
use super::matrix::Matrix;
use super::operands::{Gemm, GemmOperand};
use super::plan::GemmSize;
use super::tile_check::{has_failed, is_right};
use super::tile_kind::{TileKind, TileUnit};
use crate::error::Result;
use crate::kernels::structs::gemm_block::Extent;
use crate::kernels::{entry, CachedProgram, Class, Constant, DType, Family, Spec};
use crate::ops::core::forms;
use crate::ops::core::space::div_ceil;
use crate::ops::tuning::GpuTuning;
use crate::ops::Target;

/// Bytes that a load of a block moves.
const CHUNK_BYTES: i64 = 16;
/// Elements of a load.
pub const CHUNK: i64 = CHUNK_BYTES / 2;
/// Smaller matmuls fill no tile: most of the products would be of zeros.
const LEAST_SIDE: i64 = 16;
const LEAST_K: i64 = 32;
/// Elements of a vector that the epilogue stores.
const STORED: i64 = 8;
/// Rows of results that a sub-group stores at a time, and the padding of each; as in `OUT_PITCH` of `gemm_tile.cl`.
const TILE: i64 = 16;
const PADDING: i64 = 8;

/// The part of C that a work-group computes, and how.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Block {
    pub rows: i64,
    pub columns: i64,
    pub k: i64,
    groups_down: i64,
    groups_across: i64,
    stages: i64,
}

impl Block {
    /// A block for matmuls that fill the device, and one for the others. A larger part of C in a sub-group needs fewer
    /// loads from local memory for each product, and more registers of an item: these parts are the largest that
    /// offline compilers give registers without spilling (`make gpu-compile CASES=gemm_tile`). No GPU has measured them.
    fn of(unit: TileUnit, is_large: bool, is_async: bool) -> Self {
        let (groups_down, groups_across) = match (unit.kind, is_large) {
            (TileKind::Wmma | TileKind::Wmma12, true) | (TileKind::Dpas8, false) => (2, 4),
            (TileKind::Dpas16, true) => (4, 4),
            (TileKind::Dpas8, true) => (4, 8),
            _ => (2, 2),
        };
        let side = if is_large { 128 } else { 64 };
        let stages = match (is_async, is_large) {
            (true, true) => 3,
            (true, false) => 4,
            (false, _) => 2,
        };
        Self { rows: side, columns: side, k: 32, groups_down, groups_across, stages }
    }

    pub(super) const fn items(&self, unit: TileUnit) -> i64 {
        self.groups_down * self.groups_across * unit.kind.lanes()
    }

    /// Bytes of local memory, of which an emulation needs more.
    fn local_bytes(&self, unit: TileUnit) -> i64 {
        let stages = self.stages * (self.rows + self.columns) * self.k * 2;
        let groups = self.groups_down * self.groups_across;
        let results = groups * TILE * (self.columns / self.groups_across + PADDING) * 4;
        let tiles = self.rows / self.groups_down + self.columns / self.groups_across;
        let exchanged = if unit.emulated == 0 { 0 } else { groups * tiles * TILE * 2 };
        stages.max(results) + exchanged
    }

    /// Returns true if a device can run such groups, and each item copies whole chunks.
    fn fits(&self, unit: TileUnit, target: &Target) -> bool {
        let (info, items) = (&target.device.info, self.items(unit));
        items <= info.max_work_group as i64
            && self.local_bytes(unit) <= info.local_mem as i64
            && (self.rows * self.k / CHUNK) % items == 0
            && (self.columns * self.k / CHUNK) % items == 0
    }
}

/// An operand of a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Side {
    /// Its kind in `gemm_operands.cl`.
    pub kind: i64,
    /// Rows in memory run along k, not along the index of C.
    pub along_k: bool,
    /// All chunks begin at multiples of their size.
    pub aligned: bool,
}

impl Side {
    const fn matrix(along_k: bool, aligned: bool) -> Self {
        Self { kind: 0, along_k, aligned }
    }

    /// An operand; `None` if tiles cannot be loaded from it. k is its column index, or with `exchanged` its row index.
    fn of(operand: &GemmOperand, exchanged: bool) -> Option<Self> {
        let along_k = is_along_k(operand, exchanged);
        let is_at_chunk = operand.memory().offset.is_multiple_of(CHUNK_BYTES as u64);
        if let Some(im2col) = operand.im2col() {
            // The operand at the left has output positions as rows.
            let is_transposed = matches!(operand, GemmOperand::Im2colTransposed(_));
            let suits = is_at_chunk && im2col.is_in_chunks(CHUNK) && (exchanged || !is_transposed);
            return suits.then_some(Self { kind: operand.kind(), along_k: !is_transposed, aligned: true });
        }
        if !is_plain(operand, along_k, exchanged) {
            return None;
        }
        let Matrix { rows, columns, batch_stride } = operand.layout();
        // From one row in memory to the next: the index that is not dense.
        let pitch = if along_k == exchanged { columns.stride() } else { rows.stride() };
        Some(Self::matrix(along_k, is_at_chunk && pitch % CHUNK == 0 && batch_stride % CHUNK == 0))
    }
}

/// The constants of a program, without those of its epilogue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Form {
    pub unit: TileUnit,
    pub block: Block,
    pub dtype: DType,
    pub a: Side,
    pub b: Side,
}

impl Form {
    fn constants(&self) -> [Constant; 15] {
        let Self { unit, block, a, b, .. } = *self;
        [
            ("TILE_KIND", unit.kind as i64),
            ("TILE_EMULATED", unit.emulated),
            ("BLOCK_ROWS", block.rows),
            ("BLOCK_COLUMNS", block.columns),
            ("BLOCK_K", block.k),
            ("GROUPS_DOWN", block.groups_down),
            ("GROUPS_ACROSS", block.groups_across),
            ("STAGES", block.stages),
            ("A_KIND", a.kind),
            ("B_KIND", b.kind),
            ("A_ALONG_K", i64::from(a.along_k)),
            ("B_ALONG_K", i64::from(b.along_k)),
            ("A_ALIGNED", i64::from(a.aligned)),
            ("B_ALIGNED", i64::from(b.aligned)),
            ("VEC", STORED),
        ]
    }

    /// The constants of a program with an epilogue.
    fn spec(&self, [out, bias]: [DType; 2], activation: Activation, lines: bool) -> Spec {
        let spec = Spec::generic()
            .define("LINES", i64::from(lines))
            .define("SPEC_DTYPE0", i64::from(self.dtype.code()))
            .define("SPEC_DTYPE1", i64::from(out.code()))
            .define("SPEC_DTYPE2", i64::from(bias.code()))
            .define("ACTIVATION", i64::from(activation.repr));
        // Only AMD's own driver has these kinds, and it compiles clang's builtins.
        let needs_clang = self.unit.emulated == 0 && self.unit.kind.needs_clang();
        let spec = if needs_clang { spec.define("HAS_CLANG_BUILTINS", 1) } else { spec };
        self.constants().iter().fold(spec, |spec, (name, value)| spec.define(name, *value))
    }

    /// The program with an epilogue.
    ///
    /// # Errors
    /// Errors reported by the compiler.
    pub(super) fn program(&self, target: &Target, epilogue: &Epilogue<'_>) -> Result<Arc<CachedProgram>> {
        let (out, bias) = (epilogue.out, epilogue.bias.unwrap_or(epilogue.out));
        let lines = [out, bias].iter().all(|operand| operand.layout.rows.is_line() && operand.layout.columns.is_line());
        let spec = self.spec([out.dtype, bias.dtype], epilogue.activation, lines);
        epilogue.program(target, [Family::GemmTile, Family::GemmTileFused], Class::Float, spec)
    }
}

/// How a GEMM is computed.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    form: Form,
    splits: i64,
}

/// The usual programs of a device with matrix instructions: results of the operands' dtype, and partial sums.
///
/// # Errors
/// See [`plan`].
pub(super) fn forms(target: &Target) -> Result<Vec<forms::Form>> {
    let Some(unit) = TileUnit::of(&target.device.info)? else { return Ok(Vec::new()) };
    let mut found = Vec::new();
    for dtype in [DType::F16, DType::BF16] {
        let mut add = |form: Form, lines| {
            if form.block.fits(unit, target) {
                let spec = |(out, lines)| (Class::Float, form.spec([out; 2], Activation::None, lines));
                found.extend([(dtype, lines), (DType::F32, true)].map(spec));
            }
        };
        for (a_along_k, b_along_k) in [(true, true), (true, false), (false, true), (false, false)] {
            for (is_large, aligned) in [(true, true), (false, true), (false, false)] {
                let block = Block::of(unit, is_large, unit.kind.has_copies() && aligned);
                let (a, b) = (Side::matrix(a_along_k, aligned), Side::matrix(b_along_k, aligned));
                add(Form { unit, block, dtype, a, b }, true);
            }
        }
        // Convolutions of channels-last inputs, and of others whose results are not; gradients of weights.
        let (along_k, along_columns) = (Side::matrix(true, true), Side::matrix(false, true));
        let images = |kind, along_k| Side { kind, along_k, aligned: true };
        let sides = [(images(1, true), along_k), (along_k, images(1, true)), (along_columns, images(2, false))];
        for ((a, b), is_large) in sides.into_iter().flat_map(|sides| [(sides, true), (sides, false)]) {
            if !(is_large && spills(unit, &b)) {
                add(Form { unit, block: Block::of(unit, is_large, unit.kind.has_copies()), dtype, a, b }, false);
            }
        }
    }
    Ok(found)
}

/// Returns true if matrix instructions compute matmuls of a dtype on a device, with at least so many rows, columns and
/// values of k, and no form of the kernel has failed its check.
pub fn computes(target: &Target, dtype: DType, side: i64, k: i64) -> bool {
    let fits = |unit: TileUnit| Block::of(unit, false, unit.kind.has_copies()).fits(unit, target);
    !target.is_cpu()
        && matches!(dtype, DType::F16 | DType::BF16)
        && side >= LEAST_SIDE
        && k >= LEAST_K
        && TileUnit::of(&target.device.info).is_ok_and(|unit| unit.is_some_and(fits))
        && !has_failed(target)
}

/// Returns true if an item of the large block has too few registers.
fn spills(unit: TileUnit, b: &Side) -> bool {
    unit.kind == TileKind::Wmma && b.kind == 2
}

/// The plan of a GEMM; `None` if its operands are not 16-bit floats that tiles can be loaded from, if it is too small, or
/// if its form has failed its check.
///
/// # Errors
/// [`crate::error::Error::Invalid`] for a wrong value of `TORCH_OPENCL_MATRIX`.
pub fn plan(target: &Target, gemm: &Gemm<'_>, tuning: &GpuTuning) -> Result<Option<Plan>> {
    let GemmSize { rows, columns, k, batches } = gemm.size;
    let dtype = gemm.a.dtype();
    if !matches!(dtype, DType::F16 | DType::BF16)
        || gemm.b.dtype() != dtype
        || rows.min(columns) < LEAST_SIDE
        || k < LEAST_K
    {
        return Ok(None);
    }
    let Some(unit) = TileUnit::of(&target.device.info)? else { return Ok(None) };
    let (Some(a), Some(b)) = (Side::of(&gemm.a, false), Side::of(&gemm.b, true)) else { return Ok(None) };
    let is_async = unit.kind.has_copies() && a.aligned && b.aligned;
    let units = target.compute_units() as i64;
    let blocks = |block: &Block| div_ceil(rows, block.rows) * div_ceil(columns, block.columns) * batches;
    let large = Block::of(unit, true, is_async);
    let fills = blocks(&large) >= units && large.fits(unit, target) && !spills(unit, &b);
    let block = if fills { large } else { Block::of(unit, false, is_async) };
    let form = Form { unit, block, dtype, a, b };
    if !block.fits(unit, target) || !is_right(target, &form) {
        return Ok(None);
    }
    let splits = (units * tuning.groups_per_unit / blocks(&block).max(1)).min(k / SHORTEST_SPLIT).max(1);
    Ok(Some(Plan { form, splits }))
}

impl Plan {
    /// Computes the GEMM.
    ///
    /// # Errors
    /// Errors reported by the allocator or the driver.
    pub fn run(&self, target: &Target, gemm: &Gemm<'_>, tuning: &GpuTuning) -> Result<()> {
        let Self { form, splits } = *self;
        let Gemm { class, size, a, b, epilogue } = *gemm;
        let GemmSize { rows, columns, k, batches } = size;
        let results = rows * columns * batches;
        let sums = if splits > 1 { Some(target.workspace((splits * results) as usize * class.size())?) } else { None };
        let goal = epilogue.or_sums(target, sums.as_ref(), class, [rows, columns])?;
        let args = entry::GemmTile {
            a: a.memory(),
            b: b.memory(),
            a_layout: a.layout(),
            b_layout: b.layout(),
            im2col: a.im2col().or(b.im2col()).unwrap_or_default().layout(),
            extent: Extent { rows, columns, k, splits, split_stride: results },
            epilogue: goal.arguments(class),
        };
        let (program, kernel) = (form.program(target, &goal)?, entry::GEMM_TILE.extended());
        let items = form.block.items(form.unit) as usize;
        let blocks = div_ceil(rows, form.block.rows) * div_ceil(columns, form.block.columns);
        let global = (blocks * batches * splits) as usize * items;
        target.launch(&program, kernel, &goal.extended(&args), &[global], Some(&[items]))?;
        match sums {
            Some(_) => finish(target, class, size, splits, goal.out.memory, &epilogue, tuning),
            None => Ok(()),
        }
    }
}
