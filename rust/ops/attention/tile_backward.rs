//! The gradients of attention of 16-bit floats by matrix instructions, from the row terms of `attention_delta`.

use std::sync::Arc;

use super::tile::{allows, is_in_chunks, TILE, WIDTHS};
use super::tile_check::backward_is_right;
use super::{arguments, encode, AttentionGradients, AttentionInputs, AttentionMode};
use crate::cl::Memory;
use crate::error::Result;
use crate::kernels::{entry, CachedProgram, Class, DType, Family, Spec};
use crate::ops::core::forms;
use crate::ops::core::space::div_ceil;
use crate::ops::matmul::tile_kind::{TileKind, TileUnit};
use crate::ops::{Target, Tensor};

/// Sub-groups of a work-group.
const SUB_GROUPS: i64 = 4;
/// Rows that a group owns.
pub(super) const OWN_ROWS: i64 = SUB_GROUPS * TILE;
/// Rows of a step. A group's own rows and those of a step have to fit 48 KiB of local memory.
const STEP_ROWS: i64 = 32;
const STEP_OF_LONG_ROWS: i64 = 16;
const LONG_ROW: i64 = 128;

/// The constants of a program of `attention_tile_backward.cl`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct BackwardForm {
    pub unit: TileUnit,
    pub dtype: DType,
    pub bias: Option<DType>,
    pub width: i64,
    /// The gradients of keys and values, not those of queries.
    pub owns_keys: bool,
}

impl BackwardForm {
    /// Items of a work-group.
    pub(super) const fn items(&self) -> i64 {
        SUB_GROUPS * self.unit.kind.lanes()
    }

    const fn step_rows(&self) -> i64 {
        if self.width >= LONG_ROW {
            STEP_OF_LONG_ROWS
        } else {
            STEP_ROWS
        }
    }

    /// Bytes of local memory: two blocks of own rows and two of a step's, left operands, and the terms of a step's
    /// queries; an emulation needs more.
    fn local_bytes(&self) -> i64 {
        let (step, is_owner) = (self.step_rows(), i64::from(self.owns_keys));
        let blocks = 2 * (OWN_ROWS + step) * self.width;
        let left = if self.unit.kind == TileKind::Mma { 0 } else { (1 + is_owner) * OWN_ROWS * step };
        let terms = is_owner * step * 6;
        let exchanged = (TILE + step.max(self.width)) * TILE * SUB_GROUPS;
        2 * (blocks + left + terms + if self.unit.emulated == 0 { 0 } else { exchanged })
    }

    fn fits(&self, target: &Target) -> bool {
        let info = &target.device.info;
        self.items() <= info.max_work_group as i64 && self.local_bytes() <= info.local_mem as i64
    }

    fn spec(&self) -> Spec {
        let spec = Spec::generic()
            .define("TILE_KIND", self.unit.kind as i64)
            .define("TILE_EMULATED", self.unit.emulated)
            .define("SUB_GROUPS", SUB_GROUPS)
            .define("STEP_ROWS", self.step_rows())
            .define("WIDTH", self.width)
            .define("OWNS_KEYS", i64::from(self.owns_keys))
            .define("SPEC_DTYPE0", i64::from(self.dtype.code()))
            .define("BIASED", i64::from(self.bias.is_some()));
        let spec = self.bias.iter().fold(spec, |spec, bias| spec.define("SPEC_DTYPE1", i64::from(bias.code())));
        self.unit.with_builtins(spec)
    }

    /// The program.
    ///
    /// # Errors
    /// Errors reported by the compiler.
    pub(super) fn program(&self, target: &Target) -> Result<Arc<CachedProgram>> {
        target.program(Family::AttentionTileBackward, Class::Float, &self.spec())
    }
}

/// The usual programs of a device with matrix instructions.
///
/// # Errors
/// See [`plan`].
pub(in crate::ops) fn forms(target: &Target) -> Result<Vec<forms::Form>> {
    let unit = if target.is_cpu() { None } else { TileUnit::of(&target.device.info)? };
    let Some(unit) = unit else { return Ok(Vec::new()) };
    let mut found = Vec::new();
    for (dtype, width) in [DType::F16, DType::BF16].into_iter().flat_map(|dtype| [64, 128].map(|width| (dtype, width)))
    {
        for (bias, owns_keys) in [(None, false), (None, true), (Some(dtype), false), (Some(dtype), true)] {
            let form = BackwardForm { unit, dtype, bias, width, owns_keys };
            if form.fits(target) {
                found.push((Class::Float, form.spec()));
            }
        }
    }
    Ok(found)
}

/// The forms for the gradients of queries, and of keys and values; `None` where the forward pass has none, with a
/// gradient of the bias, or if a form has failed its check.
///
/// # Errors
/// See [`super::tile::plan`].
pub(super) fn plan(
    target: &Target,
    inputs: &AttentionInputs<'_>,
    mode: &AttentionMode,
    grad_out: &Tensor<'_>,
    gradients: &AttentionGradients<'_>,
) -> Result<Option<[BackwardForm; 2]>> {
    let AttentionInputs { query, value, bias, .. } = inputs;
    if !allows(target, inputs, mode) || !is_in_chunks(grad_out) || gradients.bias.is_present() {
        return Ok(None);
    }
    let Some(unit) = TileUnit::of(&target.device.info)? else { return Ok(None) };
    let widest = query.size(3).max(value.size(3));
    let Some(width) = WIDTHS.into_iter().find(|width| *width >= widest) else { return Ok(None) };
    let bias = bias.is_present().then_some(bias.dtype);
    let forms = [false, true].map(|owns_keys| BackwardForm { unit, dtype: query.dtype, bias, width, owns_keys });
    let is_usable = |form: &BackwardForm| form.fits(target) && backward_is_right(target, form);
    Ok(forms.iter().all(is_usable).then_some(forms))
}

/// Writes the gradients.
///
/// # Errors
/// Errors reported by the compiler or the driver.
pub(super) fn backward(
    target: &Target,
    forms: &[BackwardForm; 2],
    inputs: &AttentionInputs<'_>,
    mode: &AttentionMode,
    [out, grad_out]: [&Tensor<'_>; 2],
    row_terms: Memory,
    gradients: &AttentionGradients<'_>,
) -> Result<()> {
    let attention = encode(inputs, mode, out, Some((gradients, grad_out)));
    for form in forms {
        let (owner, rows) =
            if form.owns_keys { (&gradients.key, &inputs.key) } else { (&gradients.query, &inputs.query) };
        let args = entry::AttentionTileBackward {
            attention: arguments(target, inputs, mode, attention)?,
            grad_out: target.tensor(grad_out)?,
            row_terms,
            grad_owned: target.tensor(owner)?,
            grad_value: target.tensor(&gradients.value)?,
        };
        let groups = rows.size(0) * rows.size(1) * div_ceil(rows.size(2), OWN_ROWS);
        let (program, items) = (form.program(target)?, form.items() as usize);
        target.launch(&program, entry::ATTENTION_TILE_BACKWARD, &args, &[groups as usize * items], Some(&[items]))?;
    }
    Ok(())
}
