//! What is to be multiplied: strided matrices, or the patches of a convolution.

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
    /// Which patches.
    pub patches: Patches,
}

/// One of the two matrices that are multiplied.
#[derive(Clone, Copy, Debug)]
pub enum Factor {
    /// A strided matrix.
    Matrix(Operand),
    /// The patch matrix, with k over its features.
    Pixels(PatchOperand),
    /// The patch matrix, with k over its pixels.
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

/// A matrix product to be done.
#[derive(Clone, Copy, Debug)]
pub struct Product {
    /// What it is computed in.
    pub class: Class,
    /// Rows and columns of the result, terms of each sum, products.
    pub size: Size,
    /// The first factor.
    pub a: Factor,
    /// The second factor; only one of the two is patches.
    pub b: Factor,
    /// Where the result goes.
    pub epilogue: Epilogue,
}
