//! Random numbers and sequences for C++.

use super::ffi::{RandomStream, Scalar, TensorArg};
use crate::error::Result;
use crate::ops;

impl From<RandomStream> for ops::random::Stream {
    fn from(stream: RandomStream) -> Self {
        Self { seed: stream.seed, offset: stream.offset }
    }
}

pub fn random_counters(elements: i64) -> u64 {
    ops::random::counters(elements)
}

pub fn random_sample(out: &TensorArg<'_>, distribution: i32, parameters: [f64; 2], stream: RandomStream) -> Result<()> {
    let distribution = ops::random::Distribution::from_code(distribution)?;
    ops::random::sample(&out.tensor()?, distribution, parameters, stream.into())
}

pub fn random_integers(out: &TensorArg<'_>, range: u64, base: i64, stream: RandomStream) -> Result<()> {
    ops::random::integers(&out.tensor()?, range, base, stream.into())
}

pub fn random_bernoulli(out: &TensorArg<'_>, probabilities: &TensorArg<'_>, stream: RandomStream) -> Result<()> {
    ops::random::bernoulli(&out.tensor()?, &probabilities.tensor()?, stream.into())
}

pub fn dropout(
    out: &TensorArg<'_>,
    mask: &TensorArg<'_>,
    input: &TensorArg<'_>,
    keep: f64,
    stream: RandomStream,
) -> Result<()> {
    ops::random::dropout(&out.tensor()?, &mask.tensor()?, &input.tensor()?, keep, stream.into())
}

pub fn dropout_backward(
    grad_in: &TensorArg<'_>,
    grad_out: &TensorArg<'_>,
    mask: &TensorArg<'_>,
    scale: f64,
) -> Result<()> {
    ops::random::dropout_backward(&grad_in.tensor()?, &grad_out.tensor()?, &mask.tensor()?, scale)
}

pub fn arange(out: &TensorArg<'_>, start: Scalar, step: Scalar) -> Result<()> {
    ops::factory::arange(&out.tensor()?, start.into(), step.into())
}

pub fn linspace(out: &TensorArg<'_>, start: Scalar, end: Scalar) -> Result<()> {
    ops::factory::linspace(&out.tensor()?, start.into(), end.into())
}
