//! Pointwise ops for C++.

use super::ffi::{Operand, Scalar};
use super::fused::ffi::ListOperand;
use crate::error::Result;
use crate::kernels::DType;
use crate::ops::list_norm::{self, Norm};
use crate::ops::{self, foreach};

pub fn pointwise(
    op: u32,
    compute: i32,
    shape: &[i64],
    outputs: usize,
    operands: &[Operand<'_>],
    scalars: &[Scalar],
    casts: u32,
) -> Result<()> {
    let operands = operands.iter().map(Operand::operand).collect::<Result<Vec<_>>>()?;
    let scalars: Vec<_> = scalars.iter().map(|scalar| (*scalar).into()).collect();
    ops::pointwise::launch(op, DType::from_code(compute)?, shape, outputs, &operands, &scalars, casts)
}

pub fn foreach(
    op: u32,
    counts: &[i64],
    lists: &[ListOperand<'_>],
    numbers: &[Scalar],
    number_is_input: bool,
) -> Result<()> {
    let lists = lists.iter().map(ListOperand::list).collect::<Result<Vec<_>>>()?;
    let numbers: Vec<_> = numbers.iter().map(|number| (*number).into()).collect();
    foreach::launch(op, counts, &lists, &numbers, number_is_input)
}

pub fn foreach_norm(order: f64, counts: &[i64], out: &ListOperand<'_>, tensors: &ListOperand<'_>) -> Result<()> {
    list_norm::launch(Norm::of_order(order)?, counts, &out.list()?, &tensors.list()?)
}
