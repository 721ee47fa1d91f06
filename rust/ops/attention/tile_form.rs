//! What the programs of attention by matrix instructions have in common: which calls they take, and their constants.

use super::{is_in_vectors, AttentionInputs, AttentionMode};
use crate::error::Result;
use crate::kernels::{DType, Spec};
use crate::ops::matmul::tile_kind::{TileKind, TileUnit};
use crate::ops::{Target, Tensor};

/// Rows and columns of a tile: queries, or keys, of a sub-group.
pub(super) const TILE: i64 = 16;
/// Elements of a row in local memory. Shorter rows are filled up; longer ones would take too many registers.
const WIDTHS: [i64; 4] = [16, 32, 64, 128];
/// Width from which on the sums of a lane take many registers.
const LONG_ROW: i64 = 128;
/// At least as many queries or keys as a block of scores has.
const MOST_ROWS: i64 = 128;
/// Rows are read in chunks of this many elements, 16 bytes.
const CHUNK: i64 = 8;

/// The matrix instructions of a device for a dtype.
fn unit_of(target: &Target, dtype: DType) -> Result<Option<TileUnit>> {
    Ok(TileUnit::of(&target.device.info, dtype)?.filter(|unit| unit.kind.is_matrix()))
}

/// The operands of a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Operands {
    pub unit: TileUnit,
    pub dtype: DType,
    pub bias: Option<DType>,
    /// With dropout.
    pub drops: bool,
    pub width: i64,
}

/// A work-group, and its blocks in local memory.
#[derive(Clone, Copy, Debug)]
pub(super) struct Group {
    /// Each has a tile's rows.
    pub sub_groups: i64,
    /// Rows of each of the two blocks of a step.
    pub step_rows: i64,
    /// Blocks of the group's own rows.
    pub own_blocks: i64,
    /// Left operands, which take local memory if they do not stay in registers.
    pub left_operands: i64,
    /// Floats for each row of a step.
    pub terms: i64,
}

impl Group {
    /// Items of the group.
    pub(super) const fn items(&self, unit: TileUnit) -> i64 {
        self.sub_groups * unit.kind.lanes()
    }

    /// Rows that the group owns.
    pub(super) const fn own_rows(&self) -> i64 {
        self.sub_groups * TILE
    }
}

impl Operands {
    /// The operands of a call. `None` if [`is_allowed`] refuses it, its rows are too wide, or the device has no matrix
    /// instructions.
    ///
    /// # Errors
    /// [`crate::error::Error::Invalid`] for a wrong value of `TORCH_OPENCL_MATRIX`.
    pub(super) fn of(target: &Target, inputs: &AttentionInputs<'_>, mode: &AttentionMode) -> Result<Option<Self>> {
        let AttentionInputs { query, value, bias, .. } = inputs;
        if !is_allowed(target, inputs, mode) {
            return Ok(None);
        }
        let Some(unit) = unit_of(target, query.dtype)? else { return Ok(None) };
        let widest = query.size(3).max(value.size(3));
        let Some(width) = WIDTHS.into_iter().find(|width| *width >= widest) else { return Ok(None) };
        let (bias, drops) = (bias.is_present().then_some(bias.dtype), mode.keep_prob() < 1.0);
        Ok(Some(Self { unit, dtype: query.dtype, bias, drops, width }))
    }

    /// The usual operands on a device with matrix instructions.
    ///
    /// # Errors
    /// See [`Self::of`].
    pub(super) fn usual(target: &Target) -> Result<Vec<Self>> {
        let mut found = Vec::new();
        for dtype in [DType::F16, DType::BF16] {
            let unit = if target.is_cpu() { None } else { unit_of(target, dtype)? };
            for (unit, width) in unit.into_iter().flat_map(|unit| [(unit, 64), (unit, 128)]) {
                let kinds = [(None, false), (Some(dtype), false), (None, true)];
                found.extend(kinds.map(|(bias, drops)| Self { unit, dtype, bias, drops, width }));
            }
        }
        Ok(found)
    }

    pub(super) const fn has_long_rows(&self) -> bool {
        self.width >= LONG_ROW
    }

    /// Returns true if a device can run such groups. An emulation takes more local memory.
    pub(super) fn fits(&self, target: &Target, group: &Group) -> bool {
        let Group { sub_groups, step_rows, own_blocks, left_operands, terms } = *group;
        let own_rows = group.own_rows();
        let blocks = (own_blocks * own_rows + 2 * step_rows) * self.width;
        let left = if self.unit.kind == TileKind::Mma { 0 } else { left_operands * own_rows * step_rows };
        let exchanged =
            if self.unit.emulated == 0 { 0 } else { (TILE + step_rows.max(self.width)) * TILE * sub_groups };
        let bytes = 2 * (blocks + left + exchanged) + 4 * terms * step_rows;
        let info = &target.device.info;
        group.items(self.unit) <= info.max_work_group as i64 && bytes <= info.local_mem as i64
    }

    /// The constants of a program.
    pub(super) fn spec(&self, group: &Group) -> Spec {
        let spec = Spec::generic()
            .define("TILE_KIND", self.unit.kind as i64)
            .define("TILE_EMULATED", self.unit.emulated)
            .define("SUB_GROUPS", group.sub_groups)
            .define("STEP_ROWS", group.step_rows)
            .define("WIDTH", self.width)
            .define("SPEC_DTYPE0", i64::from(self.dtype.code()))
            .define("BIASED", i64::from(self.bias.is_some()))
            .define("DROPS", i64::from(self.drops));
        let spec = self.bias.iter().fold(spec, |spec, bias| spec.define("SPEC_DTYPE1", i64::from(bias.code())));
        self.unit.with_instructions(spec)
    }
}

/// Returns true for calls on GPUs of 16-bit floats in whole chunks, with at least as many queries as a tile has.
fn is_allowed(target: &Target, inputs: &AttentionInputs<'_>, mode: &AttentionMode) -> bool {
    let AttentionInputs { query, key, value, bias } = inputs;
    let (queries, scale) = (query.size(2), mode.scale as f32);
    // Offsets within a block of scores have 32 bits.
    let bias_bytes = || MOST_ROWS * (bias.stride(2) + bias.stride(3)) * bias.dtype.size() as i64;
    !target.is_cpu()
        && matches!(query.dtype, DType::F16 | DType::BF16)
        // Scores are compared before they are scaled, so their order must stay; and -infinity times 0 is a NaN.
        && scale > 0.0
        && scale.is_finite()
        && queries >= TILE
        && queries.max(key.size(2)) <= i64::from(i32::MAX)
        && [query, key, value].into_iter().all(is_in_chunks)
        && (!bias.is_present()
            || matches!(bias.dtype, DType::F32 | DType::F16 | DType::BF16) && bias_bytes() <= i64::from(i32::MAX))
}

/// Returns true if rows consist of whole chunks at multiples of their size.
pub(super) fn is_in_chunks(tensor: &Tensor<'_>) -> bool {
    tensor.stride(3) == 1 && is_in_vectors(tensor, CHUNK)
}
