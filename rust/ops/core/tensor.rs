//! Tensors as launchers see them.

use crate::abi::Tensor;
use crate::kernels::{Class, DType};

impl<'a> Tensor<'a> {
    /// An optional argument that was not given.
    pub const ABSENT: Tensor<'static> = Tensor { address: 0, dtype: DType::U8, sizes: &[], strides: &[] };

    /// Number of elements.
    pub fn numel(&self) -> i64 {
        self.sizes.iter().product()
    }

    /// Number of dimensions.
    pub fn ndim(&self) -> usize {
        self.sizes.len()
    }

    /// Size of a dimension; 1 beyond the last.
    pub fn size(&self, dim: usize) -> i64 {
        self.sizes.get(dim).copied().unwrap_or(1)
    }

    /// Stride of a dimension in elements; 0 beyond the last.
    pub fn stride(&self, dim: usize) -> i64 {
        self.strides.get(dim).copied().unwrap_or(0)
    }

    /// The tensor at one index of its outermost dimension.
    #[must_use]
    pub fn at(&self, index: i64) -> Self {
        let step = index * self.stride(0) * self.dtype.size() as i64;
        Self {
            address: self.address.wrapping_add_signed(step as isize),
            dtype: self.dtype,
            sizes: self.sizes.get(1..).unwrap_or_default(),
            strides: self.strides.get(1..).unwrap_or_default(),
        }
    }

    /// Bytes from the first element to the last, gaps of a tensor that is not dense included.
    pub fn span(&self) -> usize {
        if self.sizes.contains(&0) {
            return 0;
        }
        let last: i64 = self.sizes.iter().zip(self.strides).map(|(size, stride)| (size - 1) * stride).sum();
        (last + 1) as usize * self.dtype.size()
    }

    /// The class that the tensor's dtype is computed in.
    pub fn class(&self) -> Class {
        self.dtype.class()
    }

    /// Returns true if the elements are dense in row-major order.
    pub fn is_contiguous(&self) -> bool {
        let mut expected = 1;
        self.sizes.iter().zip(self.strides).rev().all(|(&size, &stride)| {
            let fits = size == 1 || stride == expected;
            expected *= size;
            fits
        })
    }

    /// Returns true if the tensor is present (an optional argument that was given and has elements).
    pub fn is_present(&self) -> bool {
        self.address != 0
    }

    /// "torch.float32[2, 3]", for messages.
    pub fn describe(&self) -> String {
        format!("{}{:?}", self.dtype.name(), self.sizes)
    }
}
