//! Convolutions with few channels in a group: boxes of output positions are computed from local memory, with no
//! packing.

use std::sync::Arc;

use super::{Bias, ConvDirection, ConvParameters, WeightStrides};
use crate::cl::Memory;
use crate::error::Result;
use crate::kernels::entry::{self, Arguments, EntryPoint, LocalBytes};
use crate::kernels::structs::conv::{ConvLayout, OutputStrides};
use crate::kernels::{CachedProgram, Class, DType, Family, Spec};
use crate::ops::core::forms::{Form, FLOAT_DTYPES};
use crate::ops::core::geometry::native_lanes;
use crate::ops::core::space::div_ceil;
use crate::ops::matmul::epilogue::Epilogue;
use crate::ops::matmul::gemm::{finish, occupancy_target};
use crate::ops::matmul::im2col::{spatial, Spatial, Volume};
use crate::ops::matmul::plan::GemmSize;
use crate::ops::Target;

/// Local memory for the input of a box: half of an L1 of 48 KiB, and of the minimum of OpenCL 1.2.
const BOX_BYTES: i64 = 24 << 10;
/// Local memory for weights, and for sums of their gradients.
const WEIGHT_BYTES: i64 = 16 << 10;
/// Work-items that share a box on a GPU.
const GROUP: i64 = 64;

/// A convolution from an input to output positions, and the layout of its weights.
#[derive(Clone, Copy, Debug)]
pub(in crate::ops) struct Direct {
    pub input: Volume,
    pub output: Volume,
    pub weight: Volume,
    pub groups: i64,
    kernel_map: DirectKernelMap,
}

/// How kernel elements map to input positions; see `ConvLayout` of `conv.cl`.
#[derive(Clone, Copy, Debug)]
struct DirectKernelMap {
    kernel_size: Spatial,
    stride: Spatial,
    origin: Spatial,
    dilation: Spatial,
    in_dilation: Spatial,
}

/// Output positions that a work-group computes, the input positions that they read, and the pitch of those in local
/// memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::ops) struct Boxes {
    out_sizes: Spatial,
    in_sizes: Spatial,
    pitch: i64,
}

/// Elements of local memory for one input channel and for one output channel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::ops) struct Elements {
    pub input: i64,
    pub output: i64,
}

impl DirectKernelMap {
    fn boxes(&self, out_sizes: Spatial, lanes: i64) -> Boxes {
        let mut in_sizes = [1; 3];
        let dims = out_sizes.into_iter().zip(self.kernel_size).zip(self.stride).zip(self.dilation).enumerate();
        for (size, (d, (((count, kernel_size), stride), dilation))) in in_sizes.iter_mut().zip(dims) {
            let count = if d == 0 { filled(count, lanes) } else { count };
            *size = (count - 1) * stride + (kernel_size - 1) * dilation.abs() + 1;
        }
        let [width, ..] = in_sizes;
        let [stride, ..] = self.stride;
        Boxes { out_sizes, in_sizes, pitch: filled(div_ceil(width, stride), lanes) }
    }
}

impl Boxes {
    fn elements(&self, stride: i64, lanes: i64) -> Elements {
        let [_, height, depth] = self.in_sizes;
        let [w, h, d] = self.out_sizes;
        Elements { input: height * depth * stride * self.pitch, output: filled(w, lanes) * h * d }
    }
}

const fn filled(width: i64, lanes: i64) -> i64 {
    div_ceil(width, lanes) * lanes
}

impl Direct {
    /// A convolution; for its gradients, `output` is the convolution's output.
    pub fn new(
        input: Volume,
        output: Volume,
        weight: Volume,
        parameters: &ConvParameters<'_>,
        direction: ConvDirection,
    ) -> Self {
        let (stride, padding) = (spatial(parameters.stride, 1), spatial(parameters.padding, 0));
        let dilation = spatial(parameters.dilation, 1);
        let kernel_size = weight.sizes;
        let kernel_map = match direction {
            ConvDirection::Forward => DirectKernelMap {
                kernel_size,
                stride,
                origin: padding.map(|padding| -padding),
                dilation,
                in_dilation: [1; 3],
            },
            _ => DirectKernelMap {
                kernel_size,
                stride: [1; 3],
                origin: padding,
                dilation: dilation.map(|dilation| -dilation),
                in_dilation: stride,
            },
        };
        Self { input, output, weight, groups: parameters.groups, kernel_map }
    }

