//! GEMM for GPUs: work-groups share blocks of both operands in local memory.
//!
//! Nothing is packed. A block is read from the operand in place, a strided matrix or the patches of a convolution.

use std::sync::Arc;

use super::epilogue::Epilogue;
use super::matrix::{Matrix, Operand};
use super::patches::FeatureOrder;
use super::plan::Size;
use super::product::{Factor, Product};
use crate::cl::Memory;
use crate::error::{Error, Result};
use crate::kernels::entry;
use crate::kernels::structs::gemm_local::Extent;
use crate::kernels::{CachedProgram, Class, DType, Family, Spec};
use crate::ops::core::geometry::Geometry;
use crate::ops::core::space::div_ceil;
use crate::ops::core::target::ITEM_GROUP;
use crate::ops::tuning::GpuTuning;
use crate::ops::Target;

/// A part of k shorter than this does not repay sums of its own.
const SHORTEST_SPLIT: i64 = 256;
/// Work-groups for each compute unit that share a single dot product, and terms for each item from which they do.
const DOT_GROUPS: i64 = 8;
const DOT_TERMS: i64 = 16;

/// Returns true if neighbours along k are neighbours in memory, for an operand whose k is its matrix' column index, or
/// for `exchanged` its row index.
fn is_along_k(factor: &Factor, exchanged: bool) -> bool {
    match factor {
        Factor::Matrix(matrix) => {
            let Matrix { rows, columns, .. } = matrix.layout;
            let inner = if exchanged { rows } else { columns };
            inner.is_dense() && inner.size() > 1
        }
        Factor::Pixels(source) => source.patches.order() == FeatureOrder::ChannelsInnermost,
        Factor::Features(source) => source.patches.order() == FeatureOrder::TapsInnermost,
    }
}

/// Returns true if items walk an operand along neighbours in memory, and all its rows and columns are equally far
/// apart.
fn is_plain(factor: &Factor, along_k: bool, exchanged: bool) -> bool {
    let Factor::Matrix(matrix) = factor else { return false };
    let Matrix { rows, columns, .. } = matrix.layout;
    let outer = if exchanged { columns } else { rows };
    rows.is_line() && columns.is_line() && (along_k || outer.is_dense())
}

/// Returns true if programs with `DENSE` compute the GEMM: one of plain matrices, which items copy by whole vectors.
fn is_dense(product: &Product, plan: &Plan, lanes: i64, step: i64, along_k: [bool; 2]) -> bool {
    let Product { a, b, epilogue, .. } = product;
    let [a_along_k, b_along_k] = along_k;
    let is_line = |operand: &Operand| operand.layout.rows.is_line() && operand.layout.columns.is_line();
    step % lanes == 0
        && plan.item * step % (plan.side * lanes) == 0
        && is_plain(a, a_along_k, false)
        && is_plain(b, b_along_k, true)
        && is_line(&epilogue.out)
        && epilogue.addend.as_ref().is_none_or(is_line)
}

/// Tiling of a GEMM.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Plan {
    /// Items of a side of a work-group.
    side: i64,
    /// Rows, and columns, of C that an item computes.
    item: i64,
    /// Work-groups of a GEMM.
    squares: i64,
    /// Parts of k with sums of their own.
    splits: i64,
}

impl Plan {
    /// The larger part of C for each item where that leaves no compute unit idle, and elements are not wider than
    /// floats.
    fn of(product: &Product, units: i64, tuning: &GpuTuning) -> Self {
        let side = tuning.side;
        let Size { rows, columns, depth, batches } = product.size;
        let squares = |item: i64| div_ceil(rows, side * item) * div_ceil(columns, side * item);
        let fills = squares(tuning.item) * batches >= units;
        let item = if product.class == Class::Float && fills { tuning.item } else { GpuTuning::SMALL_ITEM };
        let groups = (squares(item) * batches).max(1);
        let splits = (units * tuning.groups_per_unit / groups).min(depth / SHORTEST_SPLIT).max(1);
        Self { side, item, squares: squares(item), splits }
    }
}

/// Computes a GEMM.
///
/// # Errors
/// [`Error::Invalid`] where both operands are patches; otherwise as the allocator and the driver report.
pub fn multiply(target: &Target, product: &Product, tuning: &GpuTuning) -> Result<()> {
    let Product { class, size, a, b, epilogue } = *product;
    let Size { rows, columns, depth, batches } = size;
    let results = rows * columns * batches;
    let grid = match (a.patches(), b.patches()) {
        (Some(_), Some(_)) => return Err(Error::Invalid("OpenCL: two matrices of patches are multiplied".to_owned())),
        (patches, None) | (None, patches) => patches.unwrap_or_default().grid(),
    };
    let plan = Plan::of(product, target.compute_units() as i64, tuning);
    let sums =
        if plan.splits > 1 { Some(target.workspace((plan.splits * results) as usize * class.size())?) } else { None };
    let goal = match &sums {
        Some(memory) => {
            let layout = Matrix::dense(rows, columns);
            let memory = target.memory(memory.address)?;
            Epilogue::plain(Operand { memory, dtype: class.storage(), layout }, None)
        }
        None => epilogue,
    };

    let dtype = a.dtype();
    let (step, lanes) = (tuning.step(class, plan.item), Geometry::of(target, class).lanes as i64);
    let (a_along_k, b_along_k) = (is_along_k(&a, false), is_along_k(&b, true));
    let dense = is_dense(product, &plan, lanes, step, [a_along_k, b_along_k]);
    let constants = [
        ("SIDE", plan.side),
        ("ITEM", plan.item),
        ("STEP", step),
        ("BAND", tuning.band),
        ("A_KIND", a.kind()),
        ("B_KIND", b.kind()),
        ("A_ALONG_K", i64::from(a_along_k)),
        ("B_ALONG_K", i64::from(b_along_k)),
        ("DENSE", i64::from(dense)),
    ];
    let program = |epilogue: &Epilogue| program(target, class, dtype, epilogue, &constants);
    let extent = Extent { rows, columns, depth, splits: plan.splits, split_stride: results };
    let args = entry::GemmLocal {
        a: a.memory(),
        b: b.memory(),
        source_dtype: dtype,
        a_layout: a.layout(),
        b_layout: b.layout(),
        grid,
        extent,
        epilogue: goal.arguments(class),
    };
    let items = plan.side * plan.side;
    let global = plan.squares * batches * plan.splits * items;
    target.launch(&*program(&goal)?, entry::GEMM_LOCAL, &args, &[global as usize], Some(&[items as usize]))?;
    if sums.is_some() {
        launch_finish(target, &*program(&epilogue)?, class, goal.out.memory, extent, results, &epilogue)?;
    }
    Ok(())
}

