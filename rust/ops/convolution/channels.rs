//! Depthwise convolutions of channels-last tensors: vectors of channels, and no packing.

use super::direct::{program, Direct};
use super::{Bias, ConvDirection, WeightStrides};
use crate::error::Result;
use crate::kernels::entry::{self, Arguments, EntryPoint};
use crate::kernels::{CachedProgram, Class};
use crate::ops::core::geometry::native_lanes;
use crate::ops::core::space::div_ceil;
use crate::ops::core::target::ITEM_GROUP;
use crate::ops::matmul::epilogue::Epilogue;
use crate::ops::matmul::gemm::{self, finish, occupancy_target};
use crate::ops::matmul::plan::GemmSize;
use crate::ops::Target;

/// Vectors of channels of a work-item on CPUs, as in `conv_channels.cl`.
const CHANNEL_VECTORS: i64 = 4;

/// Returns true for a depthwise convolution of channels-last tensors.
pub(in crate::ops) fn suits(direct: &Direct) -> bool {
    let Direct { input, output, groups, .. } = direct;
    *groups == input.channels && *groups == output.channels && input.channel_stride == 1 && output.channel_stride == 1
}

/// Enqueues a kernel over work-items in three dimensions: `ITEM_POSITION` of `conv_channels.cl`.
fn launch<A: Arguments>(
    target: &Target,
    program: &CachedProgram,
    kernel: EntryPoint<A>,
    args: &A,
    items: [i64; 3],
) -> Result<()> {
    if target.is_cpu() {
        return gemm::launch(target, program, kernel, args, items);
    }
    let count = items.iter().product::<i64>().max(0) as usize;
    target.launch(program, kernel, args, &[count.next_multiple_of(ITEM_GROUP)], None)
}

/// Computes a value for each output position.
///
/// # Errors
/// Errors reported by the allocator or the driver.
pub(in crate::ops) fn convolve(
    target: &Target,
    direct: &Direct,
    direction: ConvDirection,
    bias: Option<Bias>,
    class: Class,
) -> Result<()> {
    let Direct { input, output, weight, groups: channels, .. } = *direct;
    let lanes = native_lanes(target, class);
    let pitch = div_ceil(channels, lanes) * lanes;
    let program = program(target, class, input.dtype)?;
    let conv = direct.layout(None);
    let strides = WeightStrides::new(direction, weight.image_stride, weight.channel_stride, 1, 1);
    let packed = target.workspace((weight.positions() * pitch * class.size() as i64) as usize)?;
    let packed_weight = target.memory(packed.address)?;
    let args = entry::ConvChannelWeights {
        weight: weight.memory,
        weight_dtype: weight.dtype,
        out: packed_weight,
        conv,
        weight_layout: strides.layout(&weight),
        channels,
        pitch,
    };
    launch(target, &program, entry::CONV_CHANNEL_WEIGHTS, &args, [pitch, weight.positions(), 1])?;

    let across = div_ceil(channels, lanes * if target.is_cpu() { CHANNEL_VECTORS } else { 1 });
    let rows: i64 = output.sizes.iter().skip(1).product();
    let blocks = div_ceil(occupancy_target(target), across * output.images).min(rows).max(1);
    let block = div_ceil(rows, blocks);
    let bias = bias.unwrap_or(Bias { memory: target.memory(0)?, dtype: output.dtype, stride: 0 });
    let args = entry::ConvChannels {
        input: input.memory,
        input_dtype: input.dtype,
        weight: packed_weight,
        bias: bias.memory,
        bias_dtype: bias.dtype,
        bias_stride: bias.stride,
        out: output.memory,
        out_dtype: output.dtype,
        conv,
        output: direct.output_strides(),
        channels,
        images: output.images,
        pitch,
        block,
    };
    launch(target, &program, entry::CONV_CHANNELS, &args, [across, div_ceil(rows, block), output.images])
}

/// Computes the gradient of the weight; `epilogue` takes it as rows of kernel elements and columns of channels.
///
/// # Errors
/// Errors reported by the allocator or the driver.
pub(in crate::ops) fn backward_weight(
    target: &Target,
    direct: &Direct,
    class: Class,
    epilogue: &Epilogue<'_>,
) -> Result<()> {
    let Direct { input, output, weight, groups: channels, .. } = *direct;
    let lanes = native_lanes(target, class);
    let across = div_ceil(channels, lanes);
    let rows: i64 = output.images * output.sizes.iter().skip(1).product::<i64>();
    let splits = div_ceil(occupancy_target(target), across).min(rows).max(1);
    let sums = target.workspace((splits * weight.positions() * channels * class.size() as i64) as usize)?;
    let memory = target.memory(sums.address)?;
    let args = entry::ConvChannelsWeight {
        input: input.memory,
        input_dtype: input.dtype,
        grad_output: output.memory,
        grad_output_dtype: output.dtype,
        out: memory,
        conv: direct.layout(None),
        output: direct.output_strides(),
        channels,
        images: output.images,
        splits,
    };
    let program = program(target, class, input.dtype)?;
    launch(target, &program, entry::CONV_CHANNELS_WEIGHT, &args, [across, splits, 1])?;
    let size = GemmSize { rows: weight.positions(), columns: channels, k: 0, batches: 1 };
    finish(target, class, size, splits, memory, epilogue)
}
