//! Convolutions and their gradients, in one to three dimensions.
//!
//! Two functions cover all six passes. [`convolve`] computes a value for each output position: the forward and the
//! gradient of the input, which are each other's transpose. [`convolve_weights`] computes one for each weight. A
//! transposed convolution is the same with the roles of input and output exchanged.

pub mod channels;
pub mod direct;
pub mod phases;
pub mod weight;
pub mod winograd;

use self::direct::Direct;
use self::phases::phases;
use crate::cl::Memory;
use crate::error::{Error, Result};
use crate::kernels::structs::conv::TapStrides;
use crate::kernels::DType;
use crate::ops::matmul::epilogue::Epilogue;
use crate::ops::matmul::gemm::multiply;
use crate::ops::matmul::matrix::{Axis, Matrix, Operand};
use crate::ops::matmul::patches::{spatial, FeatureOrder, Patches, Volume, Window};
use crate::ops::matmul::plan::Size;
use crate::ops::matmul::product::{Factor, PatchOperand, Product};
use crate::ops::{Target, Tensor};

#[cxx::bridge(namespace = "torch_opencl::bridge")]
mod ffi {
    /// The parameters of a convolution.
    #[derive(Clone, Copy, Debug)]
    pub struct ConvParameters<'a> {
        /// Source positions between output positions, outermost dimension first, as in Python.
        pub stride: &'a [i64],
        /// Zeros around the source.
        pub padding: &'a [i64],
        /// Positions between kernel elements.
        pub dilation: &'a [i64],
        /// Groups of channels.
        pub groups: i64,
    }

    /// How the weight is applied.
    #[derive(Debug)]
    #[repr(i32)]
    pub enum ConvDirection {
        /// Each output position gathers from all kernel elements: the weight is (result channels, source channels of a
        /// group, kernel).
        Forward,
        /// The transpose, in which a source position scatters over the kernel elements: the weight is (source channels,
        /// result channels of a group, kernel).
        Transposed,
    }

    unsafe extern "C++" {
        include!("torch_opencl/rust/abi.rs.h");
        type Tensor<'a> = crate::abi::Tensor<'a>;
    }

    extern "Rust" {
        fn convolve(
            out: &Tensor,
            source: &Tensor,
            weight: &Tensor,
            bias: &Tensor,
            parameters: &ConvParameters,
            direction: ConvDirection,
        ) -> Result<()>;
        fn convolve_weights(
            out: &Tensor,
            source: &Tensor,
            gradient: &Tensor,
            parameters: &ConvParameters,
        ) -> Result<()>;
    }
}

pub use ffi::{ConvDirection, ConvParameters};

/// Source channels, and result channels, of a group up to which packing costs more than it saves.
const DIRECT_CHANNELS: i64 = measured!("CONV_DIRECT_CHANNELS", 4);
/// The same for the gradient of the weight: of both multiplied.
const DIRECT_WEIGHTS: i64 = 32;

/// A value for each result channel.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bias {
    pub memory: Memory,
    pub dtype: DType,
    pub stride: i64,
}

/// The weight as the matrix of a group: strides between result channels, source channels and groups.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct WeightStrides {
    pub out: i64,
    pub source: i64,
    pub group: i64,
}

impl WeightStrides {
    /// With the strides of the kernel elements.
    pub fn of_taps(self, weight: &Volume) -> TapStrides {
        let Self { out, source, group } = self;
        TapStrides { strides: weight.strides, out_stride: out, source_stride: source, group_stride: group }
    }

    /// From the strides of the weight's first two dimensions.
    pub const fn new(
        direction: ConvDirection,
        first: i64,
        second: i64,
        out_channels: i64,
        source_channels: i64,
    ) -> Self {
        match direction {
            ConvDirection::Forward => Self { out: first, source: second, group: first * out_channels },
            _ => Self { out: second, source: first, group: first * source_channels },
        }
    }
}

