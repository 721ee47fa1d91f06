//! Reductions and softmax for C++.

use super::ffi::{Operand, TensorArg};
use crate::error::Result;
use crate::ops;
use crate::ops::moments::Spread;
use crate::ops::reduce::ReduceOp;

pub fn reduce(op: i32, power: f64, shape: &[i64], output: Operand<'_>, input: Operand<'_>) -> Result<()> {
    ops::reduce::reduce(ReduceOp::from_code(op)?, power, shape, &output.operand()?, &input.operand()?)
}

/// The mean is left out where its address is 0.
pub fn variance(
    correction: f64,
    take_root: bool,
    shape: &[i64],
    variance: Operand<'_>,
    mean: Operand<'_>,
    input: Operand<'_>,
) -> Result<()> {
    let mean = (mean.address != 0).then(|| mean.operand()).transpose()?;
    let spread = Spread { correction, take_root };
    ops::moments::variance(spread, shape, &variance.operand()?, mean.as_ref(), &input.operand()?)
}

pub fn arg_reduce(
    values: &TensorArg<'_>,
    indices: &TensorArg<'_>,
    input: &TensorArg<'_>,
    dim: usize,
    largest: bool,
) -> Result<()> {
    ops::arg_reduce::extreme(&values.tensor()?, &indices.tensor()?, &input.tensor()?, dim, largest)
}

pub fn softmax(input: &TensorArg<'_>, output: &TensorArg<'_>, dim: usize, log: bool) -> Result<()> {
    ops::softmax::forward(&input.tensor()?, &output.tensor()?, dim, log)
}

pub fn softmax_backward(
    grad: &TensorArg<'_>,
    output: &TensorArg<'_>,
    grad_input: &TensorArg<'_>,
    dim: usize,
    log: bool,
) -> Result<()> {
    ops::softmax::backward(&grad.tensor()?, &output.tensor()?, &grad_input.tensor()?, dim, log)
}