    pub(in crate::ops) fn in_channels(&self) -> i64 {
        self.input.channels / self.groups
    }

    pub(in crate::ops) fn out_channels(&self) -> i64 {
        self.output.channels / self.groups
    }

    /// Weights of one output channel: K of the equivalent GEMM.
    pub(in crate::ops) fn k(&self) -> i64 {
        self.in_channels() * self.weight.positions()
    }

    /// The largest boxes for which `out_channels` output channels and all input channels of a group fit local memory,
    /// but small enough to give `parts` boxes; `None` if not even one vector of output positions fits.
    fn fit(&self, target: &Target, class: Class, out_channels: i64, parts: i64) -> Option<Boxes> {
        let local = target.device.info.local_mem as i64;
        let element = class.size() as i64;
        let weights = self.k() * self.out_channels();
        if weights * element > WEIGHT_BYTES.min(local / 4) || self.k() * 4 > local / 8 {
            return None;
        }
        let most = BOX_BYTES.min(local / 2) / element;
        self.largest_boxes(native_lanes(target, class), out_channels, parts, most)
    }

    /// The largest boxes for which `out_channels` output channels and all input channels of a group are at most `most`
    /// elements, but small enough to give `parts` boxes.
    pub(in crate::ops) fn largest_boxes(&self, lanes: i64, out_channels: i64, parts: i64, most: i64) -> Option<Boxes> {
        let fits = |out_sizes: Spatial| {
            let needed = self.elements(self.kernel_map.boxes(out_sizes, lanes), lanes);
            needed.input * self.in_channels() + needed.output * out_channels <= most
        };
        let [width, height, depth] = self.output.sizes;
        let w = largest(width, filled(width, lanes), |w| fits([w.min(width), 1, 1]))?;
        let h = largest(height, div_ceil(height, parts), |h| fits([w, h, 1]))?;
        let d = if h == height { largest(depth, depth, |d| fits([w, h, d]))? } else { 1 };
        Some(self.kernel_map.boxes([w, h, d], lanes))
    }

    /// Local memory of a box.
    pub(in crate::ops) fn elements(&self, boxes: Boxes, lanes: i64) -> Elements {
        let [stride, ..] = self.kernel_map.stride;
        boxes.elements(stride, lanes)
    }

    /// Boxes of an image.
    pub(in crate::ops) fn box_count(&self, boxes: Boxes) -> i64 {
        self.output.sizes.iter().zip(boxes.out_sizes).map(|(&size, part)| div_ceil(size, part)).product()
    }

    /// The arguments of a weight-gradient kernel: both volumes, and local memory for a box and for the sums of
    /// `weights` weights of `channels` output channels.
    pub(in crate::ops) fn weight_args(
        &self,
        sums: Memory,
        boxes: Boxes,
        box_elements: Elements,
        [weights, channels]: [i64; 2],
        element: i64,
    ) -> entry::ConvDirectWeight {
        let Self { input, output, .. } = self;
        entry::ConvDirectWeight {
            input: input.memory,
            input_dtype: input.dtype,
            grad_output: output.memory,
            grad_output_dtype: output.dtype,
            out: sums,
            conv: self.layout(Some(boxes)),
            output: self.output_strides(),
            out_channels: self.out_channels(),
            images: output.images,
            planes: local(box_elements.input * self.in_channels(), element),
            grad_outputs: local(box_elements.output * channels, element),
            sums: local(weights * channels, element),
            offsets: local(weights, 4),
        }
    }

    /// The `ConvLayout` of kernels, only some of which use boxes.
    pub(in crate::ops) fn layout(&self, boxes: Option<Boxes>) -> ConvLayout {
        let boxes = boxes.unwrap_or(Boxes { out_sizes: [1; 3], in_sizes: [1; 3], pitch: 1 });
        let DirectKernelMap { kernel_size, stride, origin, dilation, in_dilation } = self.kernel_map;
        ConvLayout {
            out_sizes: self.output.sizes,
            kernel_size,
            stride,
            origin,
            dilation,
            in_dilation,
            in_sizes: self.input.sizes,
            in_strides: self.input.strides,
            channel_stride: self.input.channel_stride,
            image_stride: self.input.image_stride,
            channels: self.in_channels(),
            box_out_sizes: boxes.out_sizes,
            box_in_sizes: boxes.in_sizes,
            pitch: boxes.pitch,
        }
    }

