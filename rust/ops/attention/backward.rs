//! The gradients of scaled dot-product attention.

use super::tile_check::backward_is_right;
use super::{
    arguments, dropout, encode, tile_backward, AttentionGradients, AttentionInputs, AttentionLaunch, AttentionMode,
    Pass,
};
use crate::error::Result;
use crate::kernels::entry;
use crate::ops::core::geometry::Geometry;
use crate::ops::core::space::div_ceil;
use crate::ops::{Target, Tensor, Workspace};

#[cxx::bridge(namespace = "torch_opencl::bridge")]
mod ffi {
    unsafe extern "C++" {
        include!("torch_opencl/rust/abi.rs.h");
        include!("torch_opencl/rust/ops/attention/mod.rs.h");
        type AttentionGradients<'a> = super::AttentionGradients<'a>;
        type AttentionInputs<'a> = super::AttentionInputs<'a>;
        type AttentionMode = super::AttentionMode;
        type Tensor<'a> = crate::abi::Tensor<'a>;
    }

    extern "Rust" {
        fn attention_backward(
            inputs: &AttentionInputs,
            mode: &AttentionMode,
            out: &Tensor,
            logsumexp: &Tensor,
            grad_out: &Tensor,
            gradients: &AttentionGradients,
        ) -> Result<()>;
    }
}

/// Occupancy target: work-groups for each compute unit.
const OCCUPANCY: i64 = 4;
/// Items of a GPU that share a row; as in `attention_backward.cl`.
const ROW_ITEMS: i64 = 8;

/// Memory for the sums of the queries' gradient, separate for each run of keys.
struct QuerySums {
    runs: i64,
    /// Keys of a run.
    run: i64,
    /// The sums' memory; `None` if they are the gradient itself.
    memory: Option<Workspace>,
    /// Bytes from one run's sums to the next.
    step: i64,
}

impl QuerySums {
    fn new(
        launch: &AttentionLaunch,
        inputs: &AttentionInputs<'_>,
        mode: &AttentionMode,
        gradient: &Tensor<'_>,
    ) -> Result<Self> {
        let blocks = div_ceil(inputs.key.size(2), launch.block_sizes.block);
        let wanted = launch.target.compute_units() as i64 * OCCUPANCY;
        let blocks_of_run =
            div_ceil(blocks, div_ceil(wanted, inputs.key.size(0) * inputs.key.size(1)).clamp(1, blocks));
        let runs = div_ceil(blocks, blocks_of_run);
        let step = gradient.numel() * launch.class.size() as i64;
        let is_direct = runs == 1 && gradient.dtype == launch.class.storage();
        let memory = if is_direct { None } else { Some(launch.target.workspace((runs * step) as usize)?) };
        if let Some(memory) = memory.as_ref().filter(|_| mode.is_causal && runs > 1) {
            // The first queries see no keys of the later runs.
            launch.target.fill(memory.address, 0, (runs * step) as usize)?;
        }
        Ok(Self { runs, run: blocks_of_run * launch.block_sizes.block, memory, step })
    }
}

/// Writes the gradients of the inputs, from the gradient of `out` and the outputs of [`attention`](super::attention).
///
/// # Errors
/// See [`attention`](super::attention).
pub fn attention_backward(
    inputs: &AttentionInputs<'_>,
    mode: &AttentionMode,
    out: &Tensor<'_>,
    logsumexp: &Tensor<'_>,
    grad_out: &Tensor<'_>,
    gradients: &AttentionGradients<'_>,
) -> Result<()> {
    if out.numel() == 0 || inputs.key.numel() == 0 {
        return Ok(());
    }
    let AttentionGradients { query, key, value, bias } = *gradients;
    let others = [*out, *grad_out, query, key, value, bias];
    let launch = AttentionLaunch::new(Pass::Backward, inputs, mode, &others, Target::of(out.address)?)?;
    let (target, query, dtype) = (&launch.target, &inputs.query, inputs.query.dtype);
    let [batch, heads, length, head_dim] = [0, 1, 2, 3].map(|dim| query.size(dim));
    let count = batch * heads * length;
    let geometry = Geometry::of(target, launch.class);
    let row_terms = target.workspace(3 * count as usize * launch.class.size())?;
    let row_terms = target.memory(row_terms.address)?;
    let args = entry::AttentionDelta {
        attention: arguments(target, inputs, mode, encode(inputs, mode, out, Some((gradients, grad_out))))?,
        grad_out: target.tensor(grad_out)?,
        out: target.tensor(out)?,
        logsumexp: target.tensor(logsumexp)?,
        row_terms,
        count,
    };
    let group_rows = div_ceil(launch.block_sizes.group as i64, ROW_ITEMS);
    let (global, local) = launch.groups(div_ceil(count, group_rows).min(geometry.groups as i64));
    target.launch(&launch.program, entry::ATTENTION_DELTA, &args, &global, Some(&local))?;
    let forms = tile_backward::plan(target, inputs, mode, grad_out, gradients)?;
    if let Some(forms) = forms.filter(|forms| forms.iter().all(|form| backward_is_right(target, form))) {
        return tile_backward::backward(target, &forms, inputs, mode, [out, grad_out], row_terms, gradients);
    }

    let sums = QuerySums::new(&launch, inputs, mode, &gradients.query)?;
    // Sums that are not the gradient itself are dense.
    let dense = [heads * length * head_dim, length * head_dim, head_dim, 1];
    let sums_in = match &sums.memory {
        Some(memory) => {
            Tensor { address: memory.address, dtype: launch.class.storage(), sizes: query.sizes, strides: &dense }
        }
        None => gradients.query,
    };
    let attention = encode(inputs, mode, out, Some((&AttentionGradients { query: sums_in, ..*gradients }, grad_out)));
    let args = entry::AttentionBackward {
        attention: arguments(target, inputs, mode, attention)?,
        grad_out: target.tensor(grad_out)?,
        row_terms,
        sums: target.tensor(&sums_in)?,
        sums_step: sums.step,
        grad_key: target.tensor(&gradients.key)?,
        grad_value: target.tensor(&gradients.value)?,
        grad_bias: target.tensor(&gradients.bias)?,
        runs: sums.runs,
        run: sums.run,
        dropout: dropout(target, launch.class, mode),
    };
    let (global, local) = launch.groups(batch * inputs.key.size(1) * sums.runs);
    target.launch(&launch.program, entry::ATTENTION_BACKWARD, &args, &global, Some(&local))?;

    if sums.memory.is_none() {
        return Ok(());
    }
    let finished = encode(inputs, mode, out, Some((gradients, grad_out)));
    let args = entry::AttentionFinish {
        p: finished,
        sums: target.tensor(&sums_in)?,
        runs: sums.runs,
        sums_step: sums.step,
        grad_query: target.tensor(&gradients.query)?,
        dtype0: dtype,
        count,
    };
    let items = geometry.items_for(count * div_ceil(head_dim, launch.block_sizes.lanes));
    target.launch(&launch.program, entry::ATTENTION_FINISH, &args, &items, None)
}
