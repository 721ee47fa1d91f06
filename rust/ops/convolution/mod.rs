//! Convolutions and their gradients, in one to three dimensions.
//!
//! Two functions cover all six passes. [`convolve`] computes a value for each output position: the forward pass and the
//! gradient of the input, which are each other's transpose. [`convolve_backward_weight`] computes a value for each
//! weight. A transposed convolution exchanges the roles of input and output.

pub mod backward_weight;
pub mod channels;
pub mod direct;
mod format;
mod fused;
mod gemm;
pub mod sub_convolutions;
pub mod winograd;

use self::direct::Direct;
use self::gemm::SubConvolution;
use self::sub_convolutions::sub_convolution_dims;
use crate::cl::Memory;
use crate::error::{Error, Result};
use crate::kernels::structs::conv::WeightLayout;
use crate::kernels::DType;
use crate::ops::matmul::epilogue::Epilogue;
use crate::ops::matmul::fused_source::Fused;
use crate::ops::matmul::gemm::multiply;
use crate::ops::matmul::im2col::{spatial, Im2col, Im2colOrder, KernelMap, Volume};
use crate::ops::matmul::matrix::{Axis, Matrix, MatrixOperand};
use crate::ops::matmul::operands::{Gemm, GemmOperand, Im2colOperand};
use crate::ops::matmul::plan::GemmSize;
use crate::ops::{Target, Tensor};

#[cxx::bridge(namespace = "torch_opencl::bridge")]
mod ffi {
    /// The parameters of a convolution.
    #[derive(Clone, Copy, Debug)]
    pub struct ConvParameters<'a> {
        /// Input positions between output positions, outermost dimension first, as in Python.
        pub stride: &'a [i64],
        /// Zeros around the input.
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
        /// Each output position gathers from all kernel elements: the weight is (output channels, input channels of a
        /// group, kernel).
        Forward,
        /// The transpose, in which an input position scatters over the kernel elements: the weight is (input channels,
        /// output channels of a group, kernel).
        Transposed,
    }

    unsafe extern "C++" {
        include!("torch_opencl/rust/abi.rs.h");
        type Tensor<'a> = crate::abi::Tensor<'a>;
    }

    extern "Rust" {
        fn convolve(
            out: &Tensor,
            input: &Tensor,
            weight: &Tensor,
            bias: &Tensor,
            parameters: &ConvParameters,
            direction: ConvDirection,
        ) -> Result<()>;
        fn convolve_backward_weight(
            grad_weight: &Tensor,
            input: &Tensor,
            grad_output: &Tensor,
            parameters: &ConvParameters,
        ) -> Result<()>;
    }
}

pub use ffi::{ConvDirection, ConvParameters};

/// Maximum number of input channels, and output channels, of a group for which packing costs more than it saves.
const DIRECT_CHANNELS: i64 = measured!("CONV_DIRECT_CHANNELS", 4);
/// For the gradient of the weight: the largest product of both.
const DIRECT_WEIGHTS: i64 = 32;

/// A value for each output channel.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bias {
    pub memory: Memory,
    pub dtype: DType,
    pub stride: i64,
}

/// The weight as the matrix of a group: strides between output channels, input channels and groups.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct WeightStrides {
    pub out: i64,
    pub input: i64,
    pub group: i64,
}

impl WeightStrides {
    /// The layout, with the strides of the kernel elements.
    pub fn layout(self, weight: &Volume) -> WeightLayout {
        let Self { out, input, group } = self;
        WeightLayout { strides: weight.strides, out_stride: out, in_stride: input, group_stride: group }
    }

    /// From the strides of the weight's first two dimensions.
    pub const fn new(direction: ConvDirection, first: i64, second: i64, out_channels: i64, in_channels: i64) -> Self {
        match direction {
            ConvDirection::Forward => Self { out: first, input: second, group: first * out_channels },
            _ => Self { out: second, input: first, group: first * in_channels },
        }
    }
}