    /// Layout of a tensor with a value for each output position.
    pub(in crate::ops) fn output_strides(&self) -> OutputStrides {
        let Volume { strides, channel_stride, image_stride, .. } = self.output;
        OutputStrides { strides, channel_stride, image_stride }
    }
}

/// The largest part of `total`, at most `limit`, that fits: `limit` is halved until it does.
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

/// The program of the kernels without packing.
pub(in crate::ops) fn program(target: &Target, class: Class, dtype: DType) -> Result<Arc<CachedProgram>> {
    target.program(Family::Conv, class, &spec(target, class, dtype))
}

fn spec(target: &Target, class: Class, dtype: DType) -> Spec {
    Spec::generic()
        .define("VEC", native_lanes(target, class))
        .define("ITEMS", items(target))
        .define("SPEC_DTYPE0", i64::from(dtype.code()))
}

/// The programs of usual dtypes.
pub(in crate::ops) fn forms(target: &Target) -> Vec<Form> {
    let dtypes = FLOAT_DTYPES.into_iter().chain([DType::C64, DType::I64]);
    dtypes.map(|dtype| (dtype.class(), spec(target, dtype.class(), dtype))).collect()
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

/// Computes a value for each output position. Returns false, without doing anything, if a box does not fit local
/// memory.
///
/// # Errors
/// Errors reported by the allocator or the driver.
pub(in crate::ops) fn convolve(
    target: &Target,
    direct: &Direct,
    direction: ConvDirection,
    bias: Option<Bias>,
    class: Class,
) -> Result<bool> {
    let Direct { input, output, weight, groups, .. } = *direct;
    let parts = div_ceil(occupancy_target(target), groups * output.images);
    let Some(boxes) = direct.fit(target, class, 0, parts) else { return Ok(false) };
    let (rows, channels) = (direct.out_channels(), direct.in_channels());
    let strides = WeightStrides::new(direction, weight.image_stride, weight.channel_stride, rows, channels);
    let no_bias = Bias { memory: target.memory(0)?, dtype: output.dtype, stride: 0 };
    let bias = bias.unwrap_or(no_bias);
    let element = class.size() as i64;
    let lanes = native_lanes(target, class);
    let args = entry::ConvDirect {
        input: input.memory,
        input_dtype: input.dtype,
        weight: weight.memory,
        weight_dtype: weight.dtype,
        bias: bias.memory,
        bias_dtype: bias.dtype,
        bias_stride: bias.stride,
        out: output.memory,
        out_dtype: output.dtype,
        conv: direct.layout(Some(boxes)),
        weight_layout: strides.layout(&weight),
        output: direct.output_strides(),
        out_channels: rows,
        planes: local(direct.elements(boxes, lanes).input * channels, element),
        local_weight: local(direct.k() * rows, element),
        offsets: local(direct.k(), 4),
    };
    let count = direct.box_count(boxes);
    launch(target, &*program(target, class, input.dtype)?, entry::CONV_DIRECT, &args, [groups, count, output.images])?;
    Ok(true)
}

/// Computes the gradient of the weight; `epilogue` takes it as rows of output channels and columns of (input channels,
/// kernel elements). Returns false, without doing anything, if a box does not fit local memory.
///
/// # Errors
/// Errors reported by the allocator or the driver.
pub(in crate::ops) fn backward_weight(
    target: &Target,
    direct: &Direct,
    class: Class,
    epilogue: &Epilogue<'_>,
) -> Result<bool> {
    let Direct { input, output, groups, .. } = *direct;
    let rows = direct.out_channels();
    let Some(boxes) = direct.fit(target, class, rows, 1) else { return Ok(false) };
    let splits = div_ceil(occupancy_target(target), groups).min(output.images).max(1);
    let size = GemmSize { rows, columns: direct.k(), k: 0, batches: groups };
    let element = class.size() as i64;
    let workspace = target.workspace((splits * groups * rows * direct.k() * element) as usize)?;
    let sums = target.memory(workspace.address)?;
    let elements = direct.elements(boxes, native_lanes(target, class));
    let args = direct.weight_args(sums, boxes, elements, [direct.k(), rows], element);
    launch(target, &*program(target, class, input.dtype)?, entry::CONV_DIRECT_WEIGHT, &args, [groups, splits, 1])?;
    finish(target, class, size, splits, sums, epilogue)?;
    Ok(true)
}
