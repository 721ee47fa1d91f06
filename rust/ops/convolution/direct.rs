//! Convolutions with few channels a group: boxes of output positions are computed from local memory, with no packing.

use std::sync::Arc;

use super::{Bias, ConvDirection, ConvParameters, WeightStrides};
use crate::cl::Memory;
use crate::error::Result;
use crate::kernels::entry::{self, Arguments, EntryPoint, LocalBytes};
use crate::kernels::structs::conv::{PixelStrides, Source};
use crate::kernels::{CachedProgram, Class, DType, Family, Spec};
use crate::ops::core::geometry::native_lanes;
use crate::ops::core::space::div_ceil;
use crate::ops::matmul::epilogue::Epilogue;
use crate::ops::matmul::gemm::{busy, finish};
use crate::ops::matmul::patches::{spatial, Spatial, Volume};
use crate::ops::matmul::plan::Size;
use crate::ops::Target;

/// Local memory for the source of a box: half of an L1 of 48 KiB, and of the minimum of OpenCL 1.2.
const BOX_BYTES: i64 = 24 << 10;
/// Local memory for weights, and for sums of their gradients.
const WEIGHT_BYTES: i64 = 16 << 10;
/// Work-items that share a box on a GPU.
const GROUP: i64 = 64;

/// A convolution from a source to output positions, and the layout of its weights.
#[derive(Clone, Copy, Debug)]
pub(in crate::ops) struct Direct {
    pub source: Volume,
    pub pixels: Volume,
    pub weight: Volume,
    pub groups: i64,
    window: Window,
}

/// How kernel elements map to source positions; see `Source` of `conv.cl`.
#[derive(Clone, Copy, Debug)]
struct Window {
    taps: Spatial,
    scale: Spatial,
    origin: Spatial,
    step: Spatial,
    stuffing: Spatial,
}

/// Output positions that a work-group computes, the source positions that they read, and the pitch of those in local
/// memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::ops) struct Boxes {
    pixels: Spatial,
    sizes: Spatial,
    pitch: i64,
}

/// Elements of local memory, of one source channel and of one output channel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::ops) struct Elements {
    pub source: i64,
    pub pixels: i64,
}

impl Window {
    fn boxes(&self, pixels: Spatial, lanes: i64) -> Boxes {
        let mut sizes = [1; 3];
        let dims = pixels.into_iter().zip(self.taps).zip(self.scale).zip(self.step).enumerate();
        for (size, (d, (((pixels, taps), scale), step))) in sizes.iter_mut().zip(dims) {
            let count = if d == 0 { filled(pixels, lanes) } else { pixels };
            *size = (count - 1) * scale + (taps - 1) * step.abs() + 1;
        }
        let [width, ..] = sizes;
        let [scale, ..] = self.scale;
        Boxes { pixels, sizes, pitch: filled(div_ceil(width, scale), lanes) }
    }
}

impl Boxes {
    fn elements(&self, scale: i64, lanes: i64) -> Elements {
        let [_, height, depth] = self.sizes;
        let [w, h, d] = self.pixels;
        Elements { source: height * depth * scale * self.pitch, pixels: filled(w, lanes) * h * d }
    }
}

const fn filled(width: i64, lanes: i64) -> i64 {
    div_ceil(width, lanes) * lanes
}

impl Direct {
    /// A convolution; for its gradients, `pixels` is the convolution's output.
    pub fn new(
        source: Volume,
        pixels: Volume,
        weight: Volume,
        parameters: &ConvParameters<'_>,
        direction: ConvDirection,
    ) -> Self {
        let (stride, padding) = (spatial(parameters.stride, 1), spatial(parameters.padding, 0));
        let dilation = spatial(parameters.dilation, 1);
        let taps = weight.sizes;
        let window = match direction {
            ConvDirection::Forward => Window {
                taps,
                scale: stride,
                origin: padding.map(|padding| -padding),
                step: dilation,
                stuffing: [1; 3],
            },
            _ => Window {
                taps,
                scale: [1; 3],
                origin: padding,
                step: dilation.map(|dilation| -dilation),
                stuffing: stride,
            },
        };
        Self { source, pixels, weight, groups: parameters.groups, window }
    }

    pub(in crate::ops) fn source_channels(&self) -> i64 {
        self.source.channels / self.groups
    }

    pub(in crate::ops) fn out_channels(&self) -> i64 {
        self.pixels.channels / self.groups
    }

