//! Operands of a GEMM: strided matrices, or the im2col matrix of a convolution.

use super::epilogue::Epilogue;
use super::im2col::Im2col;
use super::matrix::{Matrix, MatrixOperand};
use super::plan::GemmSize;
use crate::cl::Memory;
use crate::kernels::{Class, DType};

/// The im2col matrix of a tensor in device memory.
#[derive(Clone, Copy, Debug)]
pub struct Im2colOperand {
    /// Buffer and offset of the tensor.
    pub memory: Memory,
    /// Storage dtype.
    pub dtype: DType,
    /// Layout of the matrix.
    pub im2col: Im2col,
}

/// Operand A or B of a GEMM.
#[derive(Clone, Copy, Debug)]
pub enum GemmOperand {
    /// A strided matrix.
    Matrix(MatrixOperand),
    /// An im2col matrix, with k over its columns: channels at kernel elements.
    Im2col(Im2colOperand),
    /// Its transpose, with k over output positions.
    Im2colTransposed(Im2colOperand),
}

impl GemmOperand {
    /// The value of `gemm_operands.cl` for this kind of operand.
    pub(in crate::ops) const fn kind(&self) -> i64 {
        match self {
            Self::Matrix(_) => 0,
            Self::Im2col(_) => 1,
            Self::Im2colTransposed(_) => 2,
        }
    }

    pub(in crate::ops) const fn memory(&self) -> Memory {
        match self {
            Self::Matrix(matrix) => matrix.memory,
            Self::Im2col(input) | Self::Im2colTransposed(input) => input.memory,
        }
    }

    pub(in crate::ops) const fn dtype(&self) -> DType {
        match self {
            Self::Matrix(matrix) => matrix.dtype,
            Self::Im2col(input) | Self::Im2colTransposed(input) => input.dtype,
        }
    }

    /// The layout of a matrix. For an im2col matrix, only `batch_stride` counts: from one group to the next.
    pub(in crate::ops) const fn layout(&self) -> Matrix {
        match self {
            Self::Matrix(matrix) => matrix.layout,
            Self::Im2col(input) | Self::Im2colTransposed(input) => {
                Matrix { batch_stride: input.im2col.group_stride, ..Matrix::dense(0, 0) }
            }
        }
    }

    /// Elements from the first to the last of a matrix, or of the images.
    pub(in crate::ops) fn span(&self) -> i64 {
        match self {
            Self::Matrix(matrix) => matrix.layout.span(),
            Self::Im2col(input) | Self::Im2colTransposed(input) => input.im2col.elements(),
        }
    }

    pub(in crate::ops) const fn im2col(&self) -> Option<Im2col> {
        match self {
            Self::Matrix(_) => None,
            Self::Im2col(input) | Self::Im2colTransposed(input) => Some(input.im2col),
        }
    }
}

/// A GEMM to compute.
#[derive(Clone, Copy, Debug)]
pub struct Gemm<'a> {
    /// Compute class.
    pub class: Class,
    /// Rows, columns and K, and the batch size.
    pub size: GemmSize,
    /// Operand A.
    pub a: GemmOperand,
    /// Operand B; only one of the two is an im2col matrix.
    pub b: GemmOperand,
    /// True if float32 operands may be rounded to TensorFloat-32 where PyTorch's settings allow it for matmuls.
    pub may_round: bool,
    /// Its epilogue, which contains the result.
    pub epilogue: Epilogue<'a>,
}
