//! Attention with few queries, split over the keys; `mod.rs` describes the tensors.

use super::tile_form::TILE;
use super::{arguments, encode, is_in_vectors, AttentionInputs, AttentionMode, LISTED_DTYPES, LISTED_WIDTHS};
use crate::error::Result;
use crate::kernels::{entry, Class, DType, Family, Spec};
use crate::ops::core::forms;
use crate::ops::core::geometry::{filling_lanes, Geometry};
use crate::ops::core::space::div_ceil;
use crate::ops::core::target::ITEM_GROUP;
use crate::ops::{Target, Tensor};

/// Maximum number of queries: with more, blocks of queries share the reads of keys and values. On a CPU, 1, 2, 4 and 8
/// queries of 12 heads of width 64 and 1024 keys take 0.33, 0.45, 0.6 and 1.1 of the time that blocks take (PoCL, two
/// cores; `make bench-constants CASES=ATTENTION_FEW_QUERIES` repeats some of it).
const FEW: i64 = measured!("ATTENTION_FEW_QUERIES", 4);
/// Maximum number of queries on GPUs. It is not measured; with more queries, attention can use matrix instructions.
const FEW_ON_GPUS: i64 = TILE - 1;
/// Keys of a block, and the fewest keys of a run.
const KEYS: i64 = 64;
/// Most rows of a group, which share the reads of keys and values.
const MOST_ROWS: i64 = 4;
/// Most items of a GPU that share a key's row: with 16 bytes each, they read 256 that lie side by side.
const MOST_KEY_ITEMS: i64 = 16;
/// Sums that an item keeps in registers: elements on GPUs, where Intel's have fewer registers, and vectors on CPUs.
const SUMS: i64 = 32;
const SUMS_ON_INTEL: i64 = 16;
const VECTORS_OF_SUMS: i64 = 16;
/// Occupancy target: work-groups for each compute unit.
const OCCUPANCY: i64 = 4;

/// The constants of a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Form {
    dtype: DType,
    bias: Option<DType>,
    /// Items of a group.
    group: i64,
    lanes: i64,
    /// Elements of the longest row, in whole vectors.
    width: i64,
    rows: i64,
    key_items: i64,
    is_aligned: bool,
}

impl Form {
    /// The form for rows of up to `widest` elements, if `sharing` rows read the same keys. `None` if rows do not fit
    /// registers.
    fn new(target: &Target, dtype: DType, bias: Option<DType>, widest: i64, sharing: i64) -> Option<Self> {
        let lanes = Geometry::of(target, dtype.class()).lanes;
        let (group, lanes, sums) = if target.is_cpu() {
            (1, lanes as i64, VECTORS_OF_SUMS * lanes as i64)
        } else {
            let sums = if target.device.info.vendor.starts_with("Intel") { SUMS_ON_INTEL } else { SUMS };
            (ITEM_GROUP as i64, filling_lanes(lanes, dtype.size()) as i64, sums)
        };
        let parts = div_ceil(widest.max(1), lanes);
        let key_items = if group == 1 { 1 } else { power_of_two(parts).min(MOST_KEY_ITEMS) };
        let own = div_ceil(parts, key_items) * lanes;
        let rows = [MOST_ROWS, 2, 1].into_iter().find(|rows| own * rows <= sums)?;
        let rows = power_of_two(sharing).min(rows);
        Some(Self { dtype, bias, group, lanes, width: parts * lanes, rows, key_items, is_aligned: false })
    }

    /// Built for its dtypes, like the other attention kernels.
    fn spec(&self) -> Spec {
        let spec = if self.is_aligned { Spec::generic().define("SPEC_ALIGNED", 1) } else { Spec::generic() };
        let spec = spec
            .define("LSIZE", self.group)
            .define("VEC", self.lanes)
            .define("WIDTH", self.width)
            .define("ROWS", self.rows)
            .define("KEY_ITEMS", self.key_items)
            .define("KEYS", KEYS)
            .define("SPEC_DTYPE0", i64::from(self.dtype.code()))
            .define("BIASED", i64::from(self.bias.is_some()));
        self.bias.into_iter().fold(spec, |spec, bias| spec.define("SPEC_DTYPE1", i64::from(bias.code())))
    }
}

