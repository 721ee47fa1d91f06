//! GEMM for GPUs: work-groups share blocks of both operands in local memory.
//!
//! Nothing is packed. A block is read from the operand in place, a strided matrix or the im2col matrix of a
//! convolution.

use std::sync::Arc;

use super::epilogue::{Activation, Epilogue};
use super::im2col::{Im2col, Im2colOrder};
use super::matrix::{Matrix, MatrixOperand};
use super::operands::{Gemm, GemmOperand};
use super::plan::{GemmSize, MATRICES};
use crate::cl::Memory;
use crate::error::{Error, Result};
use crate::kernels::entry;
use crate::kernels::structs::gemm_block::Extent;
use crate::kernels::{CachedProgram, Class, DType, Family, Spec};
use crate::ops::core::forms::Form;
use crate::ops::core::geometry::Geometry;
use crate::ops::core::space::div_ceil;
use crate::ops::core::target::ITEM_GROUP;
use crate::ops::core::vectors::Vectors;
use crate::ops::tuning::GpuTuning;
use crate::ops::Target;

/// A part of k shorter than this is not worth separate sums.
pub(super) const SHORTEST_SPLIT: i64 = 256;
/// Work-groups per compute unit that share a single dot product, and the least number of terms per item for that.
const DOT_GROUPS: i64 = 8;
const DOT_TERMS: i64 = 16;

/// Returns true if neighbours along k are neighbours in memory. k is the column index of the operand, or with
/// `exchanged` the row index.
pub(super) fn is_along_k(operand: &GemmOperand, exchanged: bool) -> bool {
    match operand {
        GemmOperand::Matrix(matrix) => {
            let Matrix { rows, columns, .. } = matrix.layout;
            let inner = if exchanged { rows } else { columns };
            inner.is_dense() && inner.size() > 1
        }
        GemmOperand::Im2col(input) => input.im2col.order() == Im2colOrder::ChannelsInnermost,
        GemmOperand::Im2colTransposed(input) => input.im2col.order() == Im2colOrder::KernelInnermost,
    }
}

/// Returns true if items walk an operand along neighbours in memory, and its rows and its columns have one stride each.
pub(super) fn is_plain(operand: &GemmOperand, along_k: bool, exchanged: bool) -> bool {
    let GemmOperand::Matrix(matrix) = operand else { return false };
    let Matrix { rows, columns, .. } = matrix.layout;
    let outer = if exchanged { columns } else { rows };
    rows.is_line() && columns.is_line() && (along_k || outer.is_dense())
}

/// Returns true if programs with `DENSE` can compute the GEMM: its matrices are plain, and items copy whole vectors.
fn is_dense(gemm: &Gemm<'_>, tiling: &GpuTiling, lanes: i64, step: i64, along_k: [bool; 2]) -> bool {
    let Gemm { a, b, epilogue, .. } = gemm;
    let [a_along_k, b_along_k] = along_k;
    let is_line = |operand: &MatrixOperand| operand.layout.rows.is_line() && operand.layout.columns.is_line();
    step % lanes == 0
        && tiling.item * step % (tiling.side * lanes) == 0
        && is_plain(a, a_along_k, false)
        && is_plain(b, b_along_k, true)
        && is_line(&epilogue.out)
        && epilogue.bias.as_ref().is_none_or(is_line)
}

/// Returns true if every vector that a program with `DENSE` loads or stores is aligned.
fn are_aligned(target: &Target, gemm: &Gemm<'_>, goal: &Epilogue<'_>, [a_along_k, b_along_k]: [bool; 2]) -> bool {
    let operand = |operand: &GemmOperand, rows_are_outer: bool| {
        let Matrix { rows, columns, batch_stride } = operand.layout();
        let stride = if rows_are_outer { rows.stride() } else { columns.stride() };
        (operand.memory(), operand.dtype(), [stride, batch_stride])
    };
    // Programs access other results and biases one element at a time.
    let results = goal.bias.iter().chain([&goal.out]).filter(|result| result.layout.columns.is_dense());
    let results = results
        .map(|MatrixOperand { memory, dtype, layout }| (*memory, *dtype, [layout.rows.stride(), layout.batch_stride]));
    [operand(&gemm.a, a_along_k), operand(&gemm.b, !b_along_k)]
        .into_iter()
        .chain(results)
        .fold(Vectors::of(Geometry::of(target, gemm.class)), |vectors, (memory, dtype, strides)| {
            vectors.with(memory.offset as usize, dtype, strides.map(|stride| stride * dtype.size() as i64))
        })
        .are_aligned()
}

