//! Normalisation for C++.

use super::ffi::{Affine, BatchNormMode, NormHyper, NormRows, NormShape, Statistics, TensorArg};
use crate::error::Result;
use crate::ops::batch_norm::{self, Backward, Hyper};
use crate::ops::norm::{self, Rows, Shape};

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

impl<'a> Affine<'a> {
    fn tensors(&self) -> Result<norm::Affine<'a>> {
        Ok(norm::Affine { weight: self.weight.tensor()?, bias: self.bias.tensor()? })
    }
}

impl<'a> Statistics<'a> {
    fn tensors(&self) -> Result<norm::Statistics<'a>> {
        Ok(norm::Statistics { mean: self.mean.tensor()?, rstd: self.spread.tensor()? })
    }
}

pub fn norm_rows(
    input: &TensorArg<'_>,
    affine: Affine<'_>,
    output: &TensorArg<'_>,
    statistics: Statistics<'_>,
    rows: NormRows,
    eps: f64,
) -> Result<()> {
    let (affine, statistics) = (affine.tensors()?, statistics.tensors()?);
    norm::rows(&input.tensor()?, &affine, &output.tensor()?, &statistics, rows.rows(), eps)
}

pub fn norm_rows_backward(
    grad: &TensorArg<'_>,
    input: &TensorArg<'_>,
    weight: &TensorArg<'_>,
    statistics: Statistics<'_>,
    grad_input: &TensorArg<'_>,
    grad_affine: Affine<'_>,
    rows: NormRows,
) -> Result<()> {
    let (grad, input, weight) = (grad.tensor()?, input.tensor()?, weight.tensor()?);
    let (statistics, grad_affine) = (statistics.tensors()?, grad_affine.tensors()?);
    norm::rows_backward(&grad, &input, &weight, &statistics, &grad_input.tensor()?, &grad_affine, rows.rows())
}

pub fn batch_norm_training(
    input: &TensorArg<'_>,
    affine: Affine<'_>,
    output: &TensorArg<'_>,
    saved: Statistics<'_>,
    running: Statistics<'_>,
    shape: NormShape,
    hyper: NormHyper,
) -> Result<()> {
    let (affine, saved, running) = (affine.tensors()?, saved.tensors()?, running.tensors()?);
    let hyper = Hyper { momentum: hyper.momentum, eps: hyper.eps };
    batch_norm::training(&input.tensor()?, &affine, &output.tensor()?, &saved, &running, shape.shape(), hyper)
}

pub fn batch_norm_evaluation(
    input: &TensorArg<'_>,
    affine: Affine<'_>,
    output: &TensorArg<'_>,
    running: Statistics<'_>,
    shape: NormShape,
    eps: f64,
) -> Result<()> {
    let (affine, running) = (affine.tensors()?, running.tensors()?);
    batch_norm::evaluation(&input.tensor()?, &affine, &output.tensor()?, &running, shape.shape(), eps)
}

pub fn batch_norm_backward(
    grad: &TensorArg<'_>,
    input: &TensorArg<'_>,
    weight: &TensorArg<'_>,
    mode: BatchNormMode<'_>,
    grad_input: &TensorArg<'_>,
    grad_affine: Affine<'_>,
    shape: NormShape,
) -> Result<()> {
    let (grad, input, weight) = (grad.tensor()?, input.tensor()?, weight.tensor()?);
    let (statistics, grad_affine) = (mode.statistics.tensors()?, grad_affine.tensors()?);
    let mode = if mode.training { Backward::Training(statistics) } else { Backward::Evaluation(statistics, mode.eps) };
    batch_norm::backward(&grad, &input, &weight, mode, &grad_input.tensor()?, &grad_affine, shape.shape())
}
