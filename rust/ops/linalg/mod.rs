//! Factorisations and triangular solves of blocks of matrices, on GPUs. `cpp/native/linalg.cpp` builds those of whole
//! matrices from them. Every matrix is a batch, [batch, rows, columns], with any strides.

use std::sync::Arc;

use crate::error::{Error, Result};
use crate::kernels::entry::{self, InfoArguments, MatrixArguments, RightArguments};
use crate::kernels::{CachedProgram, Class, Family, Spec};
use crate::ops::core::forms::{Form, FLOATS_AND_COMPLEX};
use crate::ops::core::space::div_ceil;
use crate::ops::core::target::ITEM_GROUP;
use crate::ops::{Target, Tensor};

#[cxx::bridge(namespace = "torch_opencl::bridge")]
mod ffi {
    unsafe extern "C++" {
        include!("torch_opencl/rust/abi.rs.h");
        type Tensor<'a> = crate::abi::Tensor<'a>;
    }

    extern "Rust" {
        fn linalg_block() -> i64;
        fn lu_panel(a: &Tensor, pivots: &Tensor, infos: &Tensor, first: i64, pivoting: bool) -> Result<()>;
        fn swap_rows(a: &Tensor, pivots: &Tensor, first: i64, reverse: bool) -> Result<()>;
        fn unpack_pivots(order: &Tensor, pivots: &Tensor) -> Result<()>;
        fn solve_block(a: &Tensor, b: &Tensor, upper: bool, unitriangular: bool, conjugate: bool) -> Result<()>;
        fn cholesky_block(a: &Tensor, infos: &Tensor, first: i64) -> Result<()>;
        fn qr_panel(a: &Tensor, tau: &Tensor) -> Result<()>;
    }
}

/// Rows and columns of a block: two of complex128 fill the 32 KiB of local memory that every GPU has.
const BLOCK: i64 = 32;
/// Items of a group if a block is in local memory.
const BLOCK_GROUP: usize = 64;
/// Items of a group that shares the rows of a panel in global memory.
const PANEL_GROUP: usize = 256;
/// Columns that a group of `solve_block` takes, one for each item.
const SOLVE_GROUP: usize = 32;

/// Maximum number of columns that a block or a panel has.
pub fn linalg_block() -> i64 {
    BLOCK
}

/// Computes the LU factorisation of a panel in place; rows are swapped within the panel only. Column 0 is column
/// `first` of the matrix, and `pivots` are rows of the matrix. `infos` is set to the first column without a pivot if it
/// was 0.
///
/// # Errors
/// [`Error::Invalid`] for more columns than a block has.
pub fn lu_panel(a: &Tensor<'_>, pivots: &Tensor<'_>, infos: &Tensor<'_>, first: i64, pivoting: bool) -> Result<()> {
    check_block("lu_panel", a.size(2))?;
    let target = Target::of(a.address)?;
    let (program, group) = panel_program(&target, Family::Linalg, a)?;
    let args = entry::LuPanel {
        matrix: matrix(&target, a)?,
        pivots: target.tensor(pivots)?,
        pivots_batch: pivots.stride(0),
        info: InfoArguments { infos: target.tensor(infos)? },
        rows: a.size(1),
        columns: a.size(2) as i32,
        first: first as i32,
        pivoting: i32::from(pivoting),
    };
    target.launch(&program, entry::LU_PANEL, &args, &[a.size(0) as usize * group], Some(&[group]))
}

/// Swaps the rows of all columns as an LU factorisation did from column `first` on, or in `reverse`. Row 0 is row
/// `first` of the factorisation.
///
/// # Errors
/// Errors reported by the driver.
pub fn swap_rows(a: &Tensor<'_>, pivots: &Tensor<'_>, first: i64, reverse: bool) -> Result<()> {
    let target = Target::of(a.address)?;
    let program = program(&target, a.class(), ITEM_GROUP)?;
    let items = a.size(0) * a.size(2);
    let args = entry::SwapRows {
        matrix: matrix(&target, a)?,
        pivots: target.tensor(pivots)?,
        pivots_batch: pivots.stride(0),
        rows: a.size(1),
        columns: a.size(2),
        items,
        steps: pivots.size(1) as i32,
        first: first as i32,
        is_reverse: i32::from(reverse),
    };
    launch_items(&target, &program, entry::SWAP_ROWS, &args, items)
}

/// Turns the identities in `order` into the permutations given by the pivots of an LU factorisation. Both are
/// contiguous.
///
/// # Errors
/// Errors reported by the driver; pivots that are not a row are reported at the host's next wait.
pub fn unpack_pivots(order: &Tensor<'_>, pivots: &Tensor<'_>) -> Result<()> {
    let target = Target::of(order.address)?;
    let program = program(&target, Class::Float, ITEM_GROUP)?;
    let (rows, steps) = (order.size(1), pivots.size(1));
    let items = order.size(0);
    let args = entry::UnpackPivots {
        order: target.tensor(order)?,
        pivots: target.tensor(pivots)?,
        faults: target.faults()?,
        items,
        rows,
        steps,
    };
    launch_items(&target, &program, entry::UNPACK_PIVOTS, &args, items)
}

