//! Attention with few queries, split over the keys; `mod.rs` describes the tensors.

use super::{arguments, encode, AttentionInputs, AttentionMode, LISTED_DTYPES, LISTED_WIDTHS};
use crate::error::Result;
use crate::kernels::{entry, Class, DType, Family, Spec};
use crate::ops::core::forms::Form;
use crate::ops::core::geometry::Geometry;
use crate::ops::core::space::div_ceil;
use crate::ops::core::target::ITEM_GROUP;
use crate::ops::{Target, Tensor};

/// Maximum number of queries: with more, blocks of queries share the reads of keys and values. 1, 2 and 4 queries of 12
/// heads of width 64 and 1024 keys take 266, 232 and 430 us here, and about 385 us each in blocks (PoCL, two cores;
/// `make bench CASES="'1x12x1x64 *'"` with other values of this constant).
const FEW: i64 = measured!("ATTENTION_FEW_QUERIES", 2);
/// Keys of a block, and the fewest keys of a run.
const KEYS: i64 = 64;
/// Vectors of a row that an item keeps in registers.
const MOST_PARTS: i64 = 16;
/// Occupancy target: work-groups for each compute unit.
const OCCUPANCY: i64 = 4;

/// Returns true if the kernels support a call: few queries in float32 or a 16-bit dtype, without dropout, and rows that
/// fit registers. float64 is rare, and with 16 or more elements per row PoCL compiles for minutes.
pub fn takes(target: &Target, inputs: &AttentionInputs<'_>, mode: &AttentionMode) -> bool {
    let (class, queries) = (inputs.query.class(), inputs.query.size(2));
    let lanes = Geometry::of(target, class).lanes as i64;
    class == Class::Float && queries <= FEW && mode.keep_prob() >= 1.0 && widest(inputs) <= MOST_PARTS * lanes
}

fn widest(inputs: &AttentionInputs<'_>) -> i64 {
    inputs.query.size(3).max(inputs.value.size(3)).max(1)
}

fn group(target: &Target) -> usize {
    if target.is_cpu() {
        1
    } else {
        ITEM_GROUP
    }
}

/// Built for its dtypes, like the other attention kernels.
fn spec(target: &Target, dtype: DType, bias: Option<DType>, widest: i64) -> Spec {
    let lanes = Geometry::of(target, dtype.class()).lanes as i64;
    let spec = Spec::generic()
        .define("LSIZE", group(target) as i64)
        .define("VEC", lanes)
        .define("WIDTH", div_ceil(widest, lanes) * lanes)
        .define("KEYS", KEYS)
        .define("SPEC_DTYPE0", i64::from(dtype.code()))
        .define("BIASED", i64::from(bias.is_some()));
    bias.into_iter().fold(spec, |spec, bias| spec.define("SPEC_DTYPE1", i64::from(bias.code())))
}

/// The usual programs, without and with a bias of the same dtype.
pub(in crate::ops) fn forms(target: &Target) -> Vec<Form> {
    let lanes = Geometry::of(target, Class::Float).lanes as i64;
    let widths = LISTED_WIDTHS.into_iter().filter(|width| *width <= MOST_PARTS * lanes);
    let dtypes =
        |width| LISTED_DTYPES.into_iter().flat_map(move |dtype| [(width, dtype, None), (width, dtype, Some(dtype))]);
    let form = |(width, dtype, bias)| (Class::Float, spec(target, dtype, bias, width));
    widths.flat_map(dtypes).map(form).collect()
}

/// Computes [`super::attention`] for the calls that [`takes`] accepts.
///
/// # Errors
/// Errors reported by the allocator or the driver.
pub fn forward(
    target: &Target,
    inputs: &AttentionInputs<'_>,
    mode: &AttentionMode,
    out: &Tensor<'_>,
    logsumexp: &Tensor<'_>,
) -> Result<()> {
    let (query, class) = (&inputs.query, inputs.query.class());
    let geometry = Geometry::of(target, class);
    let group = group(target);
    let bias = inputs.bias.is_present().then_some(inputs.bias.dtype);
    let spec = spec(target, query.dtype, bias, widest(inputs));
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
    let totals = 2 * tasks * class.size() as i64;
    let memory = if runs > 1 { Some(target.workspace((runs * (step + totals)) as usize)?) } else { None };
    let (results, part_totals) = match &memory {
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
        logsumexp: part_totals,
        runs,
        run,
        out_step: step,
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
        part_totals,
        dtype0: query.dtype,
        out: target.tensor(out)?,
        logsumexp: target.tensor(logsumexp)?,
        runs,
        tasks,
    };
    target.launch(&program, entry::ATTENTION_JOIN, &args, &geometry.items_for(tasks), None)
}
