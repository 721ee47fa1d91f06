//! Casts for launchers of other families.

use super::pointwise;
use super::row::PointwiseOp;
use crate::error::Result;
use crate::ops::core::space::{coalesce, dims};
use crate::ops::{Operand, Scalar, Tensor};

/// Copies `src` to `dst`, of the same shape, with a cast between floating-point or between complex dtypes.
///
/// # Errors
/// Errors reported by the driver.
pub(in crate::ops) fn cast(dst: &Tensor<'_>, src: &Tensor<'_>) -> Result<()> {
    let space = coalesce(dims([dst, src]));
    let shape: Vec<i64> = space.iter().map(|dim| dim.size).collect();
    let (to, from): (Vec<i64>, Vec<i64>) = space.iter().map(|dim| (dim.strides[0], dim.strides[1])).unzip();
    let operand = |tensor: &Tensor<'_>, strides| Operand {
        address: tensor.address,
        dtype: tensor.dtype,
        strides,
        value: Scalar::default(),
    };
    let operands = [operand(dst, to.as_slice()), operand(src, from.as_slice())];
    pointwise(PointwiseOp::PrivateCopyFrom as u32, src.dtype, &shape, 1, &operands, &[], 0)
}
