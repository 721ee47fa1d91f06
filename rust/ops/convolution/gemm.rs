//! A convolution as a GEMM.

use super::{winograd, Bias, ConvDirection, WeightStrides};
use crate::error::Result;
use crate::ops::matmul::epilogue::Epilogue;
use crate::ops::matmul::fused_source::Fused;
use crate::ops::matmul::gemm::multiply;
use crate::ops::matmul::im2col::{Im2col, KernelMap, Volume};
use crate::ops::matmul::matrix::{Axis, Matrix, MatrixOperand};
use crate::ops::matmul::operands::{Gemm, GemmOperand, Im2colOperand};
use crate::ops::matmul::plan::GemmSize;
use crate::ops::{Target, Tensor};

/// A convolution with evenly spaced output positions and kernel elements.
#[derive(Clone, Copy, Debug)]
pub(in crate::ops) struct SubConvolution {
    pub out: Volume,
    pub input: Volume,
    pub weight: Volume,
    pub bias: Option<Bias>,
    pub kernel_map: KernelMap,
    pub groups: i64,
    pub direction: ConvDirection,
}

impl SubConvolution {
    pub fn run(&self, target: &Target, out: &Tensor<'_>, fused: Option<Fused<'_>>) -> Result<()> {
        if self.out.numel() == 0 {
            return Ok(());
        }
        if fused.is_none() {
            if let Some(convolution) = winograd::Convolution::of(target, self, out.class()) {
                return convolution.run(target, out.class());
            }
        }
        let (rows, channels) = (self.out_channels(), self.input.channels / self.groups);
        let strides =
            WeightStrides::new(self.direction, self.weight.image_stride, self.weight.channel_stride, rows, channels);
        let im2col = Im2col::of(&self.input, self.kernel_map, self.groups);
        let (memory, dtype) = (self.input.memory, self.input.dtype);
        let image = if self.groups == 1 { im2col.image_for(target, dtype, rows)? } else { None };
        let parts = if image.is_some() { Parts::Images } else { Parts::Groups };
        let weight = MatrixOperand {
            memory: self.weight.memory,
            dtype: self.weight.dtype,
            layout: Matrix {
                rows: Axis::line(rows, strides.out),
                columns: self.weight.kernel_axis(channels, strides.input, im2col.order())?,
                batch_stride: if parts == Parts::Images { 0 } else { strides.group },
            },
        };
        let columns = parts.volume(&self.out).images * self.out.positions();
        let k = channels * self.kernel_map.kernel_size.iter().product::<i64>();
        let matrix = match image {
            Some(image) => Some(image),
            None => im2col.matrix_for(target, dtype, rows.min(columns), k)?,
        };
        let matrix = matrix.map(|layout| MatrixOperand { memory, dtype, layout });
        let packed = GemmOperand::Im2col(Im2colOperand { memory, dtype, im2col });
        let epilogue = Epilogue { fused, ..self.epilogue(parts)? };
        let batches = if parts == Parts::Images { self.out.images } else { self.groups };
        let gemm = Gemm {
            class: out.class(),
            size: GemmSize { rows, columns, k, batches },
            a: GemmOperand::Matrix(weight),
            b: matrix.map_or(packed, |matrix| GemmOperand::Matrix(matrix.transposed())),
            may_round: false,
            epilogue,
        };
        // Columns are stored as vectors, so the operand that is contiguous in the result becomes the columns.
        if self.out.channel_stride == 1 && rows > 1 {
            let (a, b) = (matrix.map_or(packed, GemmOperand::Matrix), GemmOperand::Matrix(weight.transposed()));
            let epilogue = epilogue.transposed();
            let size = GemmSize { rows: columns, columns: rows, ..gemm.size };
            return multiply(target, &Gemm { size, a, b, epilogue, ..gemm });
        }
        multiply(target, &gemm)
    }

    /// Output channels of a group.
    pub fn out_channels(&self) -> i64 {
        self.out.channels / self.groups
    }

    /// Output channels as rows, output positions as columns.
    fn epilogue(&self, parts: Parts) -> Result<Epilogue<'static>> {
        let (channels, volume) = (self.out_channels(), parts.volume(&self.out));
        let of_group = channels * self.out.channel_stride;
        let layout = Matrix {
            rows: Axis::line(channels, self.out.channel_stride),
            columns: volume.position_axis()?,
            batch_stride: if parts == Parts::Images { self.out.image_stride } else { of_group },
        };
        let bias = self.bias.map(|Bias { memory, dtype, stride }| {
            let columns = Axis::line(volume.images * volume.positions(), 0);
            let batch_stride = if parts == Parts::Images { 0 } else { channels * stride };
            let layout = Matrix { rows: Axis::line(channels, stride), columns, batch_stride };
            MatrixOperand { memory, dtype, layout }
        });
        Ok(Epilogue::plain(MatrixOperand { memory: self.out.memory, dtype: self.out.dtype, layout }, bias))
    }
}

/// The GEMMs of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Parts {
    /// One for each group of channels, with the positions of all images.
    Groups,
    /// One for each image, with all channels.
    Images,
}

impl Parts {
    /// The images of a GEMM.
    const fn volume(self, all: &Volume) -> Volume {
        match self {
            Self::Groups => *all,
            Self::Images => Volume { images: 1, ..*all },
        }
    }
}
