//! Normalisation for C++.

use super::ffi::{NormRows, NormShape, TensorArg};
use crate::error::Result;
use crate::ops::batch_norm::{self, Backward, Hyper};
use crate::ops::norm::{self, Affine, Rows, Shape, Statistics};

impl NormRows {
    fn rows(&self) -> Rows {
        Rows { count: self.count, length: self.length, groups: self.groups, inner: self.inner }
    }
}

impl NormShape {
    fn shape(&self) -> Shape {
        Shape { outer: self.outer, channels: self.channels, inner: self.inner }
    }
}

fn affine<'a>(weight: &TensorArg<'a>, bias: &TensorArg<'a>) -> Result<Affine<'a>> {
    Ok(Affine { weight: weight.tensor()?, bias: bias.tensor()? })
}

fn statistics<'a>(mean: &TensorArg<'a>, rstd: &TensorArg<'a>) -> Result<Statistics<'a>> {
    Ok(Statistics { mean: mean.tensor()?, rstd: rstd.tensor()? })
}

pub fn norm_rows(
    input: &TensorArg<'_>,
    weight: &TensorArg<'_>,
    bias: &TensorArg<'_>,
    output: &TensorArg<'_>,
    mean: &TensorArg<'_>,
    rstd: &TensorArg<'_>,
    rows: NormRows,
    eps: f64,
) -> Result<()> {
    let (affine, statistics) = (affine(weight, bias)?, statistics(mean, rstd)?);
    norm::rows(&input.tensor()?, &affine, &output.tensor()?, &statistics, rows.rows(), eps)
}

pub fn norm_rows_backward(
    grad: &TensorArg<'_>,
    input: &TensorArg<'_>,
    weight: &TensorArg<'_>,
    mean: &TensorArg<'_>,
    rstd: &TensorArg<'_>,
    grad_input: &TensorArg<'_>,
    grad_weight: &TensorArg<'_>,
    grad_bias: &TensorArg<'_>,
    rows: NormRows,
) -> Result<()> {
    let (grad, input, weight) = (grad.tensor()?, input.tensor()?, weight.tensor()?);
    let (statistics, grad_affine) = (statistics(mean, rstd)?, affine(grad_weight, grad_bias)?);
    norm::rows_backward(&grad, &input, &weight, &statistics, &grad_input.tensor()?, &grad_affine, rows.rows())
}

pub fn batch_norm_training(
    input: &TensorArg<'_>,
    weight: &TensorArg<'_>,
    bias: &TensorArg<'_>,
    output: &TensorArg<'_>,
    save_mean: &TensorArg<'_>,
    save_rstd: &TensorArg<'_>,
    running_mean: &TensorArg<'_>,
    running_var: &TensorArg<'_>,
    shape: NormShape,
    momentum: f64,
    eps: f64,
) -> Result<()> {
    let (saved, running) = (statistics(save_mean, save_rstd)?, statistics(running_mean, running_var)?);
    let (affine, hyper) = (affine(weight, bias)?, Hyper { momentum, eps });
    batch_norm::training(&input.tensor()?, &affine, &output.tensor()?, &saved, &running, shape.shape(), hyper)
}

pub fn batch_norm_evaluation(
    input: &TensorArg<'_>,
    weight: &TensorArg<'_>,
    bias: &TensorArg<'_>,
    output: &TensorArg<'_>,
    mean: &TensorArg<'_>,
    variance: &TensorArg<'_>,
    shape: NormShape,
    eps: f64,
) -> Result<()> {
    let (affine, statistics) = (affine(weight, bias)?, statistics(mean, variance)?);
    batch_norm::evaluation(&input.tensor()?, &affine, &output.tensor()?, &statistics, shape.shape(), eps)
}

pub fn batch_norm_backward(
    grad: &TensorArg<'_>,
    input: &TensorArg<'_>,
    weight: &TensorArg<'_>,
    mean: &TensorArg<'_>,
    spread: &TensorArg<'_>,
    grad_input: &TensorArg<'_>,
    grad_weight: &TensorArg<'_>,
    grad_bias: &TensorArg<'_>,
    shape: NormShape,
    training: bool,
    eps: f64,
) -> Result<()> {
    let (grad, input, weight) = (grad.tensor()?, input.tensor()?, weight.tensor()?);
    let (statistics, grad_affine) = (statistics(mean, spread)?, affine(grad_weight, grad_bias)?);
    let mode = if training { Backward::Training(statistics) } else { Backward::Evaluation(statistics, eps) };
    batch_norm::backward(&grad, &input, &weight, mode, &grad_input.tensor()?, &grad_affine, shape.shape())
}
