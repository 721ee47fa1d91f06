//! Copies between tensors that are dense along different dimensions: transposed matrices, and images in other memory
//! formats.

use crate::error::Result;
use crate::kernels::{entry, Class, Family, Spec};
use crate::ops::core::forms::Form;
use crate::ops::core::space::{div_ceil, layout, span, Dim};
use crate::ops::{Operand, Target};

/// Side of a work-group of `transpose.cl`, and bytes of neighbouring elements that each item moves (at least one
/// element).
const GPU_SIDE: i64 = 16;
const GPU_WORD: i64 = 4;
/// Side of a CPU work-item's tile, in elements: the fastest of 64, 128 and 256 for 4096 x 4096 floats.
const CPU_TILE: i64 = measured!("TRANSPOSE_TILE", 128);

/// Copies `src` to `dst`, of one dtype, over `shape` (innermost dimension first), if the copy transposes large
/// enough matrices. Returns true if it has copied.
///
/// # Errors
/// Errors reported by the driver.
pub fn copy(target: &Target, shape: &[i64], dst: &Operand<'_>, src: &Operand<'_>, non_temporal: bool) -> Result<bool> {
    let width = dst.dtype.size() as i64;
    let dims = shape.iter().zip(dst.strides.iter().zip(src.strides));
    let mut space: Vec<Dim<2>> = dims.map(|(&size, (&to, &from))| Dim { size, strides: [to, from] }).collect();
    let Some(side) = least_side(target, width) else { return Ok(false) };
    let is_matrix = |row: &Dim<2>, column: &Dim<2>| {
        let sides = row.size.min(column.size);
        // Rows that are dense on both sides, as overlapping windows are, need no transpose.
        sides >= side && row.strides[0] == width && ![0, width].contains(&row.strides[1]) && column.strides[1] == width
    };
    let column = match space.split_first() {
        Some((row, rest)) => rest.iter().position(|column| is_matrix(row, column)),
        None => None,
    };
    let Some(column) = column else { return Ok(false) };
    // The columns become the second dimension; the batch keeps its order.
    let matrix = space.remove(column + 1);
    space.insert(1, matrix);
    launch(target, &space, dst, src, width, non_temporal)?;
    Ok(true)
}

/// The smallest side of a matrix that kernels for this width transpose; `None` for elements of 16 bytes, and if groups
/// are too small for a tile.
fn least_side(target: &Target, width: i64) -> Option<i64> {
    let has_groups = target.device.info.max_work_group as i64 >= GPU_SIDE * GPU_SIDE;
    match width {
        _ if !target.is_cpu() => (width <= 8 && has_groups).then_some(GPU_SIDE),
        1 | 4 => Some(16),
        2 => Some(32),
        8 => Some(8),
        _ => None,
    }
}

/// The generic programs.
pub(in crate::ops) fn forms(target: &Target) -> Vec<Form> {
    let widths = [1, 2, 4, 8].into_iter().filter(|width| least_side(target, *width).is_some());
    let specs = widths.flat_map(|width| [false, target.is_cpu()].map(|non_temporal| spec(width, non_temporal)));
    specs.map(|spec| (Class::Integer, spec)).collect()
}

fn spec(width: i64, non_temporal: bool) -> Spec {
    let spec = Spec::generic().define("WIDTH", width);
    // Blocks of single bytes do not fill a cache line, and only whole lines should be non-temporal.
    if non_temporal && width > 1 {
        spec.define("SPEC_NON_TEMPORAL", 1)
    } else {
        spec
    }
}

fn launch(
    target: &Target,
    space: &[Dim<2>],
    dst: &Operand<'_>,
    src: &Operand<'_>,
    width: i64,
    non_temporal: bool,
) -> Result<()> {
    let &[row, column, ref batch @ ..] = space else { return Ok(()) };
    let program = target.program(Family::Transpose, Class::Integer, &spec(width, non_temporal))?;
    let (dst, src, layout) = (target.memory(dst.address)?, target.memory(src.address)?, layout(space)?);
    let count = space.iter().map(|dim| dim.size).product();
    if target.is_cpu() {
        let args = entry::TransposeBlocks { dst, src, layout, tile: CPU_TILE };
        let items = span(batch) as i64 * div_ceil(row.size, CPU_TILE) * div_ceil(column.size, CPU_TILE);
        return target.launch_elements(&program, entry::TRANSPOSE_BLOCKS, &args, count, &[items as usize], Some(&[1]));
    }
    let tile = GPU_SIDE * (GPU_WORD / width).max(1);
    let items = |size: i64| (div_ceil(size, tile) * GPU_SIDE) as usize;
    let global = [items(column.size), items(row.size), span(batch)];
    let args = entry::TransposeTiles { dst, src, layout };
    let local = [GPU_SIDE as usize, GPU_SIDE as usize, 1];
    target.launch_elements(&program, entry::TRANSPOSE_TILES, &args, count, &global, Some(&local))
}
