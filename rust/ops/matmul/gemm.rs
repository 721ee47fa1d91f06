//! Blocked GEMM: its operands are strided matrices, or the im2col matrix of a convolution.

use std::sync::Arc;

use bytemuck::{bytes_of, cast_slice};

use super::epilogue::{Activation, Epilogue};
use super::gemm_local;
use super::gemm_tile;
use super::matrix::{Matrix, MatrixOperand};
use super::operands::{Gemm, GemmOperand};
use super::plan::{Cores, GemmPlan, GemmSize, Tile, MATRICES};
use crate::cl::Memory;
use crate::error::{Error, Result};
use crate::kernels::entry::{self, Arguments, EntryPoint, LocalBytes};
use crate::kernels::structs::gemm::Blocking;
use crate::kernels::{CachedProgram, Class, DType, Family, Spec};
use crate::ops::core::forms::Form;
use crate::ops::core::space::div_ceil;
use crate::ops::tuning::Tuning;
use crate::ops::Target;

/// Columns of a work-item of the kernel that adds partial sums.
const FINISH_COLUMNS: i64 = 4096;

impl Gemm<'_> {
    /// The transposed GEMM, C' = B' A'; `None` if an operand is not a matrix.
    fn transposed(&self) -> Option<Self> {
        let (GemmOperand::Matrix(a), GemmOperand::Matrix(b)) = (self.a, self.b) else { return None };
        let size = GemmSize { rows: self.size.columns, columns: self.size.rows, ..self.size };
        Some(Self {
            size,
            a: GemmOperand::Matrix(b.transposed()),
            b: GemmOperand::Matrix(a.transposed()),
            epilogue: self.epilogue.transposed(),
            ..*self
        })
    }

    /// Returns true if the kernel reads rows of A in place; `rows_stay` of `gemm.cl`.
    fn rows_stay(&self) -> bool {
        let GemmOperand::Matrix(MatrixOperand { dtype, layout, .. }) = self.a else { return false };
        dtype == self.class.storage()
            && !self.class.is_complex()
            && layout.rows.is_line()
            && layout.columns.is_line()
            && layout.columns.is_dense()
    }

    /// The GEMM, or its transpose if that is cheaper, and its blocking. The transpose of `x @ weight.T` reads the
    /// rows of the weight in place, and packs only those of `x`: 158 GFLOP/s instead of 129 for 32 x 1024 x 256 (PoCL,
    /// Xeon; `make bench CASES="'few rows *'"` has similar cases). A GEMM with a fused epilogue is not transposed: the
    /// epilogue would get the transposed results one by one.
    fn planned(&self, tile: Tile, cores: &Cores) -> (Self, GemmPlan) {
        let plan = |gemm: &Self| GemmPlan::of(gemm.size, tile, cores, gemm.rows_stay());
        let (as_is, cost) = plan(self);
        match self
            .transposed()
            .filter(|other| other.rows_stay() && other.epilogue.fused.is_none())
            .map(|other| (other, plan(&other)))
        {
            Some((other, (blocking, other_cost))) if other_cost < cost => (other, blocking),
            _ => (*self, as_is),
        }
    }
}

/// The program of GEMMs for a tile, operand kinds, a dtype and an epilogue. Kinds and dtypes are constants of the
/// program: code for every dtype of every tensor would take three times as long to build.
pub fn program(
    target: &Target,
    class: Class,
    tile: Tile,
    [a_kind, b_kind]: [i64; 2],
    operand_dtype: DType,
    epilogue: &Epilogue<'_>,
) -> Result<Arc<CachedProgram>> {
    let bias = epilogue.bias.map_or(epilogue.out.dtype, |bias| bias.dtype);
    let dtypes = [operand_dtype, epilogue.out.dtype, bias];
    let spec = spec(tile, [a_kind, b_kind], dtypes, epilogue.activation);
    epilogue.program(target, [family(epilogue.activation), Family::MatmulFused], class, spec)
}

fn family(activation: Activation) -> Family {
    if activation == Activation::Gelu {
        Family::MatmulGelu
    } else {
        Family::Matmul
    }
}

fn spec(tile: Tile, [a_kind, b_kind]: [i64; 2], [operands, out, bias]: [DType; 3], activation: Activation) -> Spec {
    Spec::generic()
        .define("VEC", tile.vector())
        .define("TILE_ROWS", tile.rows * tile.parts)
        .define("TILE_VECTORS", tile.vectors)
        .define("TILE_LANES", tile.lanes)
        .define("A_KIND", a_kind)
        .define("B_KIND", b_kind)
        .define("SPEC_DTYPE0", i64::from(operands.code()))
        .define("SPEC_DTYPE1", i64::from(out.code()))
        .define("SPEC_DTYPE2", i64::from(bias.code()))
        .define("ACTIVATION", i64::from(activation.repr))
}

/// The usual programs of CPUs: one dtype throughout, partial sums, activations of matrices, im2col for convolutions.
pub(super) fn forms(target: &Target) -> Vec<(Family, Form)> {
    let mut found = Vec::new();
    for dtype in super::LISTED_DTYPES {
        let class = dtype.class();
        let tile = Tile::of(target, class);
        let sums = class.storage();
        let mut add = |kinds, dtypes, activation| {
            found.push((family(activation), (class, spec(tile, kinds, dtypes, activation))));
        };
        for kinds in super::listed_kinds(dtype) {
            add(kinds, [dtype; 3], Activation::None);
            add(kinds, [dtype, sums, sums], Activation::None);
        }
        add(MATRICES, [sums, dtype, dtype], Activation::None);
        if dtype.class() == Class::Float {
            add(MATRICES, [dtype; 3], Activation::Relu);
            add(MATRICES, [dtype; 3], Activation::Gelu);
        }
    }
    found
}

