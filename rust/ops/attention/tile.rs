//! Attention of 16-bit floats by matrix instructions, forward; `mod.rs` describes the tensors.

use std::sync::Arc;

use super::tile_form::{Group, Operands, TILE};
use super::{arguments, dropout, encode, AttentionInputs, AttentionMode};
use crate::error::Result;
use crate::kernels::{entry, CachedProgram, Class, Family, Spec};
use crate::ops::core::forms;
use crate::ops::core::space::div_ceil;
use crate::ops::matmul::tile_kind::{TileKind, TileUnit};
use crate::ops::{Target, Tensor};

/// Keys of a block: as many as items have registers for (`make gpu-compile CASES=attention_tile`). No GPU has measured
/// it.
const KEYS: i64 = 64;
const KEYS_OF_LONG_ROWS: i64 = 32;

/// The constants of a program of `attention_tile.cl`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Form {
    pub operands: Operands,
    sub_groups: i64,
}

impl Form {
    fn new(operands: Operands, queries: i64) -> Self {
        Self { operands, sub_groups: sub_groups(operands.unit, queries) }
    }

    /// A work-group, which owns queries.
    pub(super) const fn group(&self) -> Group {
        let step_rows = if self.operands.has_long_rows() { KEYS_OF_LONG_ROWS } else { KEYS };
        Group { sub_groups: self.sub_groups, step_rows, own_blocks: 1, left_operands: 1, terms: 0 }
    }

    fn spec(&self) -> Spec {
        self.operands.spec(&self.group())
    }

    /// The program.
    ///
    /// # Errors
    /// Errors reported by the compiler.
    pub(super) fn program(&self, target: &Target) -> Result<Arc<CachedProgram>> {
        target.program(Family::AttentionTile, Class::Float, &self.spec())
    }
}

/// Sub-groups of a work-group. More of them share a block of keys and values; few queries would leave them idle.
/// Layouts whose weights go through local memory need more of it for each.
const fn sub_groups(unit: TileUnit, queries: i64) -> i64 {
    if matches!(unit.kind, TileKind::Mma) && queries > 4 * TILE {
        8
    } else {
        4
    }
}

/// The usual programs of a device with matrix instructions.
///
/// # Errors
/// See [`Operands::of`].
pub(in crate::ops) fn forms(target: &Target) -> Result<Vec<forms::Form>> {
    let all = Operands::usual(target)?.into_iter().map(|operands| Form::new(operands, i64::MAX));
    let fitting = all.filter(|form| form.operands.fits(target, &form.group()));
    Ok(fitting.map(|form| (Class::Float, form.spec())).collect())
}

/// The form for a call; `None` if it has none. `tile_check::is_right` says if it may be used.
///
/// # Errors
/// See [`Operands::of`].
pub(super) fn plan(target: &Target, inputs: &AttentionInputs<'_>, mode: &AttentionMode) -> Result<Option<Form>> {
    let Some(operands) = Operands::of(target, inputs, mode)? else { return Ok(None) };
    let form = Form::new(operands, inputs.query.size(2));
    Ok(operands.fits(target, &form.group()).then_some(form))
}

/// Computes [`super::attention`] for the calls that have a form.
///
/// # Errors
/// Errors reported by the compiler or the driver.
pub(super) fn forward(
    target: &Target,
    form: &Form,
    inputs: &AttentionInputs<'_>,
    mode: &AttentionMode,
    out: &Tensor<'_>,
    logsumexp: &Tensor<'_>,
) -> Result<()> {
    let args = entry::AttentionTile {
        attention: arguments(target, inputs, mode, encode(inputs, mode, out, None))?,
        out: target.tensor(out)?,
        logsumexp: target.tensor(logsumexp)?,
        dropout: dropout(target, Class::Float, mode),
    };
    let query = &inputs.query;
    let groups = query.size(0) * query.size(1) * div_ceil(query.size(2), form.group().own_rows());
    let (program, items) = (form.program(target)?, form.group().items(form.operands.unit) as usize);
    target.launch(&program, entry::ATTENTION_TILE, &args, &[groups as usize * items], Some(&[items]))
}
