//! Attention of 16-bit floats by matrix instructions, forward; `mod.rs` describes the tensors.

use std::sync::Arc;

use super::tile_check::is_right;
use super::{arguments, encode, AttentionInputs, AttentionMode};
use crate::error::Result;
use crate::kernels::{entry, CachedProgram, Class, DType, Family, Spec};
use crate::ops::core::forms;
use crate::ops::core::space::div_ceil;
use crate::ops::matmul::tile_kind::{TileKind, TileUnit};
use crate::ops::{Target, Tensor};

/// Queries of a sub-group.
pub(super) const TILE: i64 = 16;
/// Elements of a row in local memory. Shorter rows are filled up; longer ones would take too many registers.
pub(super) const WIDTHS: [i64; 4] = [16, 32, 64, 128];
/// Keys of a block: as many as items have registers for (`make gpu-compile CASES=attention_tile`). No GPU has measured it.
const KEYS: i64 = 64;
const KEYS_OF_LONG_ROWS: i64 = 32;
/// At least as many queries or keys as a block of scores has.
const MOST_ROWS: i64 = 128;
/// Width from which on the sums of a lane take many registers.
const LONG_ROW: i64 = 128;
/// Rows are read in chunks of as many bytes.
const CHUNK_BYTES: i64 = 16;
const CHUNK: i64 = CHUNK_BYTES / 2;

/// The constants of a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Form {
    pub unit: TileUnit,
    pub dtype: DType,
    pub bias: Option<DType>,
    pub width: i64,
    sub_groups: i64,
}

impl Form {
    /// Queries of a work-group.
    pub(super) const fn queries(&self) -> i64 {
        self.sub_groups * TILE
    }

    /// Items of a work-group.
    pub(super) const fn items(&self) -> i64 {
        self.sub_groups * self.unit.kind.lanes()
    }

    /// Keys of a block.
    const fn keys(&self) -> i64 {
        if self.width >= LONG_ROW {
            KEYS_OF_LONG_ROWS
        } else {
            KEYS
        }
    }

    /// Bytes of local memory: queries, keys and values, and weights; an emulation needs more.
    fn local_bytes(&self) -> i64 {
        let keys = self.keys();
        let queries = self.queries();
        let blocks = (queries + 2 * keys) * self.width;
        let weights = if self.unit.kind == TileKind::Mma { 0 } else { queries * keys };
        let exchanged = (TILE + keys.max(self.width)) * TILE * self.sub_groups;
        2 * (blocks + weights + if self.unit.emulated == 0 { 0 } else { exchanged })
    }

    fn fits(&self, target: &Target) -> bool {
        let info = &target.device.info;
        self.items() <= info.max_work_group as i64 && self.local_bytes() <= info.local_mem as i64
    }

    fn spec(&self) -> Spec {
        let spec = Spec::generic()
            .define("TILE_KIND", self.unit.kind as i64)
            .define("TILE_EMULATED", self.unit.emulated)
            .define("SUB_GROUPS", self.sub_groups)
            .define("STEP_ROWS", self.keys())
            .define("WIDTH", self.width)
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
        target.program(Family::AttentionTile, Class::Float, &self.spec())
    }
}

/// Sub-groups of a work-group. More of them share a block of keys and values; few queries would leave them idle. Layouts
/// whose weights go through local memory need more of it for each.
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
/// See [`plan`].
pub(in crate::ops) fn forms(target: &Target) -> Result<Vec<forms::Form>> {
    let unit = if target.is_cpu() { None } else { TileUnit::of(&target.device.info)? };
    let Some(unit) = unit else { return Ok(Vec::new()) };
    let mut found = Vec::new();
    for (dtype, width) in [DType::F16, DType::BF16].into_iter().flat_map(|dtype| [64, 128].map(|width| (dtype, width)))
    {
        for bias in [None, Some(dtype)] {
            let form = Form { unit, dtype, bias, width, sub_groups: sub_groups(unit, i64::MAX) };
            if form.fits(target) {
                found.push((Class::Float, form.spec()));
            }
        }
    }
    Ok(found)
}

/// Returns true for calls on GPUs without dropout, of 16-bit floats in whole chunks, with at least as many queries as a
/// tile has.
pub(super) fn allows(target: &Target, inputs: &AttentionInputs<'_>, mode: &AttentionMode) -> bool {
    let AttentionInputs { query, key, value, bias } = inputs;
    let (queries, scale) = (query.size(2), mode.scale as f32);
    // Offsets within a block of scores have 32 bits.
    let bias_bytes = || MOST_ROWS * (bias.stride(2) + bias.stride(3)) * bias.dtype.size() as i64;
    !target.is_cpu()
        && matches!(query.dtype, DType::F16 | DType::BF16)
        && mode.keep_prob() >= 1.0
        // Scores are compared before they are scaled, so their order must stay; and -infinity times 0 is a NaN.
        && scale > 0.0
        && scale.is_finite()
        && queries >= TILE
        && queries.max(key.size(2)) <= i64::from(i32::MAX)
        && [query, key, value].into_iter().all(is_in_chunks)
        && (!bias.is_present()
            || matches!(bias.dtype, DType::F32 | DType::F16 | DType::BF16) && bias_bytes() <= i64::from(i32::MAX))
}

/// The form for a call. `None` if [`allows`] refuses the call, its rows are too wide, the device has no matrix
/// instructions, or the form has failed its check.
///
/// # Errors
/// [`crate::error::Error::Invalid`] for a wrong value of `TORCH_OPENCL_MATRIX`.
pub(super) fn plan(target: &Target, inputs: &AttentionInputs<'_>, mode: &AttentionMode) -> Result<Option<Form>> {
    if !allows(target, inputs, mode) {
        return Ok(None);
    }
    let AttentionInputs { query, value, bias, .. } = inputs;
    let Some(unit) = TileUnit::of(&target.device.info)? else { return Ok(None) };
    let widest = query.size(3).max(value.size(3));
    let Some(width) = WIDTHS.into_iter().find(|width| *width >= widest) else { return Ok(None) };
    let bias = bias.is_present().then_some(bias.dtype);
    let form = Form { unit, dtype: query.dtype, bias, width, sub_groups: sub_groups(unit, query.size(2)) };
    Ok((form.fits(target) && is_right(target, &form)).then_some(form))
}

/// Returns true if rows consist of whole chunks at multiples of their size.
pub(super) fn is_in_chunks(tensor: &Tensor<'_>) -> bool {
    let is_step = |dim: usize| tensor.size(dim) == 1 || tensor.stride(dim) % CHUNK == 0;
    tensor.address.is_multiple_of(CHUNK_BYTES as usize)
        && tensor.size(3) % CHUNK == 0
        && tensor.stride(3) == 1
        && (0..3).all(is_step)
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
    };
    let query = &inputs.query;
    let groups = query.size(0) * query.size(1) * div_ceil(query.size(2), form.queries());
    let (program, items) = (form.program(target)?, form.items() as usize);
    target.launch(&program, entry::ATTENTION_TILE, &args, &[groups as usize * items], Some(&[items]))
}
