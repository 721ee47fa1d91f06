//! Matmuls of a CSR matrix and a dense one, with a choice of reduction.

use crate::error::Result;
use crate::kernels::{entry, Family};
use crate::ops::core::geometry::Geometry;
use crate::ops::core::space::div_ceil;
use crate::ops::core::tier::tier;
use crate::ops::sparse::CsrMatrix;
use crate::ops::{Target, Tensor};

#[cxx::bridge(namespace = "torch_opencl::bridge")]
mod ffi {
    unsafe extern "C++" {
        include!("torch_opencl/rust/abi.rs.h");
        type Tensor<'a> = crate::abi::Tensor<'a>;
        include!("torch_opencl/rust/ops/sparse/mod.rs.h");
        type CsrMatrix<'a> = crate::ops::sparse::CsrMatrix<'a>;
    }

    extern "Rust" {
        fn sparse_mm_reduce(
            out: &Tensor,
            arg_out: &Tensor,
            matrix: &CsrMatrix,
            other: &Tensor,
            reduction: i32,
        ) -> Result<()>;
        fn sparse_mm_grad_values(
            grad_values: &Tensor,
            row_indices: &Tensor,
            col_indices: &Tensor,
            grad: &Tensor,
            other: &Tensor,
        ) -> Result<()>;
    }
}

/// Writes the sums, means or extremes of the products of each row of `matrix` and the columns of `other`. For extremes,
/// `arg_out`, which may be absent, gets their elements of `matrix`. `reduction` is an `at::native::ReductionType`.
///
/// # Errors
/// Errors reported by the driver.
pub fn sparse_mm_reduce(
    out: &Tensor<'_>,
    arg_out: &Tensor<'_>,
    matrix: &CsrMatrix<'_>,
    other: &Tensor<'_>,
    reduction: i32,
) -> Result<()> {
    let (rows, columns, nnz) = (out.size(0), out.size(1), matrix.values.numel());
    let target = Target::of(out.address)?;
    let geometry = Geometry::of(&target, out.class());
    let constants = [("SPEC_OP", reduction), ("SPEC_DTYPE0", out.dtype.code())];
    let spec = geometry.define(tier(nnz * columns, &constants));
    let program = target.program(Family::SegmentReduce, out.class(), &spec)?;
    let args = entry::SparseMmReduce {
        out: target.tensor(out)?,
        arg_out: target.tensor(arg_out)?,
        crow_indices: target.tensor(&matrix.crow_indices)?,
        col_indices: target.tensor(&matrix.col_indices)?,
        values: target.tensor(&matrix.values)?,
        other: target.tensor(other)?,
        dtype0: out.dtype,
        index_dtype: matrix.col_indices.dtype,
        op: reduction,
        rows,
        columns,
        other_rows: other.size(0),
        nnz,
    };
    let items = geometry.items_for(rows * div_ceil(columns, geometry.lanes as i64));
    target.launch(&program, entry::SPARSE_MM_REDUCE, &args, &items, None)
}

/// Writes the gradient of each element of a sparse matrix for sums: the dot product of a row of `grad` and a row of
/// `other`, given by the row and the column of the element. Indices have one dtype.
///
/// # Errors
/// Errors reported by the driver.
pub fn sparse_mm_grad_values(
    grad_values: &Tensor<'_>,
    row_indices: &Tensor<'_>,
    col_indices: &Tensor<'_>,
    grad: &Tensor<'_>,
    other: &Tensor<'_>,
) -> Result<()> {
    let (nnz, columns) = (grad_values.numel(), grad.size(1));
    let target = Target::of(grad_values.address)?;
    let geometry = Geometry::of(&target, grad.class());
    let spec = geometry.define(tier(nnz * columns, &[("SPEC_DTYPE0", grad.dtype.code())]));
    let program = target.program(Family::SegmentReduce, grad.class(), &spec)?;
    let args = entry::SparseMmGradValues {
        grad_values: target.tensor(grad_values)?,
        row_indices: target.tensor(row_indices)?,
        col_indices: target.tensor(col_indices)?,
        grad: target.tensor(grad)?,
        other: target.tensor(other)?,
        dtype0: grad.dtype,
        index_dtype: col_indices.dtype,
        rows: grad.size(0),
        columns,
        other_rows: other.size(0),
        nnz,
    };
    target.launch(&program, entry::SPARSE_MM_GRAD_VALUES, &args, &geometry.items_for(nnz), None)
}
