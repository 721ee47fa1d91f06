//! The constants of a program of `gemm_tile.cl`: its unit, block, dtype and operands.

use std::sync::Arc;

use super::epilogue::{Activation, Epilogue};
use super::gemm_local::{is_along_k, is_plain};
use super::matrix::Matrix;
use super::operands::GemmOperand;
use super::tile_kind::{TileKind, TileUnit};
use crate::error::Result;
use crate::kernels::{CachedProgram, Class, Constant, DType, Family, Spec};
use crate::ops::Target;

/// Bytes that a load of a block moves.
pub(super) const CHUNK_BYTES: i64 = 16;
/// Values of other sizes are counted in elements of this size along k.
const ELEMENT_BYTES: i64 = 2;
/// Elements of a load.
pub const CHUNK: i64 = CHUNK_BYTES / ELEMENT_BYTES;
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
    /// offline compilers give registers without spilling (`make gpu-compile CASES=gemm_tile`). No GPU has measured
    /// them.
    pub(super) fn of(unit: TileUnit, is_large: bool, is_async: bool) -> Self {
        let (groups_down, groups_across) = match (unit.kind, is_large) {
            (TileKind::Wmma | TileKind::Wmma12, true) | (TileKind::Dpas8, false) | (TileKind::Dot, _) => (2, 4),
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
        // Shorter rows of A and B leave more registers for sums, and are enough chunks for the items of a large block.
        let k = if unit.kind == TileKind::Dot && is_large { 16 } else { 32 };
        Self { rows: side, columns: side, k, groups_down, groups_across, stages }
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
        let exchanges = unit.emulated != 0 && unit.kind.is_matrix();
        let exchanged = if exchanges { groups * tiles * TILE * 2 } else { 0 };
        stages.max(results) + exchanged
    }

    /// Returns true if a device can run such groups with sums in registers, and each item copies whole chunks.
    pub(super) fn fits(&self, unit: TileUnit, target: &Target) -> bool {
        let (info, items) = (&target.device.info, self.items(unit));
        self.rows <= unit.most_rows()
            && items <= info.max_work_group as i64
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
    pub(super) const fn matrix(along_k: bool, aligned: bool) -> Self {
        Self { kind: 0, along_k, aligned }
    }

    /// An operand; `None` if tiles cannot be loaded from it. k is its column index, or with `exchanged` its row index.
    pub(super) fn of(operand: &GemmOperand, exchanged: bool) -> Option<Self> {
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
        let size = operand.dtype().size() as i64;
        let are_at = |bytes: i64| [pitch, batch_stride].iter().all(|stride| stride * size % bytes == 0);
        if operand.dtype() == DType::I8 {
            let k = if exchanged { rows.size() } else { columns.size() };
            let is_whole = operand.memory().offset.is_multiple_of(ELEMENT_BYTES as u64) && are_at(ELEMENT_BYTES);
            if !along_k || !is_whole || k % ELEMENT_BYTES != 0 {
                return None;
            }
        }
        Some(Self::matrix(along_k, is_at_chunk && are_at(CHUNK_BYTES)))
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
    /// The dtype of sums, and of the results of a check.
    pub(super) const fn sum_dtype(&self) -> DType {
        match self.dtype {
            DType::I8 => DType::I32,
            _ => DType::F32,
        }
    }

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
    pub(super) fn spec(&self, [out, bias]: [DType; 2], activation: Activation, lines: bool) -> Spec {
        let spec = Spec::generic()
            .define("LINES", i64::from(lines))
            .define("SPEC_DTYPE0", i64::from(self.dtype.code()))
            .define("SPEC_DTYPE1", i64::from(out.code()))
            .define("SPEC_DTYPE2", i64::from(bias.code()))
            .define("ACTIVATION", i64::from(activation.repr));
        let spec = self.unit.with_instructions(spec);
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
