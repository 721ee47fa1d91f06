//! Tensors viewed as matrices: an index may run over several dimensions, so no copy is needed to merge them.

use crate::cl::Memory;
use crate::error::{Error, Result};
pub use crate::kernels::structs::matrix::{Axis, Matrix};
use crate::kernels::DType;
use crate::ops::Tensor;

impl Axis {
    /// An index over one dimension.
    pub const fn line(size: i64, stride: i64) -> Self {
        Self { sizes: [size, 1, 1, 1], strides: [stride, 0, 0, 0] }
    }

    /// An index over dimensions of (size, stride), innermost first. Dimensions that one stride can walk are merged.
    ///
    /// # Errors
    /// [`Error::Invalid`] if more dimensions remain than kernels can walk.
    pub fn nest(dims: &[(i64, i64)]) -> Result<Self> {
        let mut joined: Vec<(i64, i64)> = Vec::with_capacity(dims.len());
        for &(size, stride) in dims.iter().filter(|(size, _)| *size != 1) {
            match joined.last_mut() {
                Some((inner, inner_stride)) if *inner * *inner_stride == stride => *inner *= size,
                _ => joined.push((size, stride)),
            }
        }
        if joined.len() > Self::line(1, 0).sizes.len() {
            return Err(Error::Invalid(format!("OpenCL: a matrix index over {joined:?} has too many dimensions")));
        }
        let mut axis = Self::line(1, 0);
        for ((size, stride), level) in axis.sizes.iter_mut().zip(&mut axis.strides).zip(joined) {
            (*size, *stride) = level;
        }
        Ok(axis)
    }

    /// Number of indices.
    pub fn size(&self) -> i64 {
        self.sizes.iter().product()
    }

    /// Elements from one index of a line to the next.
    pub fn stride(&self) -> i64 {
        self.strides.first().copied().unwrap_or(0)
    }

    /// Elements from the first index to the last.
    pub fn span(&self) -> i64 {
        self.sizes.iter().zip(self.strides).map(|(size, stride)| (size - 1).max(0) * stride.abs()).sum()
    }

    /// Returns true if all indices are equally far apart in memory.
    pub fn is_line(&self) -> bool {
        self.sizes.iter().skip(1).all(|size| *size == 1)
    }

    /// Returns true if neighbouring indices are neighbours in memory.
    pub fn is_dense(&self) -> bool {
        self.strides.first() == Some(&1) || self.size() == 1
    }
}

impl Matrix {
    /// A dense row-major matrix.
    pub const fn dense(rows: i64, columns: i64) -> Self {
        Self { rows: Axis::line(rows, columns), columns: Axis::line(columns, 1), batch_stride: rows * columns }
    }

    /// The last two dimensions of a tensor as rows and columns, the one before, if any, as the batch.
    pub fn of(tensor: &Tensor<'_>) -> Self {
        let dim = tensor.ndim();
        let line = |back: usize| {
            dim.checked_sub(back).map_or(Axis::line(1, 0), |d| Axis::line(tensor.size(d), tensor.stride(d)))
        };
        let batch_stride = dim.checked_sub(3).map_or(0, |d| tensor.stride(d));
        Self { rows: line(2), columns: line(1), batch_stride }
    }

    /// With rows and columns exchanged.
    #[must_use]
    pub const fn transposed(self) -> Self {
        Self { rows: self.columns, columns: self.rows, batch_stride: self.batch_stride }
    }

    /// Elements from the first to the last of one matrix.
    pub fn span(&self) -> i64 {
        self.rows.span() + self.columns.span()
    }

    /// The layout with strides in 16-bit elements.
    #[must_use]
    pub fn in_halves(self, dtype: DType) -> Self {
        let scaled = |axis: Axis| Axis { strides: axis.strides.map(|stride| halves(stride, dtype)), ..axis };
        Self { rows: scaled(self.rows), columns: scaled(self.columns), batch_stride: halves(self.batch_stride, dtype) }
    }
}

/// The 16-bit elements of so many values.
pub const fn halves(values: i64, dtype: DType) -> i64 {
    values * dtype.size() as i64 / 2
}

/// A matrix in device memory.
#[derive(Clone, Copy, Debug)]
pub struct MatrixOperand {
    /// Its buffer and offset.
    pub memory: Memory,
    /// Storage dtype.
    pub dtype: DType,
    /// Layout of its elements.
    pub layout: Matrix,
}

impl MatrixOperand {
    /// With rows and columns exchanged.
    #[must_use]
    pub const fn transposed(self) -> Self {
        Self { memory: self.memory, dtype: self.dtype, layout: self.layout.transposed() }
    }
}

/// The memory `elements` elements after `memory`.
pub fn advance(memory: Memory, elements: i64, dtype: DType) -> Memory {
    Memory { offset: memory.offset.saturating_add_signed(elements * dtype.size() as i64), ..memory }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neighbouring_dimensions_are_joined() {
        // The positions of a contiguous batch of images are one level in an image and one over images.
        let positions = Axis::nest(&[(5, 1), (4, 5), (1, 7), (2, 60)]).map(|axis| (axis.sizes, axis.strides));
        assert_eq!(positions, Ok(([20, 2, 1, 1], [1, 60, 0, 0])));
        assert_eq!(Axis::nest(&[(5, 0), (4, 0)]).map(|axis| axis.size()), Ok(20));
        assert!(Axis::nest(&[(2, 1), (2, 4), (2, 16), (2, 64), (2, 256)]).is_err());
    }
}
