//! Operands of a GEMM: strided matrices, or the patches of a convolution.

use super::epilogue::Epilogue;
use super::matrix::{Matrix, Operand};
use super::patches::Patches;
use super::plan::Size;
use crate::cl::Memory;
use crate::kernels::{Class, DType};

/// Patches of a tensor in device memory.
#[derive(Clone, Copy, Debug)]
pub struct PatchOperand {
    /// Buffer and offset of the tensor.
    pub memory: Memory,
    /// Storage dtype.
    pub dtype: DType,
    /// Layout of the patches.
    pub patches: Patches,
}

/// Operand A or B of a GEMM.
#[derive(Clone, Copy, Debug)]
pub enum Factor {
    /// A strided matrix.
    Matrix(Operand),
    /// The patch matrix, with k over its features.
    Pixels(PatchOperand),
    /// The patch matrix, with k over its output positions.
    Features(PatchOperand),
}

impl Factor {
    /// As in `patch_grid.cl`.
    pub(in crate::ops) const fn kind(&self) -> i64 {
        match self {
            Self::Matrix(_) => 0,
            Self::Pixels(_) => 1,
            Self::Features(_) => 2,
        }
    }

    pub(in crate::ops) const fn memory(&self) -> Memory {
        match self {
            Self::Matrix(matrix) => matrix.memory,
            Self::Pixels(source) | Self::Features(source) => source.memory,
        }
    }

    pub(in crate::ops) const fn dtype(&self) -> DType {
        match self {
            Self::Matrix(matrix) => matrix.dtype,
            Self::Pixels(source) | Self::Features(source) => source.dtype,
        }
    }

    /// The layout of a matrix; of patches, only from one group to the next.
    pub(in crate::ops) const fn layout(&self) -> Matrix {
        match self {
            Self::Matrix(matrix) => matrix.layout,
            Self::Pixels(source) | Self::Features(source) => {
                Matrix { batch_stride: source.patches.group_stride, ..Matrix::dense(0, 0) }
            }
        }
    }

    pub(in crate::ops) const fn patches(&self) -> Option<Patches> {
        match self {
            Self::Matrix(_) => None,
            Self::Pixels(source) | Self::Features(source) => Some(source.patches),
        }
    }
}

/// A GEMM to compute.
#[derive(Clone, Copy, Debug)]
pub struct Product {
    /// Compute class.
    pub class: Class,
    /// Rows, columns and K, and the batch size.
    pub size: Size,
    /// Operand A.
    pub a: Factor,
    /// Operand B; only one of the two is patches.
    pub b: Factor,
    /// Its epilogue, which has the result.
    pub epilogue: Epilogue,
}
