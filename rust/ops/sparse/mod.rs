//! Matmuls of sparse matrices.

use std::sync::Arc;

use crate::error::Result;
use crate::kernels::{entry, CachedProgram, Family};
use crate::ops::core::geometry::Geometry;
use crate::ops::core::space::div_ceil;
use crate::ops::core::tier::tier;
use crate::ops::{Target, Tensor};

#[cxx::bridge(namespace = "torch_opencl::bridge")]
mod ffi {
    /// A sparse matrix in CSR, all contiguous.
    #[derive(Clone, Copy, Debug)]
    pub struct CsrMatrix<'a> {
        /// First element of each row, and one past the last.
        pub crow_indices: Tensor<'a>,
        /// Column of each element, of the same dtype: int32 or int64.
        pub col_indices: Tensor<'a>,
        /// Value of each element.
        pub values: Tensor<'a>,
    }

    /// A sparse matrix whose elements are in any order, all contiguous.
    #[derive(Clone, Copy, Debug)]
    pub struct ScatteredMatrix<'a> {
        /// Row of each element: int32 or int64.
        pub rows: Tensor<'a>,
        /// Column of each element, of the same dtype; or, if it is compressed, the first element of each column and one
        /// past the last.
        pub columns: Tensor<'a>,
        /// Value of each element; absent if all are 1.
        pub values: Tensor<'a>,
        /// True for columns in compressed form.
        pub is_compressed: bool,
    }

    unsafe extern "C++" {
        include!("torch_opencl/rust/abi.rs.h");
        type Tensor<'a> = crate::abi::Tensor<'a>;
    }

    extern "Rust" {
        fn csr_matmul(out: &Tensor, matrix: &CsrMatrix, dense: &Tensor) -> Result<()>;
        fn scattered_matmul(out: &Tensor, matrix: &ScatteredMatrix, dense: &Tensor) -> Result<bool>;
    }
}

pub use ffi::{CsrMatrix, ScatteredMatrix};

/// Items side by side that read one row of the dense matrix on GPUs: a subgroup.
const ACROSS: i64 = 32;

/// `out = matrix @ dense`, of one dtype; `out` is contiguous, and rows of `dense` are.
///
/// # Errors
/// Errors reported by the driver.
pub fn csr_matmul(out: &Tensor<'_>, matrix: &CsrMatrix<'_>, dense: &Tensor<'_>) -> Result<()> {
    let (rows, columns) = (out.size(0), out.size(1));
    if rows == 0 || columns == 0 {
        return Ok(());
    }
    let target = Target::of(out.address)?;
    let geometry = Geometry::of(&target, out.class());
    let count = matrix.values.numel();
    let program = matmul_program(&target, &geometry, out, &matrix.col_indices, count)?;
    let csr = entry::CsrArguments {
        starts: target.tensor(&matrix.crow_indices)?,
        indices: target.tensor(&matrix.col_indices)?,
        values: target.tensor(&matrix.values)?,
        dense: target.tensor(dense)?,
        dtype0: out.dtype,
        dtype1: matrix.col_indices.dtype,
        out: target.tensor(out)?,
        rows,
        columns,
        inner: dense.size(0),
        count,
        step: dense.stride(0),
    };
    if geometry.group == 1 {
        let args = entry::CsrMatmulRows { csr };
        return target.launch(&program, entry::CSR_MATMUL_ROWS, &args, &geometry.items_for(rows), None);
    }
    let group = geometry.group as i64;
    let (across, along) = shares(group, columns, count / rows);
    let groups = div_ceil(rows * div_ceil(columns, across), group / (across * along));
    let args = entry::CsrMatmulGroup { csr, across: across as i32, along: along as i32 };
    target.launch(&program, entry::CSR_MATMUL_GROUP, &args, &[(groups * group) as usize], Some(&[geometry.group]))
}

/// The program of matmuls of a sparse matrix that has `count` elements, with `indices`.
fn matmul_program(
    target: &Target,
    geometry: &Geometry,
    out: &Tensor<'_>,
    indices: &Tensor<'_>,
    count: i64,
) -> Result<Arc<CachedProgram>> {
    let constants = [("SPEC_DTYPE0", out.dtype.code()), ("SPEC_DTYPE1", indices.dtype.code())];
    let spec = geometry.define(tier(count.max(out.size(0)) * out.size(1), &constants));
    target.program(Family::Sparse, out.class(), &spec)
}

/// Minimum number of rows of the result per CPU core for which cores share the rows: then all shares have elements.
const ROWS_FOR_A_CORE: usize = 4;

/// [`csr_matmul`] for elements in any order, summed in the dtype of `out`. Returns false, and computes nothing, on
/// GPUs, where items would race for a row, and for few rows.
///
/// # Errors
/// Errors reported by the driver.
pub fn scattered_matmul(out: &Tensor<'_>, matrix: &ScatteredMatrix<'_>, dense: &Tensor<'_>) -> Result<bool> {
    let (rows, columns) = (out.size(0), out.size(1));
    if out.numel() == 0 {
        return Ok(false);
    }
    let target = Target::of(out.address)?;
    if !target.is_cpu() || (rows as usize) < target.compute_units() * ROWS_FOR_A_CORE {
        return Ok(false);
    }
    let geometry = Geometry::of(&target, out.class());
    let count = matrix.rows.numel();
    let program = matmul_program(&target, &geometry, out, &matrix.rows, count)?;
    let args = entry::ScatteredMatmul {
        targets: target.tensor(&matrix.rows)?,
        sources: target.tensor(&matrix.columns)?,
        values: target.tensor(&matrix.values)?,
        dense: target.tensor(dense)?,
        dtype0: out.dtype,
        dtype1: matrix.rows.dtype,
        out: target.tensor(out)?,
        rows,
        columns,
        inner: dense.size(0),
        count,
        step: dense.stride(0),
        is_compressed: i32::from(matrix.is_compressed),
    };
    target.launch(&program, entry::SCATTERED_MATMUL, &args, &[target.compute_units()], None)?;
    Ok(true)
}

/// Items of a group that share the columns of a row, and how many times as many share its elements. A row has
/// `elements` elements on average, and each item should have two or more.
fn shares(group: i64, columns: i64, elements: i64) -> (i64, i64) {
    let power_of_two = |value: i64| 1_i64 << value.max(1).ilog2();
    let across = (columns as u64).next_power_of_two() as i64;
    let across = across.min(ACROSS).min(group);
    (across, power_of_two(elements / 2).min(ACROSS).min(group / across))
}

#[cfg(test)]
mod tests {
    use super::shares;

    #[test]
    fn items_share_elements_where_columns_are_few() {
        assert_eq!(shares(256, 1, 16), (1, 8));
        assert_eq!(shares(256, 1, 0), (1, 1));
        assert_eq!(shares(256, 1, 1 << 20), (1, 32));
        assert_eq!(shares(256, 3, 9), (4, 4));
        assert_eq!(shares(256, 64, 1000), (32, 8));
        assert_eq!(shares(1, 64, 1000), (1, 1));
    }
}
