//! GEMM by matrix instructions, or sums of products, for GPUs that have them: of float16 and bfloat16, of int8 with
//! int32 results, and of float32 where TensorFloat-32 is allowed.

use super::epilogue::Activation;
use super::gemm_local::{finish, SHORTEST_SPLIT};
use super::matrix::halves;
use super::operands::Gemm;
use super::plan::GemmSize;
use super::tile_check::{has_failed, is_right};
use super::tile_form::{Block, Form, Side};
use super::tile_kind::{TileKind, TileUnit};
use crate::error::Result;
use crate::kernels::structs::gemm_block::Extent;
use crate::kernels::{entry, Class, DType};
use crate::ops::core::forms;
use crate::ops::core::space::div_ceil;
use crate::ops::tuning::GpuTuning;
use crate::ops::Target;

#[cxx::bridge(namespace = "torch_opencl::bridge")]
mod ffi {
    unsafe extern "C++" {
        include!("runtime/precision.h");
        /// Returns true if matmuls of float32 may round their operands to TF32.
        fn allows_tf32() -> bool;
    }
}

pub use ffi::allows_tf32;

/// Smaller matmuls fill no tile: most of the products would be of zeros.
const LEAST_SIDE: i64 = 16;
const LEAST_K: i64 = 32;

/// How a GEMM is computed.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    form: Form,
    splits: i64,
}

/// The usual programs of a device with matrix instructions: results of the operands' dtype, and partial sums.
///
/// # Errors
/// See [`plan`].
pub(super) fn forms(target: &Target) -> Result<Vec<forms::Form>> {
    let mut found = Vec::new();
    let matrices = |unit: TileUnit, dtype, is_large, aligned, [a_along_k, b_along_k]: [bool; 2]| Form {
        unit,
        block: Block::of(unit, is_large, unit.kind.has_copies() && aligned),
        dtype,
        a: Side::matrix(a_along_k, aligned),
        b: Side::matrix(b_along_k, aligned),
    };
    let sizes = [(true, true), (false, true), (false, false)];
    for dtype in [DType::F16, DType::BF16] {
        let Some(unit) = TileUnit::of(&target.device.info, dtype)? else { continue };
        let mut add = |form: Form, lines| {
            if form.block.fits(unit, target) {
                let spec = |(out, lines)| (Class::Float, form.spec([out; 2], Activation::None, lines));
                found.extend([(dtype, lines), (DType::F32, true)].map(spec));
            }
        };
        for order in [[true, true], [true, false], [false, true], [false, false]] {
            for (is_large, aligned) in sizes {
                let form = matrices(unit, dtype, is_large, aligned, order);
                add(form, true);
                if order == [true; 2] {
                    // Convolutions of one kernel element.
                    add(form, false);
                }
            }
        }
        // Convolutions of channels-last inputs, and of others whose results are not; gradients of weights.
        let (along_k, along_columns) = (Side::matrix(true, true), Side::matrix(false, true));
        let images = |kind, along_k| Side { kind, along_k, aligned: true };
        let sides = [(images(1, true), along_k), (along_k, images(1, true)), (along_columns, images(2, false))];
        for ((a, b), is_large) in sides.into_iter().flat_map(|sides| [(sides, true), (sides, false)]) {
            if !(is_large && spills(unit, &b)) {
                add(Form { unit, block: Block::of(unit, is_large, unit.kind.has_copies()), dtype, a, b }, false);
            }
        }
    }
    // Matmuls, and the gradients of linear layers; int8 has no gradients.
    let orders = [[true, true], [true, false], [false, false]];
    for (dtype, orders) in [(DType::F32, &orders[..]), (DType::I8, &orders[..1])] {
        let Some(unit) = TileUnit::of(&target.device.info, dtype)? else { continue };
        for order in orders {
            let listed = sizes.map(|(is_large, aligned)| matrices(unit, dtype, is_large, aligned, *order));
            let fitting = listed.into_iter().filter(|form| form.block.fits(unit, target));
            let spec = |form: Form| (Class::Float, form.spec([form.sum_dtype(); 2], Activation::None, true));
            found.extend(fitting.map(spec));
        }
    }
    Ok(found)
}

/// Returns true if matrix instructions compute matmuls of a 16-bit dtype on a device, with at least so many rows, columns
/// and values of k, and no form of the kernel has failed its check.
pub fn computes(target: &Target, dtype: DType, side: i64, k: i64) -> bool {
    matches!(dtype, DType::F16 | DType::BF16) && has_instructions(target, dtype, side, k)
}

/// The same for int8, if operands have whole rows along k.
pub fn computes_int8(target: &Target, side: i64, k: i64) -> bool {
    let unit = TileUnit::of(&target.device.info, DType::I8).ok().flatten();
    unit.is_some_and(|unit| k <= unit.most_int8_terms()) && has_instructions(target, DType::I8, side, k)
}