/// Enqueues a kernel of independent work-items. On CPUs a work-group of one lets every core take any of them.
pub fn launch<A: Arguments>(
    target: &Target,
    program: &CachedProgram,
    kernel: EntryPoint<A>,
    args: &A,
    global: [i64; 3],
) -> Result<()> {
    let global = global.map(|size| size.max(0) as usize);
    let local = target.is_cpu().then_some([1_usize; 3]);
    target.launch(program, kernel, args, &global, local.as_ref().map(<[usize; 3]>::as_slice))
}

/// Occupancy target: how many independent work-items fill the device.
pub fn occupancy_target(target: &Target) -> i64 {
    target.compute_units() as i64 * if target.is_cpu() { 4 } else { 256 }
}

/// Computes a GEMM.
///
/// # Errors
/// Errors reported by the allocator or the driver.
pub fn multiply(target: &Target, gemm: &Gemm<'_>) -> Result<()> {
    let size = gemm.size;
    if size.rows * size.columns * size.batches == 0 {
        return Ok(());
    }
    match Tuning::of(target.device) {
        Tuning::Cpu(tuning) => multiply_packed(target, gemm, &Cores::new(target, tuning)),
        Tuning::Gpu(tuning) => match gemm_tile::plan(target, gemm, &tuning)? {
            Some(plan) => plan.run(target, gemm, &tuning),
            None => gemm_local::multiply(target, gemm, &tuning),
        },
    }
}

fn multiply_packed(target: &Target, gemm: &Gemm<'_>, cores: &Cores) -> Result<()> {
    let tile = Tile::tuned(&cores.tuning, gemm.class);
    let (gemm, plan) = gemm.planned(tile, cores);
    let Gemm { class, size, a, b, epilogue, .. } = gemm;
    let im2col = match (a.im2col(), b.im2col()) {
        (Some(_), Some(_)) => {
            return Err(Error::Invalid("OpenCL: both operands of a GEMM are im2col matrices".to_owned()))
        }
        (im2col, None) | (None, im2col) => im2col,
    };
    // The `OperandLayouts` of `gemm.cl`, which ends before the im2col layout if there is none.
    let im2col = im2col.map(|im2col| im2col.layout());
    let matrices = [a.layout(), b.layout()];
    let layouts = [cast_slice(&matrices), im2col.as_ref().map_or(&[][..], bytes_of)].concat();
    let matrix = size.rows * size.columns;
    let blocking = Blocking {
        rows: size.rows,
        columns: size.columns,
        k: size.k,
        part_rows: plan.part_rows,
        part_columns: plan.part_columns,
        strip_rows: plan.strip_rows,
        block_columns: plan.block_columns,
        block_k: plan.block_k,
        keeps_rows: i64::from(plan.keeps_rows),
        splits: plan.splits,
        split_stride: size.batches * matrix,
    };

    let workspace = |bytes: i64| if bytes > 0 { target.workspace(bytes as usize).map(Some) } else { Ok(None) };
    let partial = workspace(plan.partial_bytes(size, tile))?;
    let split_bytes = if plan.splits > 1 { plan.splits * size.batches * matrix * tile.element } else { 0 };
    let sums_memory = workspace(split_bytes)?;
    let memory = |workspace: &Option<crate::ops::Workspace>| match workspace {
        Some(workspace) => target.memory(workspace.address),
        None => Ok(Memory::ABSENT),
    };
    let sums = memory(&sums_memory)?;
    let goal = if plan.splits > 1 {
        let layout = Matrix::dense(size.rows, size.columns);
        Epilogue::plain(MatrixOperand { memory: sums, dtype: class.storage(), layout }, None)
    } else {
        epilogue
    };
    let program = program(target, class, tile, [a.kind(), b.kind()], a.dtype(), &goal)?;
    let (a_bytes, b_bytes) = plan.local_bytes(size, tile);
    let args = entry::Gemm {
        a: a.memory(),
        b: b.memory(),
        input_dtype: a.dtype(),
        layouts: &layouts,
        blocking,
        partial: memory(&partial)?,
        a_panels: LocalBytes(a_bytes as usize),
        b_panels: LocalBytes(b_bytes as usize),
        epilogue: goal.arguments(class),
    };
    let (across, down) = plan.parts(size);
    let global = [across, down, size.batches * plan.splits];
    launch(target, &program, entry::GEMM.extended(), &goal.extended(&args), global)?;
    if plan.splits > 1 {
        finish(target, class, size, plan.splits, sums, &epilogue)?;
    }
    Ok(())
}

/// Adds `splits` partial results and applies the epilogue.
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
) -> Result<()> {
    if let Tuning::Gpu(tuning) = Tuning::of(target.device) {
        return gemm_local::finish(target, class, size, splits, sums, epilogue, &tuning);
    }
    let tile = Tile::of(target, class);
    let program = program(target, class, tile, MATRICES, class.storage(), epilogue)?;
    let args = entry::GemmFinish {
        partial: sums,
        columns: size.columns,
        step: FINISH_COLUMNS,
        splits,
        epilogue: epilogue.arguments(class),
    };
    let global = [div_ceil(size.columns, FINISH_COLUMNS), size.rows, size.batches];
    launch(target, &program, entry::GEMM_FINISH.extended(), &epilogue.extended(&args), global)
}
