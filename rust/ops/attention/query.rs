//! Attention of few queries, which is split over the keys; `mod.rs` describes the tensors.

use super::{arguments, encode, AttentionInputs, AttentionMode};
use crate::error::Result;
use crate::kernels::{entry, Family, Spec};
use crate::ops::core::geometry::Geometry;
use crate::ops::core::space::div_ceil;
use crate::ops::core::target::ITEM_GROUP;
use crate::ops::{Target, Tensor};

/// Above so many queries blocks of them share what is read of keys and values: 1, 2 and 4 queries of 12 heads of width
/// 64 and 1024 keys take 266, 232 and 430 us here, about 385 us each in blocks (PoCL, two cores;
/// `make bench CASES="'1x12x1x64 *'"` with other values of this constant).
const FEW: i64 = measured!("ATTENTION_FEW_QUERIES", 2);
/// Keys of a block, and the fewest of a run.
const KEYS: i64 = 64;
/// Vectors of a row that an item keeps in registers.
const MOST_PARTS: i64 = 16;
/// Occupancy target: work-groups for each compute unit.
const OCCUPANCY: i64 = 4;

/// Returns true if the kernels take a call: few queries, without dropout, and rows that fit registers.
pub fn takes(target: &Target, inputs: &AttentionInputs<'_>, mode: &AttentionMode) -> bool {
    let lanes = Geometry::of(target, inputs.query.class()).lanes as i64;
    inputs.query.size(2) <= FEW && mode.keep_prob() >= 1.0 && widest(inputs) <= MOST_PARTS * lanes
}

fn widest(inputs: &AttentionInputs<'_>) -> i64 {
    inputs.query.size(3).max(inputs.value.size(3)).max(1)
}

/// As [`super::attention`], of which this is a part.
///
/// # Errors
/// As the allocator and the driver report.
pub fn forward(
    target: &Target,
    inputs: &AttentionInputs<'_>,
    mode: &AttentionMode,
    out: &Tensor<'_>,
    logsumexp: &Tensor<'_>,
) -> Result<()> {
    let (query, class) = (&inputs.query, inputs.query.class());
    let geometry = Geometry::of(target, class);
    let lanes = geometry.lanes as i64;
    let group = if target.is_cpu() { 1 } else { ITEM_GROUP };
    let is_biased = inputs.bias.is_present();
    // Built for its dtypes, as the other kernels of attention.
    let mut spec = Spec::generic()
        .define("LSIZE", group as i64)
        .define("VEC", lanes)
        .define("WIDTH", div_ceil(widest(inputs), lanes) * lanes)
        .define("KEYS", KEYS)
        .define("SPEC_DTYPE0", i64::from(query.dtype.code()))
        .define("BIASED", i64::from(is_biased));
    if is_biased {
        spec = spec.define("SPEC_DTYPE1", i64::from(inputs.bias.dtype.code()));
    }
    let program = target.program(Family::AttentionQuery, class, &spec)?;

    let tasks = query.size(0) * query.size(1) * query.size(2);
    let blocks = div_ceil(inputs.key.size(2), KEYS).max(1);
    let wanted = target.compute_units() as i64 * OCCUPANCY;
    let run = div_ceil(blocks, div_ceil(wanted, tasks).clamp(1, blocks)) * KEYS;
    let runs = div_ceil(inputs.key.size(2), run).max(1);

    // Partial results are dense.
    let [heads, queries, value_head_dim] = [query.size(1), query.size(2), inputs.value.size(3)];
    let dense = [heads * queries * value_head_dim, queries * value_head_dim, value_head_dim, 1];
    let step = tasks * value_head_dim * class.size() as i64;
    let logsumexp_step = tasks * class.size() as i64;
    let memory = if runs > 1 { Some(target.workspace((runs * (step + logsumexp_step)) as usize)?) } else { None };
    let (results, logsumexp_parts) = match &memory {
        Some(memory) => {
            let results = Tensor { address: memory.address, dtype: class.storage(), sizes: out.sizes, strides: &dense };
            (results, target.memory(memory.address + (runs * step) as usize)?)
        }
        None => (*out, target.tensor(logsumexp)?),
    };
    let attention = encode(inputs, mode, &results, None);
    let args = entry::AttentionQuery {
        attention: arguments(target, inputs, mode, attention)?,
        out: target.tensor(&results)?,
        out_dtype: results.dtype,
        logsumexp: logsumexp_parts,
        runs,
        run,
        out_step: step,
        logsumexp_step,
    };
    let global = [(tasks * runs).max(0) as usize * group];
    target.launch(&program, entry::ATTENTION_QUERY, &args, &global, Some(&[group]))?;
    if memory.is_none() {
        return Ok(());
    }
    let joined = encode(inputs, mode, out, None);
    let args = entry::AttentionJoin {
        p: joined,
        parts: target.tensor(&results)?,
        part_logsumexp: logsumexp_parts,
        dtype0: query.dtype,
        out: target.tensor(out)?,
        logsumexp: target.tensor(logsumexp)?,
        runs,
        tasks,
    };
    target.launch(&program, entry::ATTENTION_JOIN, &args, &geometry.items_for(tasks), None)
}