/// The program of GEMMs that end in an epilogue. Always specialised: a switch over the dtypes would be in every
/// unrolled load and store.
fn program(
    target: &Target,
    class: Class,
    source: DType,
    epilogue: &Epilogue,
    constants: &[(&'static str, i64)],
) -> Result<Arc<CachedProgram>> {
    let addend = epilogue.addend.unwrap_or(epilogue.out).dtype;
    let spec = Spec::generic()
        .define("SPEC_DTYPE0", i64::from(source.code()))
        .define("SPEC_DTYPE1", i64::from(epilogue.out.dtype.code()))
        .define("SPEC_DTYPE2", i64::from(addend.code()))
        .define("VEC", Geometry::of(target, class).lanes as i64)
        .define("ACTIVATION", i64::from(epilogue.activation.repr));
    let spec = constants.iter().fold(spec, |spec, (name, value)| spec.define(name, *value));
    target.program(Family::GemmLocal, class, &spec)
}

/// Constants of programs that copy no blocks.
fn blockless(class: Class, tuning: &GpuTuning) -> [(&'static str, i64); 4] {
    let item = GpuTuning::SMALL_ITEM;
    [("SIDE", tuning.side), ("ITEM", item), ("STEP", tuning.step(class, item)), ("DENSE", 0)]
}

fn launch_finish(
    target: &Target,
    program: &CachedProgram,
    class: Class,
    sums: Memory,
    extent: Extent,
    results: i64,
    epilogue: &Epilogue,
) -> Result<()> {
    let args = entry::GemmLocalFinish { partial: sums, extent, epilogue: epilogue.arguments(class) };
    let global = (results.max(0) as usize).next_multiple_of(ITEM_GROUP);
    target.launch(program, entry::GEMM_LOCAL_FINISH, &args, &[global], None)
}

/// Adds `splits` partial results, each of dense batches of rows, and applies the epilogue.
///
/// # Errors
/// As the driver reports.
pub fn finish(
    target: &Target,
    class: Class,
    size: Size,
    splits: i64,
    sums: Memory,
    epilogue: &Epilogue,
    tuning: &GpuTuning,
) -> Result<()> {
    let Size { rows, columns, depth, batches } = size;
    let results = rows * columns * batches;
    let program = program(target, class, class.storage(), epilogue, &blockless(class, tuning))?;
    launch_finish(
        target,
        &program,
        class,
        sums,
        Extent { rows, columns, depth, splits, split_stride: results },
        results,
        epilogue,
    )
}

/// The dot product of a row and a column of `depth` elements each.
///
/// # Errors
/// As the allocator and the driver report.
pub fn dot(
    target: &Target,
    class: Class,
    depth: i64,
    [row, column]: [Operand; 2],
    epilogue: &Epilogue,
    tuning: &GpuTuning,
) -> Result<()> {
    let group = tuning.side * tuning.side;
    let splits = (target.compute_units() as i64 * DOT_GROUPS).min(div_ceil(depth, group * DOT_TERMS)).max(1);
    let sums = if splits > 1 { Some(target.workspace(splits as usize * class.size())?) } else { None };
    let goal = match &sums {
        Some(memory) => {
            let memory = target.memory(memory.address)?;
            Epilogue::plain(Operand { memory, dtype: class.storage(), layout: Matrix::dense(1, 1) }, None)
        }
        None => *epilogue,
    };
    let constants = blockless(class, tuning);
    let extent = Extent { rows: 1, columns: 1, depth, splits, split_stride: 1 };
    let args = entry::GemmLocalDot {
        a: row.memory,
        b: column.memory,
        source_dtype: row.dtype,
        a_stride: row.layout.columns.stride(),
        b_stride: column.layout.rows.stride(),
        extent,
        epilogue: goal.arguments(class),
    };
    let program = |epilogue: &Epilogue| program(target, class, row.dtype, epilogue, &constants);
    let (global, local) = ([(splits * group) as usize], [group as usize]);
    target.launch(&*program(&goal)?, entry::GEMM_LOCAL_DOT, &args, &global, Some(&local))?;
    if sums.is_some() {
        launch_finish(target, &*program(epilogue)?, class, goal.out.memory, extent, 1, epilogue)?;
    }
    Ok(())
}
