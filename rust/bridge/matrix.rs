//! Matrix products and convolutions for C++.

use serde_json::Value;

use super::ffi::{ConvolutionArgs, Scalar, TensorArg};
use crate::blas;
use crate::error::Result;
use crate::ops;
use crate::ops::conv::{Direction, Parameters};
use crate::ops::epilogue::Activation;

pub fn matmul(
    out: &TensorArg<'_>,
    a: &TensorArg<'_>,
    b: &TensorArg<'_>,
    addend: &TensorArg<'_>,
    alpha: Scalar,
    beta: Scalar,
    activation: i32,
) -> Result<bool> {
    let activation = Activation::from_code(activation)?;
    blas::matmul(&out.tensor()?, &a.tensor()?, &b.tensor()?, &addend.tensor()?, alpha.into(), beta.into(), activation)
}

/// "auto" or the name of a library.
pub fn preferred_blas_library() -> Result<String> {
    blas::preference().map(|preference| preference.name().to_owned())
}

pub fn set_preferred_blas_library(name: &str) -> Result<()> {
    blas::set_preference(name)
}

/// What `auto` has chosen so far on a device: {class of products: library}.
pub fn blas_choices_json(device: i32) -> String {
    let choices = blas::auto::choices(device).into_iter();
    choices.map(|(class, library)| (class, Value::from(library.name()))).collect::<Value>().to_string()
}

pub fn dot(out: &TensorArg<'_>, a: &TensorArg<'_>, b: &TensorArg<'_>) -> Result<()> {
    ops::matmul::dot(&out.tensor()?, &a.tensor()?, &b.tensor()?)
}

impl<'a> From<ConvolutionArgs<'a>> for Parameters<'a> {
    fn from(args: ConvolutionArgs<'a>) -> Self {
        Self { stride: args.stride, padding: args.padding, dilation: args.dilation, groups: args.groups }
    }
}

pub fn convolve(
    out: &TensorArg<'_>,
    source: &TensorArg<'_>,
    weight: &TensorArg<'_>,
    bias: &TensorArg<'_>,
    window: ConvolutionArgs<'_>,
    transposed: bool,
) -> Result<()> {
    let direction = if transposed { Direction::Spread } else { Direction::Gather };
    let (out, source, weight, bias) = (out.tensor()?, source.tensor()?, weight.tensor()?, bias.tensor()?);
    ops::conv::pixels(&out, &source, &weight, &bias, &window.into(), direction)
}

pub fn convolve_weights(
    out: &TensorArg<'_>,
    source: &TensorArg<'_>,
    gradient: &TensorArg<'_>,
    window: ConvolutionArgs<'_>,
) -> Result<()> {
    ops::conv::weights(&out.tensor()?, &source.tensor()?, &gradient.tensor()?, &window.into())
}
