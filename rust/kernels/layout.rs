//! Strided iteration spaces, as kernels take them by value.

use crate::error::{Error, Result};

/// Dimensions that a kernel walks; the bridge folds more into repeated launches.
pub const MAX_DIMS: usize = 8;
/// Operands of one layout.
pub const MAX_OPERANDS: usize = 5;

/// Sizes and byte strides, innermost dimension first; the `Layout` of `cl/prelude.cl`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct Layout {
    sizes: [i64; MAX_DIMS],
    strides: [[i64; MAX_DIMS]; MAX_OPERANDS],
    ndim: i32,
    pad: i32,
}

impl Layout {
    /// From sizes and, per operand, byte strides; innermost dimension first.
    ///
    /// # Errors
    /// [`Error::Invalid`] when there are more dimensions or operands than kernels walk, or lengths differ.
    pub fn new(sizes: &[i64], strides: &[&[i64]]) -> Result<Self> {
        let mut layout =
            Self { sizes: [1; MAX_DIMS], strides: [[0; MAX_DIMS]; MAX_OPERANDS], ndim: sizes.len() as i32, pad: 0 };
        if sizes.len() > MAX_DIMS || strides.len() > MAX_OPERANDS || strides.iter().any(|s| s.len() != sizes.len()) {
            return Err(Error::Invalid(format!(
                "OpenCL: a layout of {} dimensions and {} operands is more than kernels walk ({MAX_DIMS} and {MAX_OPERANDS})",
                sizes.len(),
                strides.len()
            )));
        }
        for (slot, size) in layout.sizes.iter_mut().zip(sizes) {
            *slot = *size;
        }
        for (row, operand) in layout.strides.iter_mut().zip(strides) {
            for (slot, stride) in row.iter_mut().zip(*operand) {
                *slot = *stride;
            }
        }
        Ok(layout)
    }

    /// Number of dimensions.
    pub fn ndim(&self) -> i32 {
        self.ndim
    }

    /// The bytes a kernel takes by value.
    pub fn as_bytes(&self) -> &[u8] {
        // SAFETY: the struct is `repr(C)`, of integers only, without padding (the last field is explicit).
        unsafe { std::slice::from_raw_parts(std::ptr::from_ref(self).cast(), size_of::<Self>()) }
    }
}
