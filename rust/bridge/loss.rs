//! Losses for C++.

use super::ffi::{Classes, TensorArg};
use crate::error::Result;
use crate::ops;
use crate::ops::loss::Reduction;

impl<'a> Classes<'a> {
    fn classes(&self) -> Result<ops::loss::Classes<'a>> {
        let (target, weight) = (self.target.tensor()?, self.weight.tensor()?);
        Ok(ops::loss::Classes { target, weight, ignored: self.ignored, count: self.count, inner: self.inner })
    }
}

pub fn nll_loss(
    input: &TensorArg<'_>,
    classes: Classes<'_>,
    reduction: i64,
    output: &TensorArg<'_>,
    total_weight: &TensorArg<'_>,
) -> Result<()> {
    let reduction = Reduction::from_code(reduction)?;
    ops::loss::likelihood(&input.tensor()?, &classes.classes()?, reduction, &output.tensor()?, &total_weight.tensor()?)
}

pub fn nll_loss_backward(
    grad: &TensorArg<'_>,
    classes: Classes<'_>,
    reduction: i64,
    total_weight: &TensorArg<'_>,
    grad_input: &TensorArg<'_>,
) -> Result<()> {
    let (grad, grad_input) = (grad.tensor()?, grad_input.tensor()?);
    let reduction = Reduction::from_code(reduction)?;
    ops::loss::likelihood_backward(&grad, &classes.classes()?, reduction, &total_weight.tensor()?, &grad_input)
}

pub fn binary_cross_entropy(
    input: &TensorArg<'_>,
    target: &TensorArg<'_>,
    weight: &TensorArg<'_>,
    output: &TensorArg<'_>,
) -> Result<()> {
    ops::loss::cross_entropy(&input.tensor()?, &target.tensor()?, &weight.tensor()?, &output.tensor()?)
}

pub fn binary_cross_entropy_backward(
    grad: &TensorArg<'_>,
    input: &TensorArg<'_>,
    target: &TensorArg<'_>,
    weight: &TensorArg<'_>,
    grad_input: &TensorArg<'_>,
    scale: f64,
) -> Result<()> {
    let (input, target, weight) = (input.tensor()?, target.tensor()?, weight.tensor()?);
    ops::loss::cross_entropy_backward(&grad.tensor()?, &input, &target, &weight, &grad_input.tensor()?, scale)
}