/// A value for each output position: `out = source * weight + bias`. `Forward` is the forward of a convolution and the
/// gradient of a transposed one's input; `Transposed` is the gradient of a convolution's input and the forward of a
/// transposed one.
///
/// # Errors
/// [`Error::Invalid`] when channels do not fit; otherwise as the allocator and the driver report.
pub fn convolve(
    out: &Tensor<'_>,
    source: &Tensor<'_>,
    weight: &Tensor<'_>,
    bias: &Tensor<'_>,
    parameters: &ConvParameters<'_>,
    direction: ConvDirection,
) -> Result<()> {
    if out.numel() == 0 {
        return Ok(());
    }
    let target = Target::of(out.address)?;
    let (result, from, factors) =
        (Volume::of(&target, out)?, Volume::of(&target, source)?, Volume::of(&target, weight)?);
    let groups = check_groups(&result, &from, parameters, out, source)?;
    let bias = if bias.is_present() {
        Some(Bias { memory: target.tensor(bias)?, dtype: bias.dtype, stride: bias.stride(0) })
    } else {
        None
    };
    let (rows, channels) = (result.channels / groups, from.channels / groups);
    if rows.max(channels) <= DIRECT_CHANNELS {
        let direct = Direct::new(from, result, factors, parameters, direction);
        if channels::suits(&direct) {
            return channels::pixels(&target, &direct, direction, bias, out.class());
        }
        if direct::pixels(&target, &direct, direction, bias, out.class())? {
            return Ok(());
        }
    }
    let [along_w, along_h, along_d] = phases(direction, parameters, factors.sizes, result.sizes);
    for d in &along_d {
        for h in &along_h {
            for w in &along_w {
                let phase = [w, h, d];
                let taps = phase.map(|dim| dim.taps);
                // Where no kernel element reaches a dimension, none reaches the output position.
                let taps = if taps.contains(&0) { [0; 3] } else { taps };
                let window = Window {
                    pixels: phase.map(|dim| dim.pixels),
                    taps,
                    scale: phase.map(|dim| dim.scale),
                    origin: phase.map(|dim| dim.origin),
                    step: phase.map(|dim| dim.step),
                };
                let part = Part {
                    out: result.every(phase.map(|dim| dim.first_pixel), phase.map(|dim| dim.pixel_step), window.pixels),
                    source: from,
                    weight: factors.every(phase.map(|dim| dim.first_tap), phase.map(|dim| dim.tap_step), taps),
                    bias,
                    window,
                    groups,
                    direction,
                };
                part.run(&target, out)?;
            }
        }
    }
    Ok(())
}

/// A convolution with evenly spaced output positions and kernel elements.
#[derive(Clone, Copy, Debug)]
pub(super) struct Part {
    pub out: Volume,
    pub source: Volume,
    pub weight: Volume,
    pub bias: Option<Bias>,
    pub window: Window,
    pub groups: i64,
    pub direction: ConvDirection,
}

impl Part {
    fn run(&self, target: &Target, out: &Tensor<'_>) -> Result<()> {
        if self.out.numel() == 0 {
            return Ok(());
        }
        if let Some(pixels) = winograd::Pixels::of(target, self, out.class()) {
            return pixels.run(target, out.class());
        }
        let (rows, channels) = (self.out_channels(), self.source.channels / self.groups);
        let strides =
            WeightStrides::new(self.direction, self.weight.image_stride, self.weight.channel_stride, rows, channels);
        let patches = Patches::of(&self.source, self.window, self.groups);
        let weight = Operand {
            memory: self.weight.memory,
            dtype: self.weight.dtype,
            layout: Matrix {
                rows: Axis::line(rows, strides.out),
                columns: self.weight.features(channels, strides.source, patches.order())?,
                batch_stride: strides.group,
            },
        };
        let (memory, dtype) = (self.source.memory, self.source.dtype);
        let matrix = patches.matrix()?.map(|layout| Operand { memory, dtype, layout });
        let packed = Factor::Pixels(PatchOperand { memory, dtype, patches });
        let columns = self.out.images * self.out.positions();
        let epilogue = self.epilogue()?;
        let product = Product {
            class: out.class(),
            size: Size {
                rows,
                columns,
                depth: channels * self.window.taps.iter().product::<i64>(),
                batches: self.groups,
            },
            a: Factor::Matrix(weight),
            b: matrix.map_or(packed, |matrix| Factor::Matrix(matrix.transposed())),
            epilogue,
        };
        // The side whose neighbours are neighbours in the result becomes the columns, which are stored as vectors.
        if self.out.channel_stride == 1 && rows > 1 {
            let (a, b) = (matrix.map_or(packed, Factor::Matrix), Factor::Matrix(weight.transposed()));
            let epilogue = epilogue.transposed();
            let size = Size { rows: columns, columns: rows, ..product.size };
            return multiply(target, &Product { size, a, b, epilogue, ..product });
        }
        multiply(target, &product)
    }

    /// Result channels of a group.
    pub fn out_channels(&self) -> i64 {
        self.out.channels / self.groups
    }

