//! Interpolation, padding, grids and bags of embeddings for C++.

use super::ffi::{Bags, GridSampler, ResampleStep, TensorArg};
use crate::error::Result;
use crate::ops::resample::{Rule, Step};
use crate::ops::{bag, grid, resample as resampling};

pub fn resample(output: &TensorArg<'_>, input: &TensorArg<'_>, steps: &[ResampleStep], transposed: bool) -> Result<()> {
    let steps = steps.iter().map(|step| {
        let rule = Rule::from_code(step.rule)?;
        Ok(Step { rule, align_corners: step.align_corners, scale: step.scale, shift: step.shift })
    });
    resampling::resample(&output.tensor()?, &input.tensor()?, &steps.collect::<Result<Vec<_>>>()?, transposed)
}

impl From<GridSampler> for grid::Sampler {
    fn from(sampler: GridSampler) -> Self {
        let GridSampler { interpolation, padding, align_corners } = sampler;
        Self { interpolation, padding, align_corners }
    }
}

pub fn grid_sample(
    sampler: GridSampler,
    output: &TensorArg<'_>,
    input: &TensorArg<'_>,
    places: &TensorArg<'_>,
) -> Result<()> {
    grid::sample(sampler.into(), &output.tensor()?, &input.tensor()?, &places.tensor()?)
}

pub fn grid_padded_channels(grad: &TensorArg<'_>) -> Result<i64> {
    grid::padded_channels(&grad.tensor()?)
}

pub fn grid_sample_input_gradient(
    sampler: GridSampler,
    sums: &TensorArg<'_>,
    grad: &TensorArg<'_>,
    places: &TensorArg<'_>,
    in_any_order: bool,
) -> Result<()> {
    let add = if in_any_order { grid::input_gradient_in_any_order } else { grid::input_gradient };
    add(sampler.into(), &sums.tensor()?, &grad.tensor()?, &places.tensor()?)
}

pub fn grid_has_any_order(grad: &TensorArg<'_>) -> Result<bool> {
    grid::has_any_order(&grad.tensor()?)
}

pub fn grid_sample_grid_gradient(
    sampler: GridSampler,
    grad_grid: &TensorArg<'_>,
    grad: &TensorArg<'_>,
    input: &TensorArg<'_>,
    places: &TensorArg<'_>,
) -> Result<()> {
    let (grad, input) = (grad.tensor()?, input.tensor()?);
    grid::grid_gradient(sampler.into(), &grad_grid.tensor()?, &grad, &input, &places.tensor()?)
}

pub fn embedding_bag(
    bags: Bags<'_>,
    output: &TensorArg<'_>,
    sizes: &TensorArg<'_>,
    rows: &TensorArg<'_>,
) -> Result<()> {
    let (weight, indices, offsets) = (bags.weight.tensor()?, bags.indices.tensor()?, bags.offsets.tensor()?);
    let scales = bags.scales.tensor()?;
    let bags = bag::Bags { weight, indices, offsets, scales, padding: bags.padding, mode: bags.mode };
    bag::embedding_bag(&bags, &output.tensor()?, &sizes.tensor()?, &rows.tensor()?)
}