    /// Weights of one result channel.
    pub(in crate::ops) fn depth(&self) -> i64 {
        self.source_channels() * self.weight.positions()
    }

    /// The largest boxes of which `out_channels` output channels and all source channels of a group fit local memory,
    /// but small enough for `parts` of them; none where not even one vector of output positions fits.
    fn fit(&self, target: &Target, class: Class, out_channels: i64, parts: i64) -> Option<Boxes> {
        let local = target.device.info.local_mem as i64;
        let element = class.size() as i64;
        let weights = self.depth() * self.out_channels();
        if weights * element > WEIGHT_BYTES.min(local / 4) || self.depth() * 4 > local / 8 {
            return None;
        }
        let most = BOX_BYTES.min(local / 2) / element;
        self.largest_boxes(native_lanes(target, class), out_channels, parts, most)
    }

    /// The largest boxes of which `out_channels` output channels and all source channels of a group are at most `most`
    /// elements, but small enough for `parts` of them.
    pub(in crate::ops) fn largest_boxes(&self, lanes: i64, out_channels: i64, parts: i64, most: i64) -> Option<Boxes> {
        let fits = |pixels: Spatial| {
            let needed = self.elements(self.window.boxes(pixels, lanes), lanes);
            needed.source * self.source_channels() + needed.pixels * out_channels <= most
        };
        let [width, height, depth] = self.pixels.sizes;
        let w = largest(width, filled(width, lanes), |w| fits([w.min(width), 1, 1]))?;
        let h = largest(height, div_ceil(height, parts), |h| fits([w, h, 1]))?;
        let d = if h == height { largest(depth, depth, |d| fits([w, h, d]))? } else { 1 };
        Some(self.window.boxes([w, h, d], lanes))
    }

    /// Local memory of a box.
    pub(in crate::ops) fn elements(&self, boxes: Boxes, lanes: i64) -> Elements {
        let [scale, ..] = self.window.scale;
        boxes.elements(scale, lanes)
    }

    /// Boxes of an image.
    pub(in crate::ops) fn box_count(&self, boxes: Boxes) -> i64 {
        self.pixels.sizes.iter().zip(boxes.pixels).map(|(&size, part)| div_ceil(size, part)).product()
    }

    /// The arguments of a kernel for weights: both volumes, and local memory for a box and for the sums of so many
    /// features and columns.
    pub(in crate::ops) fn weight_args(
        &self,
        sums: Memory,
        boxes: Boxes,
        box_elements: Elements,
        [features, columns]: [i64; 2],
        element: i64,
    ) -> entry::ConvDirectWeight {
        let Self { source, pixels, .. } = self;
        entry::ConvDirectWeight {
            source: source.memory,
            source_dtype: source.dtype,
            gradient: pixels.memory,
            gradient_dtype: pixels.dtype,
            out: sums,
            from: self.source(Some(boxes)),
            pixels: self.pixel_strides(),
            out_channels: self.out_channels(),
            images: pixels.images,
            planes: local(box_elements.source * self.source_channels(), element),
            gradients: local(box_elements.pixels * columns, element),
            sums: local(features * columns, element),
            places: local(features, 4),
        }
    }

    /// The `Source` of kernels; boxes matter to some only.
    pub(in crate::ops) fn source(&self, boxes: Option<Boxes>) -> Source {
        let boxes = boxes.unwrap_or(Boxes { pixels: [1; 3], sizes: [1; 3], pitch: 1 });
        let Window { taps, scale, origin, step, stuffing } = self.window;
        Source {
            pixels: self.pixels.sizes,
            taps,
            scale,
            origin,
            step,
            stuffing,
            extents: self.source.sizes,
            strides: self.source.strides,
            channel_stride: self.source.channel_stride,
            image_stride: self.source.image_stride,
            channels: self.source_channels(),
            box_sizes: boxes.pixels,
            sizes: boxes.sizes,
            pitch: boxes.pitch,
        }
    }

    /// Layout of a tensor with a value for each output position.
    pub(in crate::ops) fn pixel_strides(&self) -> PixelStrides {
        let Volume { strides, channel_stride, image_stride, .. } = self.pixels;
        PixelStrides { strides, channel_stride, image_stride }
    }
}

