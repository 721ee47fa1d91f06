//! Matmuls of tensors: thin ones stream their operands, the others are packed.

pub mod epilogue;
pub mod fused;
pub mod fused_source;
pub mod gemm;
pub mod gemm_local;
pub mod gemm_tile;
pub mod im2col;
pub mod matrix;
pub mod operands;
pub mod plan;
mod tile_check;
pub mod tile_form;
pub mod tile_kind;

use self::epilogue::{Activation, Epilogue};
use self::gemm::{finish, launch, multiply, occupancy_target, program};
use self::matrix::{Axis, Matrix, MatrixOperand};
use self::operands::{Gemm, GemmOperand};
use self::plan::{GemmSize, Tile, MATRICES};
use crate::error::{Error, Result};
use crate::kernels::{entry, Class, DType, Family};
use crate::ops::core::forms::{Form, FLOAT_DTYPES};
use crate::ops::core::space::div_ceil;
use crate::ops::tuning::Tuning;
use crate::ops::{Scalar, Target, Tensor};

#[cxx::bridge(namespace = "torch_opencl::bridge")]
mod ffi {
    unsafe extern "C++" {
        include!("torch_opencl/rust/abi.rs.h");
        type Tensor<'a> = crate::abi::Tensor<'a>;
    }

    extern "Rust" {
        fn dot(out: &Tensor, a: &Tensor, b: &Tensor) -> Result<()>;
    }
}

/// Dtypes of the programs that `forms` lists.
const LISTED_DTYPES: [DType; 6] = [DType::F32, DType::F16, DType::BF16, DType::F64, DType::C64, DType::I64];

/// Operand kinds of the listed programs: matrices; for float dtypes also those of convolutions and their gradients.
fn listed_kinds(dtype: DType) -> Vec<[i64; 2]> {
    let convolutions = FLOAT_DTYPES.contains(&dtype).then_some([[0, 1], [0, 2], [1, 0]]);
    std::iter::once(MATRICES).chain(convolutions.into_iter().flatten()).collect()
}

/// The usual programs of a device.
pub(in crate::ops) fn forms(target: &Target) -> Vec<(Family, Form)> {
    match Tuning::of(target.device) {
        Tuning::Cpu(_) => gemm::forms(target),
        Tuning::Gpu(tuning) => {
            let local = gemm_local::forms(target, &tuning).into_iter().map(|form| (Family::GemmLocal, form));
            // Matmuls report a wrong setting.
            let tiles = gemm_tile::forms(target).unwrap_or_default().into_iter();
            local.chain(tiles.map(|form| (Family::GemmTile, form))).collect()
        }
    }
}

/// Rows that a thin matmul takes at a time; as in `matmul.cl`.
const THIN_ROWS: i64 = 4;
/// Columns of a work-item of the thin kernel for dot products.
const DOT_COLUMNS: i64 = 4;
/// Vectors of columns of a work-item of the other thin kernel: `LONGEST` if that leaves enough work-items, else `WIDE`.
const LONGEST: i64 = 64;
const WIDE: i64 = 16;
/// Below this many multiplications, packing and three launches cost more than a simple kernel (`make bench-growth`).
const SMALL: i64 = 32 * 32 * 32;
/// A part of k shorter than this is not worth partial sums.
const SHORTEST_SPLIT: i64 = 512;

/// `out = activation(alpha * a @ b + beta * bias)` for matrices, or batches of them, of one class. An absent `bias`
/// adds nothing; a batch or a matrix may have strides of 0.
///
/// # Errors
/// [`Error::Invalid`] when shapes do not fit; otherwise as the allocator and the driver report.
pub fn matmul(
    out: &Tensor<'_>,
    a: &Tensor<'_>,
    b: &Tensor<'_>,
    bias: &Tensor<'_>,
    alpha: Scalar,
    beta: Scalar,
    activation: Activation,
) -> Result<()> {
    if out.numel() == 0 {
        return Ok(());
    }
    let target = Target::of(out.address)?;
    let epilogue = |out, bias| Epilogue { alpha, beta, bias, activation, out, fused: None };
    compute(&target, [out, a, b, bias], epilogue)
}

/// A tensor as a matrix, or a batch of them.
fn operand(target: &Target, tensor: &Tensor<'_>) -> Result<MatrixOperand> {
    Ok(MatrixOperand { memory: target.tensor(tensor)?, dtype: tensor.dtype, layout: Matrix::of(tensor) })
}

