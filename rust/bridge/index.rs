//! Moves by index for C++.

use super::ffi::{IndexAxis, TensorArg};
use crate::error::Result;
use crate::ops;

fn axes<'a>(axes: &[IndexAxis<'a>]) -> Result<Vec<ops::index::Axis<'a>>> {
    axes.iter()
        .map(|axis| {
            let (index, bad) = (axis.index.tensor()?, ops::index::BadIndex::from_code(axis.bad)?);
            Ok(ops::index::Axis { index, size: axis.size, stride: axis.stride, dim: axis.dim, wraps: axis.wraps, bad })
        })
        .collect()
}

pub fn index_get(dst: &TensorArg<'_>, src: &TensorArg<'_>, list: &[IndexAxis<'_>]) -> Result<()> {
    ops::index::get(&dst.tensor()?, &src.tensor()?, &axes(list)?)
}

pub fn index_set(
    dst: &TensorArg<'_>,
    src: &TensorArg<'_>,
    list: &[IndexAxis<'_>],
    op: i32,
    in_order: bool,
) -> Result<()> {
    let order = if in_order { ops::update::Order::Sequential } else { ops::update::Order::Any };
    ops::update::set(&dst.tensor()?, &src.tensor()?, &axes(list)?, ops::update::SetOp::from_code(op)?, order)
}

pub fn nonzero_count(input: &TensorArg<'_>, counts: &TensorArg<'_>) -> Result<()> {
    ops::search::nonzero_count(&input.tensor()?, &counts.tensor()?)
}

pub fn nonzero_write(input: &TensorArg<'_>, ends: &TensorArg<'_>, out: &TensorArg<'_>) -> Result<()> {
    ops::search::nonzero_write(&input.tensor()?, &ends.tensor()?, &out.tensor()?)
}

pub fn searchsorted(
    out: &TensorArg<'_>,
    values: &TensorArg<'_>,
    boundaries: &TensorArg<'_>,
    sorter: &TensorArg<'_>,
    right: bool,
) -> Result<()> {
    ops::search::searchsorted(&out.tensor()?, &values.tensor()?, &boundaries.tensor()?, &sorter.tensor()?, right)
}

pub fn triangle(dst: &TensorArg<'_>, src: &TensorArg<'_>, diagonal: i64, upper: bool) -> Result<()> {
    ops::copy::triangle(&dst.tensor()?, &src.tensor()?, diagonal, upper)
}