fn power_of_two(count: i64) -> i64 {
    (count.max(1) as u64).next_power_of_two() as i64
}

/// The form for a call; `None` if the kernels do not support it. They support few queries in float32 or a 16-bit dtype,
/// without dropout, and rows whose sums fit registers. float64 is rare, and with 16 or more elements per row PoCL
/// compiles for minutes.
fn plan(target: &Target, inputs: &AttentionInputs<'_>, mode: &AttentionMode, out: &Tensor<'_>) -> Option<Form> {
    let AttentionInputs { query, key, value, bias } = inputs;
    let few = if target.is_cpu() { FEW } else { FEW_ON_GPUS };
    if query.class() != Class::Float || query.size(2) > few || mode.keep_prob() < 1.0 {
        return None;
    }
    let sharing = query.size(1) / key.size(1).max(1) * query.size(2);
    let bias_dtype = bias.is_present().then_some(bias.dtype);
    let form = Form::new(target, query.dtype, bias_dtype, query.size(3).max(value.size(3)), sharing)?;
    let are_in_vectors = || [query, key, value, out].iter().all(|tensor| is_in_vectors(tensor, form.lanes));
    let is_aligned = !target.is_cpu() && query.size(3) == value.size(3) && are_in_vectors();
    Some(Form { is_aligned, ..form })
}

/// The usual programs, of one head and of several that share keys, without and with a bias of the same dtype.
pub(in crate::ops) fn forms(target: &Target) -> Vec<forms::Form> {
    let mut found = Vec::new();
    for (width, dtype) in LISTED_WIDTHS.into_iter().flat_map(|width| LISTED_DTYPES.map(|dtype| (width, dtype))) {
        for (bias, sharing) in [(None, 1), (None, MOST_ROWS), (Some(dtype), 1), (Some(dtype), MOST_ROWS)] {
            let form = Form::new(target, dtype, bias, width, sharing);
            let form = form.map(|form| Form { is_aligned: !target.is_cpu(), ..form });
            found.extend(form.map(|form| (Class::Float, form.spec())));
        }
    }
    found
}

/// Computes [`super::attention`] if the kernels support the call; returns false, and computes nothing, if not.
///
/// # Errors
/// Errors reported by the allocator or the driver.
pub fn forward(
    target: &Target,
    inputs: &AttentionInputs<'_>,
    mode: &AttentionMode,
    out: &Tensor<'_>,
    logsumexp: &Tensor<'_>,
) -> Result<bool> {
    let Some(form) = plan(target, inputs, mode, out) else { return Ok(false) };
    let (query, class) = (&inputs.query, inputs.query.class());
    let program = target.program(Family::AttentionQuery, class, &form.spec())?;

    let key_heads = query.size(0) * inputs.key.size(1);
    let tasks = query.size(0) * query.size(1) * query.size(2);
    let groups = key_heads * div_ceil(tasks / key_heads.max(1), form.rows);
    // Query i sees i + 1 keys with a causal mask.
    let keys = if mode.is_causal { inputs.key.size(2).min(query.size(2)) } else { inputs.key.size(2) };
    let blocks = div_ceil(keys, KEYS).max(1);
    let wanted = target.compute_units() as i64 * OCCUPANCY;
    let run = div_ceil(blocks, div_ceil(wanted, groups).clamp(1, blocks)) * KEYS;
    let runs = div_ceil(keys, run).max(1);

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
        logsumexp: part_totals,
        runs,
        run,
        out_step: step,
    };
    let local = form.group as usize;
    let global = [(groups * runs).max(0) as usize * local];
    target.launch(&program, entry::ATTENTION_QUERY, &args, &global, Some(&[local]))?;
    if memory.is_none() {
        return Ok(true);
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
    let items = Geometry::of(target, class).items_for(tasks * div_ceil(value_head_dim, form.lanes));
    target.launch(&program, entry::ATTENTION_JOIN, &args, &items, None)?;
    Ok(true)
}