fn has_instructions(target: &Target, dtype: DType, side: i64, k: i64) -> bool {
    let fits = |unit: TileUnit| Block::of(unit, false, unit.kind.has_copies()).fits(unit, target);
    !target.is_cpu()
        && side >= LEAST_SIDE
        && k >= LEAST_K
        && TileUnit::of(&target.device.info, dtype).is_ok_and(|unit| unit.is_some_and(fits))
        && !has_failed(target, dtype)
}

/// Returns true if an item of the large block has too few registers.
fn spills(unit: TileUnit, b: &Side) -> bool {
    unit.kind == TileKind::Wmma && b.kind == 2
}

/// The plan of a GEMM; `None` if its operands do not have a dtype and a layout that tiles can be loaded from, if it is
/// too small, or if its form has failed its check.
///
/// # Errors
/// [`crate::error::Error::Invalid`] for a wrong value of `TORCH_OPENCL_MATRIX`.
pub fn plan(target: &Target, gemm: &Gemm<'_>, tuning: &GpuTuning) -> Result<Option<Plan>> {
    let GemmSize { rows, columns, k, batches } = gemm.size;
    let dtype = gemm.a.dtype();
    let has_right_dtypes = gemm.class == Class::Float
        && gemm.b.dtype() == dtype
        && (dtype == DType::I8) == (gemm.epilogue.out.dtype == DType::I32);
    if !has_right_dtypes || rows.min(columns) < LEAST_SIDE || k < LEAST_K {
        return Ok(None);
    }
    let Some(unit) = TileUnit::of(&target.device.info, dtype)? else { return Ok(None) };
    if dtype == DType::F32 && !(gemm.may_round && allows_tf32()) {
        return Ok(None);
    }
    if dtype == DType::I8 && k > unit.most_int8_terms() {
        return Ok(None);
    }
    let (Some(a), Some(b)) = (Side::of(&gemm.a, false), Side::of(&gemm.b, true)) else { return Ok(None) };
    let is_async = unit.kind.has_copies() && a.aligned && b.aligned;
    let units = target.compute_units() as i64;
    let blocks = |block: &Block| div_ceil(rows, block.rows) * div_ceil(columns, block.columns) * batches;
    let large = Block::of(unit, true, is_async);
    let fills = blocks(&large) >= units && large.fits(unit, target) && !spills(unit, &b);
    let block = if fills { large } else { Block::of(unit, false, is_async) };
    let form = Form { unit, block, dtype, a, b };
    if !block.fits(unit, target) || !is_right(target, &form) {
        return Ok(None);
    }
    let splits = (units * tuning.groups_per_unit / blocks(&block).max(1)).min(k / SHORTEST_SPLIT).max(1);
    Ok(Some(Plan { form, splits }))
}

impl Plan {
    /// Returns true if several groups compute the sums of one result. Those of int32 are added to what it contains.
    pub const fn has_splits(&self) -> bool {
        self.splits > 1
    }

    /// Computes the GEMM.
    ///
    /// # Errors
    /// Errors reported by the allocator or the driver.
    pub fn run(&self, target: &Target, gemm: &Gemm<'_>, tuning: &GpuTuning) -> Result<()> {
        let Self { form, splits } = *self;
        let Gemm { class, size, a, b, epilogue, .. } = *gemm;
        let GemmSize { rows, columns, k, batches } = size;
        let results = rows * columns * batches;
        let adds = form.dtype == DType::I8;
        let sums = if splits > 1 && !adds {
            Some(target.workspace((splits * results) as usize * class.size())?)
        } else {
            None
        };
        let split_stride = if adds { 0 } else { results };
        let goal = epilogue.or_sums(target, sums.as_ref(), class, [rows, columns])?;
        let args = entry::GemmTile {
            a: a.memory(),
            b: b.memory(),
            a_layout: a.layout().in_halves(form.dtype),
            b_layout: b.layout().in_halves(form.dtype),
            im2col: a.im2col().or(b.im2col()).unwrap_or_default().layout(),
            extent: Extent { rows, columns, k: halves(k, form.dtype), splits, split_stride },
            epilogue: goal.arguments(class),
        };
        let (program, kernel) = (form.program(target, &goal)?, entry::GEMM_TILE.extended());
        let items = form.block.items(form.unit) as usize;
        let blocks = div_ceil(rows, form.block.rows) * div_ceil(columns, form.block.columns);
        let global = (blocks * batches * splits) as usize * items;
        target.launch(&program, kernel, &goal.extended(&args), &[global], Some(&[items]))?;
        match sums {
            Some(_) => finish(target, class, size, splits, goal.out.memory, &epilogue, tuning),
            None => Ok(()),
        }
    }
}
