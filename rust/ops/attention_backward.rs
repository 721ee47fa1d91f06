//! The gradients of scaled dot-product attention.

use super::attention::{encode, AttentionGradients, AttentionInputs, AttentionMode, Call, Pass};
use super::geometry::{real, Geometry};
use super::space::div_ceil;
use super::{Target, Tensor, Workspace};
use crate::cl::Arg;
use crate::error::Result;

#[cxx::bridge(namespace = "torch_opencl::bridge")]
mod ffi {
    unsafe extern "C++" {
        include!("torch_opencl/rust/abi.rs.h");
        include!("torch_opencl/rust/ops/attention.rs.h");
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
            log_sums: &Tensor,
            grad_out: &Tensor,
            gradients: &AttentionGradients,
        ) -> Result<()>;
    }
}

/// Runs of keys for each compute unit that keep a device busy.
const RUNS_PER_UNIT: i64 = 4;

/// Where the gradient of the queries is summed: in one place for each run of keys.
struct QuerySums {
    runs: i64,
    /// Keys of a run.
    run: i64,
    /// Memory other than that of the gradient itself.
    memory: Option<Workspace>,
    /// Bytes from one run's sums to the next.
    step: i64,
}

impl QuerySums {
    fn new(call: &Call, inputs: &AttentionInputs<'_>, mode: &AttentionMode, gradient: &Tensor<'_>) -> Result<Self> {
        let blocks = div_ceil(inputs.key.size(2), call.plan.block);
        let busy = call.target.compute_units() as i64 * RUNS_PER_UNIT;
        let blocks_of_run = div_ceil(blocks, div_ceil(busy, inputs.key.size(0) * inputs.key.size(1)).clamp(1, blocks));
        let runs = div_ceil(blocks, blocks_of_run);
        let step = gradient.numel() * call.class.size() as i64;
        let is_direct = runs == 1 && gradient.dtype == call.class.storage();
        let memory = if is_direct { None } else { Some(call.target.workspace((runs * step) as usize)?) };
        if let Some(memory) = memory.as_ref().filter(|_| mode.causal && runs > 1) {
            // The first queries see nothing of the later runs.
            call.target.fill(memory.address, 0, (runs * step) as usize)?;
        }
        Ok(Self { runs, run: blocks_of_run * call.plan.block, memory, step })
    }
}

/// Writes the gradients of the inputs, from that of `out` and from what [`attention`](super::attention::attention) has written.
///
/// # Errors
/// As [`attention`](super::attention::attention).
pub fn attention_backward(
    inputs: &AttentionInputs<'_>,
    mode: &AttentionMode,
    out: &Tensor<'_>,
    log_sums: &Tensor<'_>,
    grad_out: &Tensor<'_>,
    gradients: &AttentionGradients<'_>,
) -> Result<()> {
    if out.numel() == 0 || inputs.key.numel() == 0 {
        return Ok(());
    }
    let call = Call::new(Pass::Backward, inputs, mode, Target::of(out.address)?)?;
    let (target, query, dtype) = (&call.target, &inputs.query, Arg::Int(inputs.query.dtype.code()));
    let sums = QuerySums::new(&call, inputs, mode, &gradients.query)?;
    // Sums that are not the gradient itself are dense.
    let [batch, heads, length, width] = [0, 1, 2, 3].map(|dim| query.size(dim));
    let dense = [heads * length * width, length * width, width, 1];
    let sums_in = match &sums.memory {
        Some(memory) => {
            Tensor { address: memory.address, dtype: call.class.storage(), sizes: query.sizes, strides: &dense }
        }
        None => gradients.query,
    };
    let attention = encode(inputs, mode, out, Some((&AttentionGradients { query: sums_in, ..*gradients }, grad_out)));

    let count = batch * heads * length;
    let delta = target.workspace(count as usize * call.class.size())?;
    let delta = target.memory(delta.address)?;
    let args = [Arg::of(&attention), target.tensor(grad_out)?, target.tensor(out)?, dtype, delta, Arg::Long(count)];
    let items = Geometry::of(target, call.class).items_for(count);
    target.launch(&call.program, "attention_delta", &args, &items, None)?;

    let [seed, offset, keep] = call.dropout(mode);
    let args = [
        Arg::of(&attention),
        target.tensor(query)?,
        target.tensor(&inputs.key)?,
        target.tensor(&inputs.value)?,
        target.tensor(grad_out)?,
        dtype,
        target.tensor(&inputs.bias)?,
        Arg::Int(inputs.bias.dtype.code()),
        target.tensor(log_sums)?,
        delta,
        target.tensor(&sums_in)?,
        Arg::Long(sums.step),
        target.tensor(&gradients.key)?,
        target.tensor(&gradients.value)?,
        target.tensor(&gradients.bias)?,
        Arg::Long(sums.runs),
        Arg::Long(sums.run),
        real(call.class, mode.scale),
        seed,
        offset,
        keep,
    ];
    let (global, local) = call.groups(batch * inputs.key.size(1) * sums.runs);
    target.launch(&call.program, "attention_backward", &args, &global, Some(&local))?;

    if sums.memory.is_none() {
        return Ok(());
    }
    let finished = encode(inputs, mode, out, Some((gradients, grad_out)));
    let args = [
        Arg::of(&finished),
        target.tensor(&sums_in)?,
        Arg::Long(sums.runs),
        Arg::Long(sums.step),
        target.tensor(&gradients.query)?,
        dtype,
        Arg::Long(count),
    ];
    target.launch(&call.program, "attention_finish", &args, &items, None)
}
