//! Attention for C++.

use super::ffi::TensorArg;
use super::fused::ffi::{AttentionGradients, AttentionInputs, AttentionMode};
use crate::error::Result;
use crate::kernels::DType;
use crate::ops::attention::{self, Gradients, Inputs, Mode};

impl<'a> AttentionInputs<'a> {
    fn tensors(&self) -> Result<Inputs<'a>> {
        Ok(Inputs {
            query: self.query.tensor()?,
            key: self.key.tensor()?,
            value: self.value.tensor()?,
            bias: self.bias.tensor()?,
        })
    }
}

impl AttentionMode {
    fn mode(&self) -> Mode {
        Mode { scale: self.scale, causal: self.causal, keep: self.keep, stream: self.stream.into() }
    }
}

pub fn attention_fits(device: i32, dtype: i32, width: i64, value_width: i64) -> Result<bool> {
    attention::fits(device, DType::from_code(dtype)?, width, value_width)
}

pub fn attention_counters(batch: i64, heads: i64, queries: i64, keys: i64) -> u64 {
    attention::counters(batch, heads, queries, keys)
}

pub fn attention(
    inputs: AttentionInputs<'_>,
    mode: AttentionMode,
    out: &TensorArg<'_>,
    log_sums: &TensorArg<'_>,
) -> Result<()> {
    attention::forward(&inputs.tensors()?, &mode.mode(), &out.tensor()?, &log_sums.tensor()?)
}

pub fn attention_backward(
    inputs: AttentionInputs<'_>,
    mode: AttentionMode,
    out: &TensorArg<'_>,
    log_sums: &TensorArg<'_>,
    grad_out: &TensorArg<'_>,
    gradients: AttentionGradients<'_>,
) -> Result<()> {
    let gradients = Gradients {
        query: gradients.query.tensor()?,
        key: gradients.key.tensor()?,
        value: gradients.value.tensor()?,
        bias: gradients.bias.tensor()?,
    };
    let (out, log_sums, grad_out) = (out.tensor()?, log_sums.tensor()?, grad_out.tensor()?);
    attention::backward(&inputs.tensors()?, &mode.mode(), &out, &log_sums, &grad_out, &gradients)
}
