//! Scans, sorts and selections for C++.

use super::ffi::TensorArg;
use crate::error::Result;
use crate::ops;

pub fn scan(out: &TensorArg<'_>, input: &TensorArg<'_>, dim: usize, op: i32) -> Result<()> {
    ops::scan::scan(&out.tensor()?, &input.tensor()?, dim, ops::scan::ScanOp::from_code(op)?)
}

pub fn scan_extreme(
    values: &TensorArg<'_>,
    indices: &TensorArg<'_>,
    input: &TensorArg<'_>,
    dim: usize,
    largest: bool,
) -> Result<()> {
    ops::scan::extreme(&values.tensor()?, &indices.tensor()?, &input.tensor()?, dim, largest)
}

pub fn sort(values: &TensorArg<'_>, indices: &TensorArg<'_>, input: &TensorArg<'_>, descending: bool) -> Result<()> {
    ops::sort::sort(&values.tensor()?, &indices.tensor()?, &input.tensor()?, descending)
}

pub fn select(
    values: &TensorArg<'_>,
    indices: &TensorArg<'_>,
    input: &TensorArg<'_>,
    ranks: &TensorArg<'_>,
) -> Result<()> {
    ops::select::select(&values.tensor()?, &indices.tensor()?, &input.tensor()?, &ranks.tensor()?)
}
