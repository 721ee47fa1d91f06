//! Pointwise ops for C++.

use super::ffi::{Operand, Scalar};
use crate::error::Result;
use crate::kernels::DType;
use crate::ops;

pub fn pointwise(
    op: u32,
    compute: i32,
    shape: &[i64],
    outputs: usize,
    operands: &[Operand<'_>],
    scalars: &[Scalar],
) -> Result<()> {
    let operands = operands.iter().map(Operand::operand).collect::<Result<Vec<_>>>()?;
    let scalars: Vec<_> = scalars.iter().map(|scalar| (*scalar).into()).collect();
    ops::pointwise::launch(op, DType::from_code(compute)?, shape, outputs, &operands, &scalars)
}