/// Returns true if 32 bits suffice for the indices, positions and offsets of both operands, the result and the bias.
fn has_small_offsets(gemm: &Gemm<'_>, goal: &Epilogue<'_>) -> bool {
    let GemmSize { rows, columns, k, .. } = gemm.size;
    let results = std::iter::once(goal.out).chain(goal.bias).map(|result| result.layout.span());
    let mut spans = [gemm.a.span(), gemm.b.span(), rows, columns, k].into_iter().chain(results);
    let im2cols = [gemm.a.im2col(), gemm.b.im2col()];
    spans.all(|span| span < 1 << 30) && im2cols.iter().flatten().all(Im2col::has_small_positions)
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct GpuTiling {
    /// Items per side of a work-group.
    side: i64,
    /// Rows, and columns, of C that an item computes.
    item: i64,
    /// Work-groups of a GEMM.
    squares: i64,
    /// Parts of k with separate sums.
    splits: i64,
}

impl GpuTiling {
    /// Each item gets the larger part of C if that leaves no compute unit idle and elements are not wider than floats.
    fn of(gemm: &Gemm<'_>, units: i64, tuning: &GpuTuning) -> Self {
        let side = tuning.side;
        let GemmSize { rows, columns, k, batches } = gemm.size;
        let squares = |item: i64| div_ceil(rows, side * item) * div_ceil(columns, side * item);
        let fills = squares(tuning.item) * batches >= units;
        let item = if gemm.class == Class::Float && fills { tuning.item } else { GpuTuning::SMALL_ITEM };
        let groups = (squares(item) * batches).max(1);
        let splits = (units * tuning.groups_per_unit / groups).min(k / SHORTEST_SPLIT).max(1);
        Self { side, item, squares: squares(item), splits }
    }
}

/// Computes a GEMM.
///
/// # Errors
/// [`Error::Invalid`] if both operands are im2col matrices; otherwise as the allocator and the driver report.
pub fn multiply(target: &Target, gemm: &Gemm<'_>, tuning: &GpuTuning) -> Result<()> {
    let Gemm { class, size, a, b, epilogue, .. } = *gemm;
    let GemmSize { rows, columns, k, batches } = size;
    let results = rows * columns * batches;
    let im2col = match (a.im2col(), b.im2col()) {
        (Some(_), Some(_)) => {
            return Err(Error::Invalid("OpenCL: both operands of a GEMM are im2col matrices".to_owned()))
        }
        (im2col, None) | (None, im2col) => im2col.unwrap_or_default().layout(),
    };
    let tiling = GpuTiling::of(gemm, target.compute_units() as i64, tuning);
    let sums = if tiling.splits > 1 {
        Some(target.workspace((tiling.splits * results) as usize * class.size())?)
    } else {
        None
    };
    let goal = epilogue.or_sums(target, sums.as_ref(), class, [rows, columns])?;

    let dtype = a.dtype();
    let (step, lanes) = (tuning.step(class, tiling.item), Geometry::of(target, class).lanes as i64);
    let (a_along_k, b_along_k) = (is_along_k(&a, false), is_along_k(&b, true));
    let dense = is_dense(gemm, &tiling, lanes, step, [a_along_k, b_along_k]);
    let blocks = Blocks {
        item: tiling.item,
        kinds: [a.kind(), b.kind()],
        along_k: [a_along_k, b_along_k],
        dense,
        // Programs for floats load integers one at a time.
        aligned: dense && dtype.class() == class && are_aligned(target, gemm, &goal, [a_along_k, b_along_k]),
        small_offsets: !dense && has_small_offsets(gemm, &goal),
    };
    let extent = Extent { rows, columns, k, splits: tiling.splits, split_stride: results };
    let args = entry::GemmLocal {
        a: a.memory(),
        b: b.memory(),
        input_dtype: dtype,
        a_layout: a.layout(),
        b_layout: b.layout(),
        im2col,
        extent,
        epilogue: goal.arguments(class),
    };
    let items = tiling.side * tiling.side;
    let global = tiling.squares * batches * tiling.splits * items;
    let kernel = entry::GEMM_LOCAL.extended();
    let args = goal.extended(&args);
    let program = program(target, class, dtype, &goal, blocks.define(spec(target, class, tuning), tuning, class))?;
    target.launch(&program, kernel, &args, &[global as usize], Some(&[items as usize]))?;
    if sums.is_some() {
        finish(target, class, size, tiling.splits, goal.out.memory, &epilogue, tuning)?;
    }
    Ok(())
}

/// The program of GEMMs with an epilogue. Always specialised: otherwise every unrolled load and store would contain a
/// switch over the dtypes.
fn program(
    target: &Target,
    class: Class,
    operands: DType,
    epilogue: &Epilogue<'_>,
    spec: Spec,
) -> Result<Arc<CachedProgram>> {
    let bias = epilogue.bias.unwrap_or(epilogue.out).dtype;
    let spec = with_dtypes(spec, [operands, epilogue.out.dtype, bias], epilogue.activation);
    epilogue.program(target, [Family::GemmLocal, Family::GemmLocalFused], class, spec)
}

fn with_dtypes(spec: Spec, [operands, out, bias]: [DType; 3], activation: Activation) -> Spec {
    spec.define("SPEC_DTYPE0", i64::from(operands.code()))
        .define("SPEC_DTYPE1", i64::from(out.code()))
        .define("SPEC_DTYPE2", i64::from(bias.code()))
        .define("ACTIVATION", i64::from(activation.repr))
}

/// The constants of all programs; [`Blocks`] adds those of programs that copy blocks.
fn spec(target: &Target, class: Class, tuning: &GpuTuning) -> Spec {
    Spec::generic().define("VEC", Geometry::of(target, class).lanes as i64).define("SIDE", tuning.side)
}

/// The constants of programs that copy blocks.
#[derive(Clone, Copy, Debug)]
struct Blocks {
    /// Rows, and columns, of C that an item computes.
    item: i64,
    /// The operands' kinds.
    kinds: [i64; 2],
    /// True for operands that items walk along k.
    along_k: [bool; 2],
    /// See [`is_dense`].
    dense: bool,
    /// See [`are_aligned`].
    aligned: bool,
    /// See [`has_small_offsets`].
    small_offsets: bool,
}

impl Blocks {
    fn define(&self, spec: Spec, tuning: &GpuTuning, class: Class) -> Spec {
        let Self { item, kinds: [a_kind, b_kind], along_k: [a_along_k, b_along_k], .. } = *self;
        let spec = spec
            .define("ITEM", item)
            .define("STEP", tuning.step(class, item))
            .define("BAND", tuning.band)
            .define("A_KIND", a_kind)
            .define("B_KIND", b_kind)
            .define("A_ALONG_K", i64::from(a_along_k))
            .define("B_ALONG_K", i64::from(b_along_k))
            .define("DENSE", i64::from(self.dense))
            .define("SMALL_OFFSETS", i64::from(self.small_offsets));
        if self.aligned {
            spec.define("SPEC_ALIGNED", 1)
        } else {
            spec
        }
    }
}

/// The usual programs: one dtype throughout or partial sums, of matrices in any order and of convolutions.
pub(super) fn forms(target: &Target, tuning: &GpuTuning) -> Vec<Form> {
    let mut found = Vec::new();
    for dtype in super::LISTED_DTYPES {
        let (class, sums) = (dtype.class(), dtype.class().storage());
        let usual = spec(target, class, tuning);
        let mut add = |spec: &Spec, dtypes| found.push((class, with_dtypes(spec.clone(), dtypes, Activation::None)));
        for dtypes in [[dtype; 3], [dtype, sums, sums], [sums, dtype, dtype]] {
            add(&usual, dtypes);
        }
        let items: &[i64] =
            if class == Class::Float { &[tuning.item, GpuTuning::SMALL_ITEM] } else { &[GpuTuning::SMALL_ITEM] };
        let orders = [[true, true], [true, false], [false, true], [false, false]];
        let kinds = super::listed_kinds(dtype);
        for (item, kinds) in items.iter().flat_map(|item| kinds.iter().map(move |kinds| (*item, *kinds))) {
            // Each is (dense, aligned). GEMMs of im2col matrices are never dense.
            let any = (false, false);
            let density = if kinds == MATRICES { &[(true, true), (true, false), any][..] } else { &[any] };
            for (along_k, (dense, aligned)) in
                orders.into_iter().flat_map(|order| density.iter().map(move |d| (order, *d)))
            {
                let blocks = Blocks { item, kinds, along_k, dense, aligned, small_offsets: !dense };
                let spec = blocks.define(usual.clone(), tuning, class);
                add(&spec, [dtype; 3]);
                if sums != dtype {
                    add(&spec, [dtype, sums, sums]);
                }
            }
        }
    }
    found
}

/// Adds `splits` partial results, each of dense batches of rows, and applies the epilogue.
///
/// # Errors
/// Errors reported by the driver.
pub fn finish(
    target: &Target,
    class: Class,
    size: GemmSize,
    splits: i64,
    sums: Memory,
    epilogue: &Epilogue<'_>,
    tuning: &GpuTuning,
) -> Result<()> {
    let GemmSize { rows, columns, k, batches } = size;
    let results = rows * columns * batches;
    let program = program(target, class, class.storage(), epilogue, spec(target, class, tuning))?;
    let extent = Extent { rows, columns, k, splits, split_stride: results };
    let args = entry::GemmLocalFinish { partial: sums, extent, epilogue: epilogue.arguments(class) };
    let args = epilogue.extended(&args);
    let global = (results.max(0) as usize).next_multiple_of(ITEM_GROUP);
    target.launch(&program, entry::GEMM_LOCAL_FINISH.extended(), &args, &[global], None)
}

/// The dot product of a row and a column of `k` elements each.
///
/// # Errors
/// Errors reported by the allocator or the driver.
pub fn dot(
    target: &Target,
    class: Class,
    k: i64,
    [row, column]: [MatrixOperand; 2],
    epilogue: &Epilogue<'_>,
    tuning: &GpuTuning,
) -> Result<()> {
    let group = tuning.side * tuning.side;
    let splits = (target.compute_units() as i64 * DOT_GROUPS).min(div_ceil(k, group * DOT_TERMS)).max(1);
    let sums = if splits > 1 { Some(target.workspace(splits as usize * class.size())?) } else { None };
    let goal = epilogue.or_sums(target, sums.as_ref(), class, [1, 1])?;
    let extent = Extent { rows: 1, columns: 1, k, splits, split_stride: 1 };
    let args = entry::GemmLocalDot {
        a: row.memory,
        b: column.memory,
        input_dtype: row.dtype,
        a_stride: row.layout.columns.stride(),
        b_stride: column.layout.rows.stride(),
        extent,
        epilogue: goal.arguments(class),
    };
    let program = program(target, class, row.dtype, &goal, spec(target, class, tuning))?;
    let (global, local) = ([(splits * group) as usize], [group as usize]);
    target.launch(&program, entry::GEMM_LOCAL_DOT, &args, &global, Some(&local))?;
    if sums.is_some() {
        let size = GemmSize { rows: 1, columns: 1, k, batches: 1 };
        finish(target, class, size, splits, goal.out.memory, epilogue, tuning)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::matmul::matrix::Axis;

    #[test]
    fn offsets_have_32_bits_if_no_operand_spans_2_to_the_30() {
        let operand = |layout| MatrixOperand { memory: Memory::ABSENT, dtype: DType::F32, layout };
        let has_small = |result: Matrix, bias: Option<Matrix>| {
            let epilogue = Epilogue::plain(operand(result), bias.map(operand));
            let gemm = Gemm {
                class: Class::Float,
                size: GemmSize { rows: 64, columns: 32, k: 16, batches: 1 },
                a: GemmOperand::Matrix(operand(Matrix::dense(64, 16))),
                b: GemmOperand::Matrix(operand(Matrix::dense(16, 32))),
                may_round: false,
                epilogue,
            };
            has_small_offsets(&gemm, &epilogue)
        };
        let dense = Matrix::dense(64, 32);
        let far = Matrix { rows: Axis::line(64, 1 << 25), ..dense };
        assert!(has_small(dense, None));
        assert!(has_small(dense, Some(dense)));
        assert!(!has_small(far, None));
        assert!(!has_small(dense, Some(far)));
    }
}