/// A matmul of `[out, a, b, bias]` with an epilogue of `out` and `bias`.
fn compute<'a>(
    target: &Target,
    [out, a, b, bias]: [&Tensor<'_>; 4],
    epilogue: impl FnOnce(MatrixOperand, Option<MatrixOperand>) -> Epilogue<'a>,
) -> Result<()> {
    let (first, second, result) = (operand(target, a)?, operand(target, b)?, operand(target, out)?);
    let (rows, columns, k) = (result.layout.rows.size(), result.layout.columns.size(), first.layout.columns.size());
    if first.layout.rows.size() != rows || second.layout.columns.size() != columns || second.layout.rows.size() != k {
        return Err(Error::Invalid(format!(
            "OpenCL: matmul of {} and {} cannot be written to {}",
            a.describe(),
            b.describe(),
            out.describe()
        )));
    }
    let bias = if bias.is_present() { Some(operand(target, bias)?) } else { None };
    let gemm = Gemm {
        class: out.class(),
        size: GemmSize { rows, columns, k, batches: if out.ndim() < 3 { 1 } else { out.size(out.ndim() - 3) } },
        a: GemmOperand::Matrix(first),
        b: GemmOperand::Matrix(second),
        may_round: true,
        epilogue: epilogue(result, bias),
    };
    let thin = if target.is_cpu() { Thin::of(&gemm, first, second) } else { None };
    match thin {
        Some(thin) => thin.run(target),
        None => multiply(target, &gemm),
    }
}

/// `out = a @ b` for int8 matrices and a contiguous int32 result, with exact sums modulo 2^32. Returns false, and
/// computes nothing, if the device has no instructions for operands of this size and layout.
///
/// # Errors
/// Errors reported by the allocator or the driver.
pub fn int8_product(out: &Tensor<'_>, a: &Tensor<'_>, b: &Tensor<'_>) -> Result<bool> {
    let target = Target::of(out.address)?;
    let Tuning::Gpu(tuning) = Tuning::of(target.device) else { return Ok(false) };
    let gemm = Gemm {
        class: Class::Float,
        size: GemmSize { rows: out.size(0), columns: out.size(1), k: a.size(1), batches: 1 },
        a: GemmOperand::Matrix(operand(&target, a)?),
        b: GemmOperand::Matrix(operand(&target, b)?),
        may_round: false,
        epilogue: Epilogue::plain(operand(&target, out)?, None),
    };
    let Some(plan) = gemm_tile::plan(&target, &gemm, &tuning)? else { return Ok(false) };
    if plan.has_splits() {
        target.fill(out.address, 0, out.numel() as usize * out.dtype.size())?;
    }
    plan.run(&target, &gemm, &tuning)?;
    Ok(true)
}

/// Returns true if instructions of the device compute an int8 product with sums of `k` terms, once both operands have
/// their rows along the sum, at multiples of 16 bytes.
///
/// # Errors
/// Errors of the device's start.
pub fn has_int8_instructions(out: &Tensor<'_>, k: i64) -> Result<bool> {
    let target = Target::of(out.address)?;
    Ok(gemm_tile::computes_int8(&target, out.size(0).min(out.size(1)), k))
}

/// The dot product of two vectors, into a tensor of one element.
///
/// # Errors
/// See [`matmul`].
pub fn dot(out: &Tensor<'_>, a: &Tensor<'_>, b: &Tensor<'_>) -> Result<()> {
    let target = Target::of(out.address)?;
    let k = a.size(0);
    let vector = |tensor: &Tensor<'_>, layout: Matrix| -> Result<MatrixOperand> {
        Ok(MatrixOperand { memory: target.tensor(tensor)?, dtype: tensor.dtype, layout })
    };
    let one = Axis::line(1, 0);
    let row = vector(a, Matrix { rows: one, columns: Axis::line(k, a.stride(0)), batch_stride: 0 })?;
    let column = vector(b, Matrix { rows: Axis::line(k, b.stride(0)), columns: one, batch_stride: 0 })?;
    let epilogue = Epilogue::plain(vector(out, Matrix::dense(1, 1))?, None);
    let (a, b) = (GemmOperand::Matrix(row), GemmOperand::Matrix(column));
    let size = GemmSize { rows: 1, columns: 1, k, batches: 1 };
    let gemm = Gemm { class: out.class(), size, a, b, may_round: false, epilogue };
    if let Tuning::Gpu(tuning) = Tuning::of(target.device) {
        return gemm_local::dot(&target, gemm.class, k, [row, column], &epilogue, &tuning);
    }
    let kernel =
        if row.layout.columns.is_dense() && column.layout.rows.is_dense() { Kernel::Dot } else { Kernel::AddRows };
    Thin { gemm, a: row, b: column, kernel }.run(&target)
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kernel {
    /// k is dense in both operands.
    Dot,
    /// Columns are dense in B.
    AddRows,
}

