//! The gradients of attention of 16-bit floats by matrix instructions, from the row terms of `attention_delta`.

use std::sync::Arc;

use super::tile_form::{is_in_chunks, Group, Operands};
use super::{arguments, dropout, encode, AttentionGradients, AttentionInputs, AttentionMode};
use crate::cl::Memory;
use crate::error::Result;
use crate::kernels::{entry, CachedProgram, Class, Family, Spec};
use crate::ops::core::forms;
use crate::ops::core::space::div_ceil;
use crate::ops::{Target, Tensor};

const SUB_GROUPS: i64 = 4;
/// Rows of a step. A group's own rows and those of a step have to fit 48 KiB of local memory.
const STEP_ROWS: i64 = 32;
const STEP_OF_LONG_ROWS: i64 = 16;
/// Values for each query: `TERMS` of `attention_tile_backward.cl`.
const TERMS: i64 = 3;

/// The constants of a program of `attention_tile_backward.cl`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct BackwardForm {
    pub operands: Operands,
    /// The gradients of keys and values, not those of queries.
    pub owns_keys: bool,
}

impl BackwardForm {
    /// A work-group, which owns queries, or keys.
    pub(super) fn group(&self) -> Group {
        let step_rows = if self.operands.has_long_rows() { STEP_OF_LONG_ROWS } else { STEP_ROWS };
        let is_owner = i64::from(self.owns_keys);
        let (left_operands, terms) = (1 + is_owner, is_owner * TERMS);
        Group { sub_groups: SUB_GROUPS, step_rows, own_blocks: 2, left_operands, terms }
    }

    fn spec(&self) -> Spec {
        self.operands.spec(&self.group()).define("OWNS_KEYS", i64::from(self.owns_keys))
    }

    fn fits(&self, target: &Target) -> bool {
        self.operands.fits(target, &self.group())
    }

    /// The program.
    ///
    /// # Errors
    /// Errors reported by the compiler.
    pub(super) fn program(&self, target: &Target) -> Result<Arc<CachedProgram>> {
        target.program(Family::AttentionTileBackward, Class::Float, &self.spec())
    }
}

/// The forms for the gradients of queries, and of keys and values.
fn both(operands: Operands) -> [BackwardForm; 2] {
    [false, true].map(|owns_keys| BackwardForm { operands, owns_keys })
}

/// The usual programs of a device with matrix instructions.
///
/// # Errors
/// See [`Operands::of`].
pub(in crate::ops) fn forms(target: &Target) -> Result<Vec<forms::Form>> {
    let all = Operands::usual(target)?.into_iter().flat_map(both);
    Ok(all.filter(|form| form.fits(target)).map(|form| (Class::Float, form.spec())).collect())
}

/// The forms for a call; `None` where the forward pass has none, or with a gradient of the bias.
/// `tile_check::backward_is_right` says if they may be used.
///
/// # Errors
/// See [`Operands::of`].
pub(super) fn plan(
    target: &Target,
    inputs: &AttentionInputs<'_>,
    mode: &AttentionMode,
    grad_out: &Tensor<'_>,
    gradients: &AttentionGradients<'_>,
) -> Result<Option<[BackwardForm; 2]>> {
    if !is_in_chunks(grad_out) || gradients.bias.is_present() {
        return Ok(None);
    }
    let forms = Operands::of(target, inputs, mode)?.map(both);
    Ok(forms.filter(|forms| forms.iter().all(|form| form.fits(target))))
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
            dropout: dropout(target, Class::Float, mode),
        };
        let groups = rows.size(0) * rows.size(1) * div_ceil(rows.size(2), form.group().own_rows());
        let (program, items) = (form.program(target)?, form.group().items(form.operands.unit) as usize);
        target.launch(&program, entry::ATTENTION_TILE_BACKWARD, &args, &[groups as usize * items], Some(&[items]))?;
    }
    Ok(())
}
