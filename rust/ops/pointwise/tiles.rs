//! How the strided element-wise kernel walks: tiles, vectors, and the dimension next to the innermost.

use super::GROUP;
use crate::error::Result;
use crate::kernels::Layout;
use crate::ops::Operand;
use crate::ops::Target;

/// Vectors of a CPU tile of strided operands: along a row, so that they share its set-up; or, if an operand is
/// transposed, one per row, so that its cache lines are few and fully used.
pub(in crate::ops) const TILE_VECTORS: i64 = 64;
pub(in crate::ops) const TILE_ROWS: i64 = 256;
/// Occupancy target: groups of work-items for each core, which share the tiles evenly.
const OCCUPANCY_TARGET: usize = 8;
/// Side of a GPU tile, in elements, if an operand is transposed; each item takes one element.
pub(in crate::ops) const GPU_SIDE: i64 = 16;

/// Tiles of the strided kernel: `rows * rows_at_once` rows by `vectors` vectors.
#[derive(Clone, Copy, Debug, Default)]
pub(in crate::ops) struct Tiles {
    pub vectors: i64,
    pub rows: i64,
    pub rows_at_once: i64,
    pub count: i64,
}

impl Tiles {
    /// (global, local) size: on CPUs each item takes several tiles; on GPUs each item, or each group, takes one.
    pub fn items(&self, target: &Target) -> (usize, usize) {
        let tiles = self.count as usize;
        if target.is_cpu() {
            return (tiles.min(target.compute_units() * OCCUPANCY_TARGET * GROUP).next_multiple_of(GROUP), GROUP);
        }
        if self.rows > 1 {
            let side = GPU_SIDE as usize;
            return (tiles * side * side, side * side);
        }
        (tiles.next_multiple_of(GROUP), GROUP)
    }
}

/// Returns true if an operand's neighbours in memory lie along `dim`, not along the innermost dimension.
pub(in crate::ops) fn is_across(operand: &Operand<'_>, dim: usize) -> bool {
    match (operand.strides.first(), operand.strides.get(dim)) {
        (Some(inner), Some(outer)) => *inner != 0 && *outer != 0 && outer.abs() < inner.abs(),
        _ => false,
    }
}

/// Returns true if rows are whole, aligned vectors, or repeat one element.
pub(in crate::ops) fn fits_vectors(shape: &[i64], operands: &[Operand<'_>], lanes: usize) -> bool {
    let fits = |operand: &Operand<'_>| {
        let (size, vector) = (operand.dtype.size() as i64, (lanes * operand.dtype.size()) as i64);
        match operand.strides.split_first() {
            None | Some((0, _)) => true,
            Some((inner, outer)) => {
                let mut starts = outer.iter().copied().chain([operand.address as i64]);
                *inner == size && starts.all(|start| start % vector == 0)
            }
        }
    };
    shape.first().is_some_and(|size| size % lanes as i64 == 0) && operands.iter().all(fits)
}

/// The layout of the strided kernel, with dimension `facing` next to the innermost.
pub(in crate::ops) fn layout_facing(shape: &[i64], operands: &[Operand<'_>], facing: Option<usize>) -> Result<Layout> {
    let strides: Vec<&[i64]> = operands.iter().map(|operand| operand.strides).collect();
    let Some(dim) = facing else { return Layout::new(shape, &strides) };
    let turned = |values: &[i64]| {
        let mut values = values.to_vec();
        if dim < values.len() {
            values.swap(1, dim);
        }
        values
    };
    let strides: Vec<Vec<i64>> = strides.into_iter().map(turned).collect();
    let strides: Vec<&[i64]> = strides.iter().map(Vec::as_slice).collect();
    Layout::new(&turned(shape), &strides)
}
