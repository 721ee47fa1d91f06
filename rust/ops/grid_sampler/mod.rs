//! Interpolation at the positions of a grid, and its gradients.

use crate::error::Result;
use crate::kernels::entry::{self, Arguments, EntryPoint};
use crate::kernels::structs::grid_sampler::Sampler;
use crate::kernels::{CachedProgram, Class, Family, Layout};
use crate::ops::core::geometry::Geometry;
use crate::ops::core::planes;
use crate::ops::core::space::div_ceil;
use crate::ops::core::tier::tier;
use crate::ops::{Target, Tensor};

#[cxx::bridge(namespace = "torch_opencl::bridge")]
mod ffi {
    /// Parameters of grid sampling. Values are those of ATen.
    #[derive(Clone, Copy, Debug)]
    pub struct GridSampler {
        /// `at::native::GridSamplerInterpolation`.
        pub interpolation: i32,
        /// `at::native::GridSamplerPadding`.
        pub padding: i32,
        /// True if -1 and 1 are the centres of the corner elements, not their outer edges.
        pub align_corners: bool,
    }

    unsafe extern "C++" {
        include!("torch_opencl/rust/abi.rs.h");
        type Tensor<'a> = crate::abi::Tensor<'a>;
    }

    extern "Rust" {
        fn grid_sample(sampler: &GridSampler, output: &Tensor, input: &Tensor, grid: &Tensor) -> Result<()>;
        fn grid_padded_channels(grad: &Tensor) -> Result<i64>;
        fn grid_sample_input_gradient(sampler: &GridSampler, sums: &Tensor, grad: &Tensor, grid: &Tensor)
            -> Result<()>;
        fn grid_has_any_order(grad: &Tensor) -> Result<bool>;
        fn grid_sample_input_gradient_in_any_order(
            sampler: &GridSampler,
            sums: &Tensor,
            grad: &Tensor,
            grid: &Tensor,
        ) -> Result<()>;
        fn grid_sample_grid_gradient(
            sampler: &GridSampler,
            grad_grid: &Tensor,
            grad: &Tensor,
            input: &Tensor,
            grid: &Tensor,
        ) -> Result<()>;
    }
}

pub use ffi::GridSampler;

/// A grid [N, ..., coordinates] with its coordinates where other tensors have channels.
struct Coordinates {
    sizes: Vec<i64>,
    strides: Vec<i64>,
}

impl Coordinates {
    fn of(grid: &Tensor<'_>) -> Self {
        let move_last = |list: &[i64]| match list {
            [sample, spatial @ .., coordinate] => [&[*sample, *coordinate], spatial].concat(),
            _ => list.to_vec(),
        };
        Self { sizes: move_last(grid.sizes), strides: move_last(grid.strides) }
    }

    fn tensor(&self, grid: &Tensor<'_>) -> Tensor<'_> {
        Tensor { address: grid.address, dtype: grid.dtype, sizes: &self.sizes, strides: &self.strides }
    }
}

/// Device, program and geometry of one call.
struct GridSampleCall {
    target: Target,
    geometry: Geometry,
    program: std::sync::Arc<CachedProgram>,
    sampler: Sampler,
    positions: i64,
}

impl GridSampleCall {
    /// `output` gives the positions and the dtype, `input` (or the sums of its gradient, which are wider) the extent of
    /// the grid's coordinates.
    fn new(sampler: &GridSampler, output: &Tensor<'_>, input: &Tensor<'_>) -> Result<Self> {
        let spatial = output.ndim().saturating_sub(2);
        let target = Target::of(input.address)?;
        let geometry = Geometry::of(&target, input.class());
        let spec = geometry.define(tier(output.numel(), &[("SPEC_DTYPE0", output.dtype.code())]));
        let program = target.program(Family::GridSampler, input.class(), &spec)?;
        let [width, height, depth, _, _] = planes::sizes(input, spatial);
        let sampler = Sampler {
            sizes: [width, height, depth],
            mode: sampler.interpolation,
            padding: sampler.padding,
            edge: i32::from(!sampler.align_corners),
            dims: spatial as i32,
        };
        let [width, height, depth, _, samples] = planes::sizes(output, spatial);
        Ok(Self { target, geometry, program, sampler, positions: width * height * depth * samples })
    }

    /// Arguments of all kernels besides memory; `grid` has the coordinates.
    fn arguments(&self, grid: &Tensor<'_>, layout: Layout) -> entry::SamplingArguments {
        entry::SamplingArguments { dtype0: grid.dtype, layout, sampler: self.sampler }
    }

