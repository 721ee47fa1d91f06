//! The matrix product of devices with many small cores: work-groups share blocks of both factors in local memory.
//!
//! Nothing is packed. A block is read from where the factor lies, a strided matrix or the patches of a convolution.

use super::epilogue::Epilogue;
use super::gemm::{Factor, Product};
use super::geometry::Geometry;
use super::matrix::{div_up, struct_bytes, Matrix, Operand};
use super::patches::FeatureOrder;
use super::plan::Size;
use super::tuning::GpuTuning;
use super::Target;
use crate::cl::Arg;
use crate::error::{Error, Result};
use crate::kernels::{Class, Family, Spec};

/// A part of k shorter than this does not repay sums of its own.
const SHORTEST_SPLIT: i64 = 256;
/// Items of a group that adds partial sums.
const FINISH_GROUP: i64 = 64;

/// Whether neighbours along k are neighbours in memory, for a factor whose k is its matrix' column index, or for
/// `exchanged` its row index.
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

/// Whether items walk a factor along neighbours in memory, and all its rows and columns are equally far apart.
fn is_plain(factor: &Factor, along_k: bool, exchanged: bool) -> bool {
    let Factor::Matrix(matrix) = factor else { return false };
    let Matrix { rows, columns, .. } = matrix.layout;
    let outer = if exchanged { columns } else { rows };
    rows.is_line() && columns.is_line() && (along_k || outer.is_dense())
}

/// Whether a product is one that programs with `DENSE` compute: of plain matrices, which items copy by whole vectors.
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

/// How a product is cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Plan {
    /// Items of a side of a work-group.
    side: i64,
    /// Rows, and columns, of C that an item computes.
    item: i64,
    /// Work-groups of a product.
    squares: i64,
    /// Parts of k with sums of their own.
    splits: i64,
}

impl Plan {
    /// The larger part of C for each item where that leaves no compute unit idle, and numbers are not wider than floats.
    fn of(product: &Product, units: i64, tuning: &GpuTuning) -> Self {
        let side = tuning.side;
        let Size { rows, columns, depth, batches } = product.size;
        let squares = |item: i64| div_up(rows, side * item) * div_up(columns, side * item);
        let fills = squares(tuning.item) * batches >= units;
        let item = if product.class == Class::Float && fills { tuning.item } else { GpuTuning::SMALL_ITEM };
        let groups = (squares(item) * batches).max(1);
        let splits = (units * tuning.groups_per_unit / groups).min(depth / SHORTEST_SPLIT).max(1);
        Self { side, item, squares: squares(item), splits }
    }
}

/// Computes a product.
///
/// # Errors
/// [`Error::Invalid`] where both factors are patches; otherwise as the allocator and the driver report.
pub fn multiply(target: &Target, product: &Product, tuning: &GpuTuning) -> Result<()> {
    let Product { class, size, a, b, epilogue } = *product;
    let Size { rows, columns, depth, batches } = size;
    let results = rows * columns * batches;
    let patches = match (a.patches(), b.patches()) {
        (Some(_), Some(_)) => return Err(Error::Invalid("OpenCL: two matrices of patches are multiplied".to_owned())),
        (patches, None) | (None, patches) => struct_bytes(patches.unwrap_or_default().longs()),
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
    let program = |epilogue: &Epilogue| {
        let addend = epilogue.addend.unwrap_or(epilogue.out).dtype;
        // Always specialised: a switch over the dtypes would stand in every unrolled load and store.
        let spec = Spec::generic()
            .define("SPEC_DTYPE0", i64::from(dtype.code()))
            .define("SPEC_DTYPE1", i64::from(epilogue.out.dtype.code()))
            .define("SPEC_DTYPE2", i64::from(addend.code()))
            .define("VEC", lanes)
            .define("SIDE", plan.side)
            .define("ITEM", plan.item)
            .define("STEP", step)
            .define("BAND", tuning.band)
            .define("ACTIVATION", epilogue.activation as i64)
            .define("A_KIND", a.kind())
            .define("B_KIND", b.kind())
            .define("A_ALONG_K", i64::from(a_along_k))
            .define("B_ALONG_K", i64::from(b_along_k))
            .define("DENSE", i64::from(dense));
        target.program(Family::GemmLocal, class, &spec)
    };
    let extent = struct_bytes([rows, columns, depth, plan.splits, results]);
    let (a_layout, b_layout, encoded) = (a.layout().bytes(), b.layout().bytes(), goal.encode(class));
    let factors = [
        a.memory(),
        b.memory(),
        Arg::Int(dtype.code()),
        Arg::Bytes(&a_layout),
        Arg::Bytes(&b_layout),
        Arg::Bytes(&patches),
        Arg::Bytes(&extent),
    ];
    let args = [&factors[..], &encoded.args()].concat();
    let items = plan.side * plan.side;
    let global = plan.squares * batches * plan.splits * items;
    target.launch(&*program(&goal)?, "gemm_local", &args, &[global as usize], Some(&[items as usize]))?;
    if sums.is_some() {
        let encoded = epilogue.encode(class);
        let args = [&[goal.out.memory, Arg::Bytes(&extent)], &encoded.args()[..]].concat();
        let global = div_up(results, FINISH_GROUP) * FINISH_GROUP;
        let local = [FINISH_GROUP as usize];
        target.launch(&*program(&epilogue)?, "gemm_local_finish", &args, &[global as usize], Some(&local))?;
    }
    Ok(())
}
