//! Strided iteration spaces for kernels.

pub use super::structs::prelude::Layout;
use crate::error::{Error, Result};

/// Dimensions that a kernel supports; the bridge splits larger spaces into several launches.
pub const MAX_DIMS: usize = 8;
/// Operands of one layout.
pub const MAX_OPERANDS: usize = 5;

impl Layout {
    /// Creates a layout from sizes and, for each operand, byte strides; innermost dimension first.
    ///
    /// # Errors
    /// [`Error::Invalid`] if there are more dimensions or operands than kernels support, or lengths differ.
    pub fn new(sizes: &[i64], strides: &[&[i64]]) -> Result<Self> {
        let mut layout =
            Self { sizes: [1; MAX_DIMS], strides: [[0; MAX_DIMS]; MAX_OPERANDS], ndim: sizes.len() as i32, pad: 0 };
        if sizes.len() > MAX_DIMS || strides.len() > MAX_OPERANDS || strides.iter().any(|s| s.len() != sizes.len()) {
            return Err(Error::Invalid(format!(
                "OpenCL: a layout of {} dimensions and {} operands exceeds the limits ({MAX_DIMS} and {MAX_OPERANDS})",
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
}