    fn launch<A: Arguments>(&self, kernel: EntryPoint<A>, args: &A, tasks: i64) -> Result<()> {
        self.target.launch(&self.program, kernel, args, &self.geometry.items_for(tasks), None)
    }
}

/// Samples `input` [N, C, ...] at the positions of `grid` [N, ..., coordinates].
///
/// # Errors
/// Errors reported by the driver.
pub fn grid_sample(sampler: &GridSampler, output: &Tensor<'_>, input: &Tensor<'_>, grid: &Tensor<'_>) -> Result<()> {
    if output.numel() == 0 {
        return Ok(());
    }
    let call = GridSampleCall::new(sampler, output, input)?;
    let coordinates = Coordinates::of(grid);
    let layout = planes::layout(&[output, input, &coordinates.tensor(grid)], output.ndim().saturating_sub(2))?;
    let args = entry::GridSample {
        output: call.target.tensor(output)?,
        input: call.target.tensor(input)?,
        grid: call.target.tensor(grid)?,
        sampling: call.arguments(grid, layout),
    };
    call.launch(entry::GRID_SAMPLE, &args, call.positions)
}

/// Writes the gradient of the grid.
///
/// # Errors
/// Errors reported by the driver.
pub fn grid_sample_grid_gradient(
    sampler: &GridSampler,
    grad_grid: &Tensor<'_>,
    grad: &Tensor<'_>,
    input: &Tensor<'_>,
    grid: &Tensor<'_>,
) -> Result<()> {
    if grad_grid.numel() == 0 {
        return Ok(());
    }
    let call = GridSampleCall::new(sampler, grad, input)?;
    let (coordinates, gradients) = (Coordinates::of(grid), Coordinates::of(grad_grid));
    let operands = [grad, input, &coordinates.tensor(grid), &gradients.tensor(grad_grid)];
    let layout = planes::layout(&operands, grad.ndim().saturating_sub(2))?;
    let args = entry::GridSampleGridGradient {
        grad_grid: call.target.tensor(grad_grid)?,
        grad: call.target.tensor(grad)?,
        input: call.target.tensor(input)?,
        grid: call.target.tensor(grid)?,
        sampling: call.arguments(grid, layout),
    };
    call.launch(entry::GRID_SAMPLE_GRID_GRADIENT, &args, call.positions)
}

/// Channels that [`grid_sample_input_gradient`] needs for its sums: whole vectors.
///
/// # Errors
/// Errors reported by the driver.
pub fn grid_padded_channels(grad: &Tensor<'_>) -> Result<i64> {
    let lanes = Geometry::of(&Target::of(grad.address)?, grad.class()).lanes as u64;
    Ok((grad.size(1) as u64).next_multiple_of(lanes) as i64)
}

/// Adds the gradient of the input to `sums`: dense, [N, spatial dimensions, padded channels], of the compute dtype.
///
/// # Errors
/// Errors reported by the driver.
pub fn grid_sample_input_gradient(
    sampler: &GridSampler,
    sums: &Tensor<'_>,
    grad: &Tensor<'_>,
    grid: &Tensor<'_>,
) -> Result<()> {
    if sums.numel() == 0 || grad.numel() == 0 {
        return Ok(());
    }
    let spatial = grad.ndim().saturating_sub(2);
    let channels_second = Coordinates::of(sums);
    let call = GridSampleCall::new(sampler, grad, &channels_second.tensor(sums))?;
    let coordinates = Coordinates::of(grid);
    let layout = planes::layout(&[grad, &coordinates.tensor(grid)], spatial)?;
    let strips = div_ceil(grad.size(1), call.geometry.lanes as i64);
    let args = entry::GridSampleInputGradient {
        sums: call.target.tensor(sums)?,
        grad: call.target.tensor(grad)?,
        grid: call.target.tensor(grid)?,
        sampling: call.arguments(grid, layout),
    };
    call.launch(entry::GRID_SAMPLE_INPUT_GRADIENT, &args, strips * grad.size(0))
}

/// Returns true if the device can add the gradient of the input in any order: for
/// [`grid_sample_input_gradient_in_any_order`].
///
/// # Errors
/// Errors reported by the driver.
pub fn grid_has_any_order(grad: &Tensor<'_>) -> Result<bool> {
    let target = Target::of(grad.address)?;
    // On CPUs the samples' channels are enough tasks for all cores, and atomics cost more.
    Ok(!target.is_cpu() && (grad.class() == Class::Float || target.device.info.has_wide_atomics()))
}

/// Adds the gradient of the input to `sums`, which has the input's shape and the compute dtype. Positions that share an
/// element add to it in any order, so that the last bits of sums differ from run to run.
///
/// # Errors
/// Errors reported by the driver.
pub fn grid_sample_input_gradient_in_any_order(
    sampler: &GridSampler,
    sums: &Tensor<'_>,
    grad: &Tensor<'_>,
    grid: &Tensor<'_>,
) -> Result<()> {
    if sums.numel() == 0 || grad.numel() == 0 {
        return Ok(());
    }
    let call = GridSampleCall::new(sampler, grad, sums)?;
    let coordinates = Coordinates::of(grid);
    let layout = planes::layout(&[grad, &coordinates.tensor(grid), sums], grad.ndim().saturating_sub(2))?;
    let parts = div_ceil(call.geometry.occupancy_target(false), call.positions).clamp(1, grad.size(1));
    let args = entry::GridSampleInputGradientAtomic {
        sums: call.target.tensor(sums)?,
        grad: call.target.tensor(grad)?,
        grid: call.target.tensor(grid)?,
        sampling: call.arguments(grid, layout),
        parts,
    };
    call.launch(entry::GRID_SAMPLE_INPUT_GRADIENT_ATOMIC, &args, call.positions * parts)
}