/// The largest part of `total`, at most `limit`, that fits: all of it, or halves of that.
fn largest(total: i64, limit: i64, fits: impl Fn(i64) -> bool) -> Option<i64> {
    let halves = std::iter::successors(Some(limit.max(1)), |size| (*size > 1).then_some(div_ceil(*size, 2)));
    halves.map(|size| size.min(total)).find(|size| fits(*size))
}

fn items(target: &Target) -> i64 {
    if target.is_cpu() {
        1
    } else {
        GROUP.min(target.device.info.max_work_group as i64)
    }
}

/// The program of the kernels that pack nothing.
pub(in crate::ops) fn program(target: &Target, class: Class, dtype: DType) -> Result<Arc<CachedProgram>> {
    let spec = Spec::generic()
        .define("VEC", native_lanes(target, class))
        .define("ITEMS", items(target))
        .define("SPEC_DTYPE0", i64::from(dtype.code()));
    target.program(Family::Conv, class, &spec)
}

fn launch<A: Arguments>(
    target: &Target,
    program: &CachedProgram,
    kernel: EntryPoint<A>,
    args: &A,
    groups: [i64; 3],
) -> Result<()> {
    let items = items(target) as usize;
    let [across, down, images] = groups.map(|count| count as usize);
    target.launch(program, kernel, args, &[across * items, down, images], Some(&[items, 1, 1]))
}

const fn local(elements: i64, size: i64) -> LocalBytes {
    LocalBytes((elements * size) as usize)
}

/// A value for each output position. Returns false, and does nothing, where a box does not fit local memory.
///
/// # Errors
/// As the allocator and the driver report.
pub(in crate::ops) fn pixels(
    target: &Target,
    direct: &Direct,
    direction: ConvDirection,
    bias: Option<Bias>,
    class: Class,
) -> Result<bool> {
    let Direct { source, pixels, weight, groups, .. } = *direct;
    let parts = div_ceil(busy(target), groups * pixels.images);
    let Some(boxes) = direct.fit(target, class, 0, parts) else { return Ok(false) };
    let (rows, channels) = (direct.out_channels(), direct.source_channels());
    let strides = WeightStrides::new(direction, weight.image_stride, weight.channel_stride, rows, channels);
    let no_bias = Bias { memory: target.memory(0)?, dtype: pixels.dtype, stride: 0 };
    let bias = bias.unwrap_or(no_bias);
    let element = class.size() as i64;
    let lanes = native_lanes(target, class);
    let args = entry::ConvDirect {
        source: source.memory,
        source_dtype: source.dtype,
        weight: weight.memory,
        weight_dtype: weight.dtype,
        bias: bias.memory,
        bias_dtype: bias.dtype,
        bias_stride: bias.stride,
        out: pixels.memory,
        out_dtype: pixels.dtype,
        from: direct.source(Some(boxes)),
        taps: strides.of_taps(&weight),
        pixels: direct.pixel_strides(),
        out_channels: rows,
        planes: local(direct.elements(boxes, lanes).source * channels, element),
        factors: local(direct.depth() * rows, element),
        places: local(direct.depth(), 4),
    };
    let count = direct.box_count(boxes);
    launch(target, &*program(target, class, source.dtype)?, entry::CONV_DIRECT, &args, [groups, count, pixels.images])?;
    Ok(true)
}

/// The gradient of the weight; `epilogue` takes it as rows of result channels and columns of (source channels, kernel
/// elements). Returns false, and does nothing, where a box does not fit local memory.
///
/// # Errors
/// As the allocator and the driver report.
pub(in crate::ops) fn weights(target: &Target, direct: &Direct, class: Class, epilogue: &Epilogue) -> Result<bool> {
    let Direct { source, pixels, groups, .. } = *direct;
    let rows = direct.out_channels();
    let Some(boxes) = direct.fit(target, class, rows, 1) else { return Ok(false) };
    let splits = div_ceil(busy(target), groups).min(pixels.images).max(1);
    let size = Size { rows, columns: direct.depth(), depth: 0, batches: groups };
    let element = class.size() as i64;
    let workspace = target.workspace((splits * groups * rows * direct.depth() * element) as usize)?;
    let sums = target.memory(workspace.address)?;
    let elements = direct.elements(boxes, native_lanes(target, class));
    let args = direct.weight_args(sums, boxes, elements, [direct.depth(), rows], element);
    launch(target, &*program(target, class, source.dtype)?, entry::CONV_DIRECT_WEIGHT, &args, [groups, splits, 1])?;
    finish(target, class, size, splits, sums, epilogue)?;
    Ok(true)
}