/// Computes a value for each output position: `out = input * weight + bias`. `Forward` is a convolution's forward pass
/// or a transposed convolution's input gradient; `Transposed` is a convolution's input gradient or a transposed
/// convolution's forward pass.
///
/// # Errors
/// [`Error::Invalid`] for channels that do not match the groups; otherwise as the allocator and the driver report.
pub fn convolve(
    out: &Tensor<'_>,
    input: &Tensor<'_>,
    weight: &Tensor<'_>,
    bias: &Tensor<'_>,
    parameters: &ConvParameters<'_>,
    direction: ConvDirection,
) -> Result<()> {
    if out.numel() == 0 {
        return Ok(());
    }
    compute(&Target::of(out.address)?, [out, input, weight, bias], parameters, direction, None)
}

/// Returns true if a GEMM computes convolutions with so many channels in a group, on GPUs always.
fn is_gemm(out_channels: i64, in_channels: i64) -> bool {
    out_channels.max(in_channels) > DIRECT_CHANNELS
}

/// Computes a convolution of `[out, input, weight, bias]`; with a fused epilogue only by a GEMM.
fn compute(
    target: &Target,
    [out, input, weight, bias]: [&Tensor<'_>; 4],
    parameters: &ConvParameters<'_>,
    direction: ConvDirection,
    fused: Option<Fused<'_>>,
) -> Result<()> {
    let (output, image, kernel) = (Volume::of(target, out)?, Volume::of(target, input)?, Volume::of(target, weight)?);
    let groups = check_groups(&output, &image, parameters, out, input)?;
    let bias = if bias.is_present() {
        Some(Bias { memory: target.tensor(bias)?, dtype: bias.dtype, stride: bias.stride(0) })
    } else {
        None
    };
    let (rows, channels) = (output.channels / groups, image.channels / groups);
    if fused.is_none() && !is_gemm(rows, channels) {
        let direct = Direct::new(image, output, kernel, parameters, direction);
        if channels::suits(&direct) {
            return channels::convolve(target, &direct, direction, bias, out.class());
        }
        if direct::convolve(target, &direct, direction, bias, out.class())? {
            return Ok(());
        }
    }
    let [along_w, along_h, along_d] = sub_convolution_dims(direction, parameters, kernel.sizes, output.sizes);
    for d in &along_d {
        for h in &along_h {
            for w in &along_w {
                let dims = [w, h, d];
                let kernel_size = dims.map(|dim| dim.kernel_size);
                // If no kernel element reaches the position in one dimension, none reaches it at all.
                let kernel_size = if kernel_size.contains(&0) { [0; 3] } else { kernel_size };
                let kernel_map = KernelMap {
                    out_sizes: dims.map(|dim| dim.out_size),
                    kernel_size,
                    stride: dims.map(|dim| dim.stride),
                    origin: dims.map(|dim| dim.origin),
                    dilation: dims.map(|dim| dim.dilation),
                };
                let part = SubConvolution {
                    out: output.every(
                        dims.map(|dim| dim.first_out),
                        dims.map(|dim| dim.out_step),
                        kernel_map.out_sizes,
                    ),
                    input: image,
                    weight: kernel.every(
                        dims.map(|dim| dim.first_element),
                        dims.map(|dim| dim.element_step),
                        kernel_size,
                    ),
                    bias,
                    kernel_map,
                    groups,
                    direction,
                };
                part.run(target, out, fused)?;
            }
        }
    }
    Ok(())
}

/// Computes the gradient of a convolution's weight (output channels, input channels of a group, kernel) from its input
/// and the gradient of its output; for a transposed convolution, from the gradient of its output and its input.
///
/// # Errors
/// See [`convolve`].
pub fn convolve_backward_weight(
    grad_weight: &Tensor<'_>,
    input: &Tensor<'_>,
    grad_output: &Tensor<'_>,
    parameters: &ConvParameters<'_>,
) -> Result<()> {
    if grad_weight.numel() == 0 {
        return Ok(());
    }
    let target = Target::of(grad_weight.address)?;
    let (kernel, image, gradient) =
        (Volume::of(&target, grad_weight)?, Volume::of(&target, input)?, Volume::of(&target, grad_output)?);
    let groups = check_groups(&gradient, &image, parameters, grad_output, input)?;
    let (rows, channels) = (gradient.channels / groups, image.channels / groups);
    let kernel_map = KernelMap {
        out_sizes: gradient.sizes,
        kernel_size: kernel.sizes,
        stride: spatial(parameters.stride, 1),
        origin: spatial(parameters.padding, 0).map(|padding| -padding),
        dilation: spatial(parameters.dilation, 1),
    };
    let im2col = Im2col::of(&image, kernel_map, groups);
    let epilogue = |order: Im2colOrder| -> Result<Epilogue<'static>> {
        let layout = Matrix {
            rows: Axis::line(rows, kernel.image_stride),
            columns: kernel.kernel_axis(channels, kernel.channel_stride, order)?,
            batch_stride: rows * kernel.image_stride,
        };
        Ok(Epilogue::plain(MatrixOperand { memory: kernel.memory, dtype: kernel.dtype, layout }, None))
    };
    let direct = Direct::new(image, gradient, kernel, parameters, ConvDirection::Forward);
    if rows * channels <= DIRECT_WEIGHTS {
        if channels::suits(&direct) {
            let layout = Matrix {
                rows: kernel.kernel_axis(1, 0, Im2colOrder::KernelInnermost)?,
                columns: Axis::line(groups, kernel.image_stride),
                batch_stride: 0,
            };
            let out_operand = MatrixOperand { memory: kernel.memory, dtype: kernel.dtype, layout };
            return channels::backward_weight(
                &target,
                &direct,
                grad_weight.class(),
                &Epilogue::plain(out_operand, None),
            );
        }
        if direct::backward_weight(&target, &direct, grad_weight.class(), &epilogue(Im2colOrder::KernelInnermost)?)? {
            return Ok(());
        }
    }
    let transposed = epilogue(Im2colOrder::KernelInnermost)?.transposed();
    if backward_weight::backward_weight(&target, &direct, grad_weight.class(), &transposed)? {
        return Ok(());
    }
    if let Some(convolution) =
        winograd::BackwardWeight::of(&target, kernel, image, gradient, kernel_map, groups, grad_weight.class())
    {
        return convolution.run(&target, grad_weight.class());
    }
    let a = MatrixOperand {
        memory: gradient.memory,
        dtype: gradient.dtype,
        layout: Matrix {
            rows: Axis::line(rows, gradient.channel_stride),
            columns: gradient.position_axis()?,
            batch_stride: rows * gradient.channel_stride,
        },
    };
    let size = GemmSize {
        rows,
        columns: channels * kernel.positions(),
        k: gradient.images * gradient.positions(),
        batches: groups,
    };
    let gemm = Gemm {
        class: grad_weight.class(),
        size,
        a: GemmOperand::Matrix(a),
        b: match im2col.matrix_for(&target, image.dtype, size.rows.min(size.columns), size.k)? {
            Some(layout) => GemmOperand::Matrix(MatrixOperand { memory: image.memory, dtype: image.dtype, layout }),
            None => GemmOperand::Im2colTransposed(Im2colOperand { memory: image.memory, dtype: image.dtype, im2col }),
        },
        may_round: false,
        epilogue: epilogue(im2col.order())?,
    };
    multiply(&target, &gemm)
}

fn check_groups(
    result: &Volume,
    input: &Volume,
    parameters: &ConvParameters<'_>,
    result_tensor: &Tensor<'_>,
    input_tensor: &Tensor<'_>,
) -> Result<i64> {
    let groups = parameters.groups;
    if groups < 1 || result.channels % groups != 0 || input.channels % groups != 0 {
        return Err(Error::Invalid(format!(
            "OpenCL: channels of {} and {} cannot be divided into {groups} groups",
            input_tensor.describe(),
            result_tensor.describe()
        )));
    }
    Ok(groups)
}
