//! Softmax and log-softmax along one dimension of contiguous tensors.

use super::geometry::Geometry;
use super::tier::tier;
use super::{Target, Tensor};
use crate::cl::Arg;
use crate::error::Result;
use crate::kernels::{Class, DType, Family};

/// Writes the softmax of `input` along `dim`, or its logarithm, into `output`. Both are contiguous and of one shape.
///
/// # Errors
/// As the driver reports.
pub fn forward(input: &Tensor<'_>, output: &Tensor<'_>, dim: usize, log: bool) -> Result<()> {
    launch(["softmax_rows", "softmax_columns"], &[input, output], dim, log)
}

/// Writes the gradient of the softmax's input, from that of its output and from the output. All are contiguous and of
/// one shape.
///
/// # Errors
/// As the driver reports.
pub fn backward(grad: &Tensor<'_>, output: &Tensor<'_>, grad_input: &Tensor<'_>, dim: usize, log: bool) -> Result<()> {
    launch(["softmax_backward_rows", "softmax_backward_columns"], &[grad, output, grad_input], dim, log)
}

/// Runs one of a pair of kernels: for softmax along the innermost dimension, and along another.
fn launch([rows, columns]: [&'static str; 2], tensors: &[&Tensor<'_>], dim: usize, log: bool) -> Result<()> {
    const DTYPES: [&str; 3] = ["SPEC_DTYPE0", "SPEC_DTYPE1", "SPEC_DTYPE2"];
    let Some(first) = tensors.first() else { return Ok(()) };
    let count = first.numel();
    if count == 0 {
        return Ok(());
    }
    let length = first.size(dim);
    let inner: i64 = first.sizes.iter().skip(dim + 1).product();
    let outer = count / length / inner;

    let target = Target::of(first.address)?;
    // Mixed calls (half in, float out) compute in float as well.
    let class = if first.dtype == DType::F64 { Class::Double } else { Class::Float };
    let geometry = Geometry::of(&target, class);
    let mut constants: Vec<_> = DTYPES.iter().copied().zip(tensors.iter().map(|tensor| tensor.dtype.code())).collect();
    constants.push(("SPEC_LOG", i32::from(log)));
    let program = target.program(Family::Softmax, class, &geometry.define(tier(count, &constants)))?;

    let mut args = Vec::with_capacity(2 * tensors.len() + 4);
    for tensor in tensors {
        args.push(target.tensor(tensor)?);
        args.push(Arg::Int(tensor.dtype.code()));
    }
    args.extend([Arg::Long(outer), Arg::Long(length)]);
    if inner == 1 && !geometry.starves(length) {
        args.push(Arg::Int(i32::from(log)));
        let (global, local) = geometry.groups_for(outer);
        return target.launch(&program, rows, &args, &global, Some(&local));
    }
    args.extend([Arg::Long(inner), Arg::Int(i32::from(log))]);
    let strips = (inner as u64).div_ceil(geometry.lanes as u64) as i64;
    target.launch(&program, columns, &args, &geometry.items_for(outer * strips), None)
}
