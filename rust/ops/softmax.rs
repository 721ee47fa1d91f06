//! Softmax and log-softmax along one dimension of contiguous tensors.

use super::geometry::{Columns, Geometry};
use super::tier::tier;
use super::{Target, Tensor};
use crate::cl::Arg;
use crate::error::Result;
use crate::kernels::{Class, DType, Family};

#[cxx::bridge(namespace = "torch_opencl::bridge")]
mod ffi {
    unsafe extern "C++" {
        include!("torch_opencl/rust/abi.rs.h");
        type Tensor<'a> = crate::abi::Tensor<'a>;
    }

    extern "Rust" {
        fn softmax(input: &Tensor, output: &Tensor, dim: usize, log: bool) -> Result<()>;
        fn softmax_backward(grad: &Tensor, output: &Tensor, grad_input: &Tensor, dim: usize, log: bool) -> Result<()>;
    }
}

/// Vectors of columns that an item takes at most: pieces of 2 KiB, all of whose sums fit the nearest cache.
const WIDEST_STRIP: i64 = 32;
/// Wide strips are worth more than even shares: a quarter of the groups that `Geometry` would make.
const STRIPS_FOR_GROUP: i64 = 4;

/// Writes the softmax of `input` along `dim`, or its logarithm, into `output`. Both are contiguous and of one shape.
///
/// # Errors
/// As the driver reports.
pub fn softmax(input: &Tensor<'_>, output: &Tensor<'_>, dim: usize, log: bool) -> Result<()> {
    launch(["softmax_rows", "softmax_columns"], &[input, output], dim, log)
}

/// Writes the gradient of the softmax's input, from that of its output and from the output. All are contiguous and of
/// one shape.
///
/// # Errors
/// As the driver reports.
pub fn softmax_backward(
    grad: &Tensor<'_>,
    output: &Tensor<'_>,
    grad_input: &Tensor<'_>,
    dim: usize,
    log: bool,
) -> Result<()> {
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
    let by_rows = inner == 1 && !geometry.starves(length);
    let geometry = if by_rows { geometry } else { geometry.for_columns() };
    let mut constants: Vec<_> = DTYPES.iter().copied().zip(tensors.iter().map(|tensor| tensor.dtype.code())).collect();
    constants.push(("SPEC_LOG", i32::from(log)));
    let strip = Strip::of(&geometry, outer, inner);
    let spec = geometry.define(tier(count, &constants)).define("STRIP", strip.longest);
    let program = target.program(Family::Softmax, class, &spec)?;

    let mut args = Vec::with_capacity(2 * tensors.len() + 4);
    for tensor in tensors {
        args.push(target.tensor(tensor)?);
        args.push(Arg::Int(tensor.dtype.code()));
    }
    args.extend([Arg::Long(outer), Arg::Long(length)]);
    if by_rows {
        args.push(Arg::Int(i32::from(log)));
        let (global, local) = geometry.groups_for(outer);
        return target.launch(&program, rows, &args, &global, Some(&local));
    }
    args.extend([Arg::Long(inner), Arg::Long(strip.vectors), Arg::Int(i32::from(log))]);
    let tasks = Columns { tasks: outer * strip.count, beside: strip.count, length, is_row: inner == 1 };
    geometry.launch_columns(&target, &program, columns, &args, tasks)
}

/// How columns are cut.
struct Strip {
    /// Vectors of each that a program is built for.
    longest: i64,
    /// Vectors of each.
    vectors: i64,
    /// Strips of a row.
    count: i64,
}

impl Strip {
    /// As wide as leaves every core of a CPU some; items of other devices read side by side, and take single columns.
    fn of(geometry: &Geometry, outer: i64, inner: i64) -> Self {
        let longest = if geometry.group == 1 { WIDEST_STRIP } else { 1 };
        let vectors = (inner as u64).div_ceil(geometry.lanes as u64) as i64;
        let share = vectors * outer * STRIPS_FOR_GROUP / geometry.groups as i64;
        let strip = share.clamp(1, longest);
        Self { longest, vectors: strip, count: (vectors as u64).div_ceil(strip as u64) as i64 }
    }
}