/// A matmul that is not worth packing.
struct Thin<'a> {
    gemm: Gemm<'a>,
    a: MatrixOperand,
    b: MatrixOperand,
    kernel: Kernel,
}

impl<'a> Thin<'a> {
    /// The thin form of a matmul, if it is thin or small and its layout suits a kernel, perhaps with the operands
    /// exchanged: C' = B' A'.
    fn of(gemm: &Gemm<'a>, a: MatrixOperand, b: MatrixOperand) -> Option<Self> {
        let GemmSize { rows, columns, k, .. } = gemm.size;
        let is_small = rows * columns * k <= SMALL;
        if !is_small && rows.min(columns) > THIN_ROWS {
            return None;
        }
        let as_is = (*gemm, a, b);
        let exchanged = (
            Gemm {
                size: GemmSize { rows: columns, columns: rows, ..gemm.size },
                epilogue: gemm.epilogue.transposed(),
                ..*gemm
            },
            b.transposed(),
            a.transposed(),
        );
        // The longer side becomes columns, which work-items share.
        let (first, second) = if rows <= columns { (as_is, exchanged) } else { (exchanged, as_is) };
        let (gemm, a, b) = first;
        if a.layout.columns.is_dense() && b.layout.rows.is_dense() {
            return Some(Self { gemm, a, b, kernel: Kernel::Dot });
        }
        if b.layout.columns.is_dense() {
            return Some(Self { gemm, a, b, kernel: Kernel::AddRows });
        }
        let (gemm, a, b) = second;
        (is_small || k == 0).then_some(Self { gemm, a, b, kernel: Kernel::AddRows })
    }

    fn run(&self, target: &Target) -> Result<()> {
        let Gemm { class, size, epilogue, .. } = self.gemm;
        let GemmSize { rows, columns, k, batches } = size;
        if rows * columns * batches == 0 {
            return Ok(());
        }
        let tile = Tile::of(target, class);
        let row_blocks = div_ceil(rows, THIN_ROWS);
        // The number of blocks of `width` columns, and of parts of k.
        let blocks = |width: i64| {
            let blocks = div_ceil(columns, width);
            (blocks, div_ceil(occupancy_target(target), blocks * row_blocks * batches).min(k / SHORTEST_SPLIT).max(1))
        };
        let is_shared = |(blocks, splits): (i64, i64)| blocks * splits * batches >= occupancy_target(target);
        let width = if is_shared(blocks(LONGEST * tile.vector())) { LONGEST } else { WIDE };
        let (column_blocks, splits) = match self.kernel {
            Kernel::Dot => blocks(DOT_COLUMNS),
            Kernel::AddRows => blocks(width * tile.vector()),
        };
        let sums = splits * batches * rows * columns * class.size() as i64;
        let sums_memory = if splits > 1 { Some(target.workspace(sums as usize)?) } else { None };
        let goal = epilogue.or_sums(target, sums_memory.as_ref(), class, [rows, columns])?;
        let program = program(target, class, tile, MATRICES, self.a.dtype, &goal)?;
        let thin = entry::ThinArguments {
            a: self.a.memory,
            b: self.b.memory,
            input_dtype: self.a.dtype,
            a_layout: self.a.layout,
            b_layout: self.b.layout,
            rows,
            columns,
            k,
            splits,
            split_stride: batches * rows * columns,
        };
        let global = [column_blocks, row_blocks, batches * splits];
        match self.kernel {
            Kernel::Dot => {
                let args = entry::GemmDot { thin, epilogue: goal.arguments(class) };
                launch(target, &program, entry::GEMM_DOT.extended(), &goal.extended(&args), global)?;
            }
            Kernel::AddRows => {
                let args = entry::GemmAddRows { thin, width, epilogue: goal.arguments(class) };
                launch(target, &program, entry::GEMM_ADD_ROWS.extended(), &goal.extended(&args), global)?;
            }
        }
        if sums_memory.is_some() {
            finish(target, class, size, splits, goal.out.memory, &epilogue)?;
        }
        Ok(())
    }
}
