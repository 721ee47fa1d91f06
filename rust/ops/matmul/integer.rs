//! Products of int8 matrices with int32 results, by instructions that have int32 sums.

use super::gemm_tile::plan;
use super::matrix::{Matrix, MatrixOperand};
use super::operands::{Gemm, GemmOperand};
use super::plan::GemmSize;
use super::Epilogue;
use crate::error::Result;
use crate::kernels::Class;
use crate::ops::tuning::Tuning;
use crate::ops::{Target, Tensor};

#[cxx::bridge(namespace = "torch_opencl::bridge")]
mod ffi {
    unsafe extern "C++" {
        include!("torch_opencl/rust/abi.rs.h");
        type Tensor<'a> = crate::abi::Tensor<'a>;
    }

    extern "Rust" {
        fn int8_product(out: &Tensor, a: &Tensor, b: &Tensor) -> Result<bool>;
    }
}

/// `out = a @ b` for int8 matrices and a contiguous int32 result, with exact sums modulo 2^32. Returns false, and computes
/// nothing, if the device has no instructions for operands of this size and layout.
///
/// # Errors
/// Errors reported by the allocator or the driver.
fn int8_product(out: &Tensor<'_>, a: &Tensor<'_>, b: &Tensor<'_>) -> Result<bool> {
    let target = Target::of(out.address)?;
    let Tuning::Gpu(tuning) = Tuning::of(target.device) else { return Ok(false) };
    let operand = |tensor: &Tensor<'_>| -> Result<MatrixOperand> {
        Ok(MatrixOperand { memory: target.tensor(tensor)?, dtype: tensor.dtype, layout: Matrix::of(tensor) })
    };
    let gemm = Gemm {
        class: Class::Float,
        size: GemmSize { rows: out.size(0), columns: out.size(1), k: a.size(1), batches: 1 },
        a: GemmOperand::Matrix(operand(a)?),
        b: GemmOperand::Matrix(operand(b)?),
        may_round: false,
        epilogue: Epilogue::plain(operand(out)?, None),
    };
    let Some(plan) = plan(&target, &gemm, &tuning)? else { return Ok(false) };
    if plan.has_splits() {
        target.fill(out.address, 0, out.numel() as usize * out.dtype.size())?;
    }
    plan.run(&target, &gemm, &tuning)?;
    Ok(true)
}
