//! Depthwise convolutions of tensors whose channels lie innermost: vectors of channels, and no packing.

use super::direct::{program, Direct};
use super::{Bias, ConvDirection, WeightStrides};
use crate::error::Result;
use crate::kernels::entry::{self, Arguments, EntryPoint};
use crate::kernels::{CachedProgram, Class};
use crate::ops::core::geometry::native_lanes;
use crate::ops::core::space::div_ceil;
use crate::ops::core::target::ITEM_GROUP;
use crate::ops::matmul::epilogue::Epilogue;
use crate::ops::matmul::gemm::{self, busy, finish};
use crate::ops::matmul::plan::Size;
use crate::ops::Target;

/// Vectors of channels of a work-item on CPUs, as in `conv_channels.cl`.
const CHANNEL_VECTORS: i64 = 4;

/// Returns true if a convolution is depthwise, and of tensors whose channels lie innermost.
pub(in crate::ops) fn suits(direct: &Direct) -> bool {
    let Direct { source, pixels, groups, .. } = direct;
    *groups == source.channels && *groups == pixels.channels && source.channel_stride == 1 && pixels.channel_stride == 1
}

/// Enqueues a kernel of work-items in three dimensions: `ITEM_PLACE` of `conv_channels.cl`.
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

/// A value for each output position.
///
/// # Errors
/// As the allocator and the driver report.
pub(in crate::ops) fn pixels(
    target: &Target,
    direct: &Direct,
    direction: ConvDirection,
    bias: Option<Bias>,
    class: Class,
) -> Result<()> {
    let Direct { source, pixels, weight, groups: channels, .. } = *direct;
    let lanes = native_lanes(target, class);
    let pitch = div_ceil(channels, lanes) * lanes;
    let program = program(target, class, source.dtype)?;
    let from = direct.source(None);
    let strides = WeightStrides::new(direction, weight.image_stride, weight.channel_stride, 1, 1);
    let packed = target.workspace((weight.positions() * pitch * class.size() as i64) as usize)?;
    let factors = target.memory(packed.address)?;
    let args = entry::ConvChannelWeights {
        weight: weight.memory,
        weight_dtype: weight.dtype,
        out: factors,
        from,
        taps: strides.of_taps(&weight),
        channels,
        pitch,
    };
    launch(target, &program, entry::CONV_CHANNEL_WEIGHTS, &args, [pitch, weight.positions(), 1])?;

    let across = div_ceil(channels, lanes * if target.is_cpu() { CHANNEL_VECTORS } else { 1 });
    let rows: i64 = pixels.sizes.iter().skip(1).product();
    let blocks = div_ceil(busy(target), across * pixels.images).min(rows).max(1);
    let block = div_ceil(rows, blocks);
    let bias = bias.unwrap_or(Bias { memory: target.memory(0)?, dtype: pixels.dtype, stride: 0 });
    let args = entry::ConvChannels {
        source: source.memory,
        source_dtype: source.dtype,
        weight: factors,
        bias: bias.memory,
        bias_dtype: bias.dtype,
        bias_stride: bias.stride,
        out: pixels.memory,
        out_dtype: pixels.dtype,
        from,
        pixels: direct.pixel_strides(),
        channels,
        images: pixels.images,
        pitch,
        block,
    };
    launch(target, &program, entry::CONV_CHANNELS, &args, [across, div_ceil(rows, block), pixels.images])
}

/// The gradient of the weight; `epilogue` takes it as rows of kernel elements and columns of channels.
///
/// # Errors
/// As the allocator and the driver report.
pub(in crate::ops) fn weights(target: &Target, direct: &Direct, class: Class, epilogue: &Epilogue) -> Result<()> {
    let Direct { source, pixels, weight, groups: channels, .. } = *direct;
    let lanes = native_lanes(target, class);
    let across = div_ceil(channels, lanes);
    let rows: i64 = pixels.images * pixels.sizes.iter().skip(1).product::<i64>();
    let splits = div_ceil(busy(target), across).min(rows).max(1);
    let sums = target.workspace((splits * weight.positions() * channels * class.size() as i64) as usize)?;
    let memory = target.memory(sums.address)?;
    let args = entry::ConvChannelsWeight {
        source: source.memory,
        source_dtype: source.dtype,
        gradient: pixels.memory,
        gradient_dtype: pixels.dtype,
        out: memory,
        from: direct.source(None),
        pixels: direct.pixel_strides(),
        channels,
        images: pixels.images,
        splits,
    };
    let program = program(target, class, source.dtype)?;
    launch(target, &program, entry::CONV_CHANNELS_WEIGHT, &args, [across, splits, 1])?;
    let size = Size { rows: weight.positions(), columns: channels, depth: 0, batches: 1 };
    finish(target, class, size, splits, memory, epilogue)
}