    /// Result channels as rows, output positions as columns.
    pub fn epilogue(&self) -> Result<Epilogue> {
        let channels = self.out_channels();
        let layout = Matrix {
            rows: Axis::line(channels, self.out.channel_stride),
            columns: self.out.pixels()?,
            batch_stride: channels * self.out.channel_stride,
        };
        let bias = self.bias.map(|Bias { memory, dtype, stride }| {
            let columns = Axis::line(self.out.images * self.out.positions(), 0);
            let layout = Matrix { rows: Axis::line(channels, stride), columns, batch_stride: channels * stride };
            Operand { memory, dtype, layout }
        });
        Ok(Epilogue::plain(Operand { memory: self.out.memory, dtype: self.out.dtype, layout }, bias))
    }
}

/// A value for each weight: the gradient of a convolution's weight (result channels, source channels of a group,
/// kernel) from its input and the gradient of its output; for a transposed convolution, from the gradient of its output
/// and its input.
///
/// # Errors
/// As [`convolve`].
pub fn convolve_weights(
    out: &Tensor<'_>,
    source: &Tensor<'_>,
    gradient: &Tensor<'_>,
    parameters: &ConvParameters<'_>,
) -> Result<()> {
    if out.numel() == 0 {
        return Ok(());
    }
    let target = Target::of(out.address)?;
    let (result, from, factors) =
        (Volume::of(&target, out)?, Volume::of(&target, source)?, Volume::of(&target, gradient)?);
    let groups = check_groups(&factors, &from, parameters, gradient, source)?;
    let (rows, channels) = (factors.channels / groups, from.channels / groups);
    let window = Window {
        pixels: factors.sizes,
        taps: result.sizes,
        scale: spatial(parameters.stride, 1),
        origin: spatial(parameters.padding, 0).map(|padding| -padding),
        step: spatial(parameters.dilation, 1),
    };
    let patches = Patches::of(&from, window, groups);
    let epilogue = |order: FeatureOrder| -> Result<Epilogue> {
        let layout = Matrix {
            rows: Axis::line(rows, result.image_stride),
            columns: result.features(channels, result.channel_stride, order)?,
            batch_stride: rows * result.image_stride,
        };
        Ok(Epilogue::plain(Operand { memory: result.memory, dtype: result.dtype, layout }, None))
    };
    let direct = Direct::new(from, factors, result, parameters, ConvDirection::Forward);
    if rows * channels <= DIRECT_WEIGHTS {
        if channels::suits(&direct) {
            let layout = Matrix {
                rows: result.features(1, 0, FeatureOrder::TapsInnermost)?,
                columns: Axis::line(groups, result.image_stride),
                batch_stride: 0,
            };
            let out_operand = Operand { memory: result.memory, dtype: result.dtype, layout };
            return channels::weights(&target, &direct, out.class(), &Epilogue::plain(out_operand, None));
        }
        if direct::weights(&target, &direct, out.class(), &epilogue(FeatureOrder::TapsInnermost)?)? {
            return Ok(());
        }
    }
    let by_features = epilogue(FeatureOrder::TapsInnermost)?.transposed();
    if weight::weights(&target, &direct, out.class(), &by_features)? {
        return Ok(());
    }
    if let Some(weights) = winograd::Weights::of(&target, result, from, factors, window, groups, out.class()) {
        return weights.run(&target, out.class());
    }
    let a = Operand {
        memory: factors.memory,
        dtype: factors.dtype,
        layout: Matrix {
            rows: Axis::line(rows, factors.channel_stride),
            columns: factors.pixels()?,
            batch_stride: rows * factors.channel_stride,
        },
    };
    let product = Product {
        class: out.class(),
        size: Size {
            rows,
            columns: channels * result.positions(),
            depth: factors.images * factors.positions(),
            batches: groups,
        },
        a: Factor::Matrix(a),
        b: match patches.matrix()? {
            Some(layout) => Factor::Matrix(Operand { memory: from.memory, dtype: from.dtype, layout }),
            None => Factor::Features(PatchOperand { memory: from.memory, dtype: from.dtype, patches }),
        },
        epilogue: epilogue(patches.order())?,
    };
    multiply(&target, &product)
}

fn check_groups(
    result: &Volume,
    source: &Volume,
    parameters: &ConvParameters<'_>,
    result_tensor: &Tensor<'_>,
    source_tensor: &Tensor<'_>,
) -> Result<i64> {
    let groups = parameters.groups;
    if groups < 1 || result.channels % groups != 0 || source.channels % groups != 0 {
        return Err(Error::Invalid(format!(
            "OpenCL: channels of {} and {} do not make {groups} groups",
            source_tensor.describe(),
            result_tensor.describe()
        )));
    }
    Ok(groups)
}