/// Solves `a @ x = b` for a triangle of at most one block, or for its conjugate; `x` replaces `b`.
///
/// # Errors
/// [`Error::Invalid`] for a larger triangle.
pub fn solve_block(a: &Tensor<'_>, b: &Tensor<'_>, upper: bool, unitriangular: bool, conjugate: bool) -> Result<()> {
    check_block("solve_block", a.size(1))?;
    let target = Target::of(b.address)?;
    let program = program(&target, b.class(), SOLVE_GROUP)?;
    let columns = b.size(2);
    let strips = div_ceil(columns, SOLVE_GROUP as i64);
    let [batch, row, column] = strides(b);
    let args = entry::SolveBlock {
        matrix: matrix(&target, a)?,
        right: RightArguments { b: target.tensor(b)?, b_batch: batch, b_row: row, b_column: column },
        columns,
        strips,
        n: a.size(1) as i32,
        is_upper: i32::from(upper),
        is_unit: i32::from(unitriangular),
        is_conjugate: i32::from(conjugate),
    };
    let groups = (b.size(0) * strips) as usize;
    target.launch(&program, entry::SOLVE_BLOCK, &args, &[groups * SOLVE_GROUP], Some(&[SOLVE_GROUP]))
}

/// Computes the lower Cholesky factor of at most one block in place; `first` and `infos` are as in [`lu_panel`], for
/// columns whose leading minor is not positive.
///
/// # Errors
/// [`Error::Invalid`] for a larger matrix.
pub fn cholesky_block(a: &Tensor<'_>, infos: &Tensor<'_>, first: i64) -> Result<()> {
    check_block("cholesky_block", a.size(1))?;
    let target = Target::of(a.address)?;
    let program = program(&target, a.class(), BLOCK_GROUP)?;
    let args = entry::CholeskyBlock {
        matrix: matrix(&target, a)?,
        info: InfoArguments { infos: target.tensor(infos)? },
        n: a.size(1) as i32,
        first: first as i32,
    };
    let global = a.size(0) as usize * BLOCK_GROUP;
    target.launch(&program, entry::CHOLESKY_BLOCK, &args, &[global], Some(&[BLOCK_GROUP]))
}

/// Computes the QR factorisation of a panel in place, with at least as many rows as columns.
///
/// # Errors
/// [`Error::Invalid`] for more columns than a block has.
pub fn qr_panel(a: &Tensor<'_>, tau: &Tensor<'_>) -> Result<()> {
    check_block("qr_panel", a.size(2))?;
    let target = Target::of(a.address)?;
    let (program, group) = panel_program(&target, Family::Householder, a)?;
    let args = entry::QrPanel {
        matrix: matrix(&target, a)?,
        taus: target.tensor(tau)?,
        taus_batch: tau.stride(0),
        rows: a.size(1),
        columns: a.size(2) as i32,
    };
    target.launch(&program, entry::QR_PANEL, &args, &[a.size(0) as usize * group], Some(&[group]))
}

fn check_block(name: &str, size: i64) -> Result<()> {
    if size <= BLOCK {
        return Ok(());
    }
    Err(Error::Invalid(format!("OpenCL: {name} takes at most {BLOCK} columns, got {size}")))
}

fn strides(a: &Tensor<'_>) -> [i64; 3] {
    [a.stride(0), a.stride(1), a.stride(2)]
}

fn matrix(target: &Target, a: &Tensor<'_>) -> Result<MatrixArguments> {
    let [batch, row, column] = strides(a);
    Ok(MatrixArguments { a: target.tensor(a)?, a_batch: batch, a_row: row, a_column: column })
}

fn program(target: &Target, class: Class, group: usize) -> Result<Arc<CachedProgram>> {
    target.program(Family::Linalg, class, &spec(group))
}

fn spec(group: usize) -> Spec {
    Spec::generic().define("BLOCK", BLOCK).define("LSIZE", group as i64)
}

/// The generic programs.
pub(in crate::ops) fn forms(target: &Target) -> Vec<Form> {
    let others = [ITEM_GROUP, SOLVE_GROUP, BLOCK_GROUP].map(spec);
    let others = others.into_iter().flat_map(|spec| FLOATS_AND_COMPLEX.map(|class| (class, spec.clone())));
    panel_forms(target).into_iter().chain(others).collect()
}

/// The generic programs for panels.
pub(in crate::ops) fn panel_forms(target: &Target) -> Vec<Form> {
    let specs = [true, false].map(|fits| panel_spec(target, fits).0);
    specs.into_iter().flat_map(|spec| FLOATS_AND_COMPLEX.map(|class| (class, spec.clone()))).collect()
}

/// The constants for a panel, and the items of a group.
fn panel_spec(target: &Target, fits: bool) -> (Spec, usize) {
    let largest = 1 << target.device.info.max_work_group.max(1).ilog2();
    let group = if fits { BLOCK_GROUP } else { PANEL_GROUP }.min(largest);
    (if fits { spec(group).define("IN_LOCAL", 1) } else { spec(group) }, group)
}

/// The program for a panel, which is moved to local memory if it fits, and the items of a group.
fn panel_program(target: &Target, family: Family, a: &Tensor<'_>) -> Result<(Arc<CachedProgram>, usize)> {
    let (spec, group) = panel_spec(target, a.size(1) <= BLOCK);
    Ok((target.program(family, a.class(), &spec)?, group))
}

fn launch_items<A: entry::Arguments>(
    target: &Target,
    program: &CachedProgram,
    kernel: entry::EntryPoint<A>,
    args: &A,
    items: i64,
) -> Result<()> {
    let global = (items as usize).next_multiple_of(ITEM_GROUP);
    target.launch(program, kernel, args, &[global], Some(&[ITEM_GROUP]))
}
