//! Chooses the way of writing by index that suits the device and the updates.

use super::IndexAxis;
use crate::kernels::DType;
use crate::ops::core::space::Dim;
use crate::ops::Target;

/// Scattering an element takes as long as this many elements of a pointwise kernel, so specialised programs pay off for
/// fewer elements.
pub(super) const SCATTER_COST: i64 = 8;

/// Occupancy target: copies of the destination for each core, one for each work-item.
pub(super) const OCCUPANCY_TARGET: i64 = 4;

/// Returns true if a CPU's cores should have their own copies of a destination that all elements of a vector are added
/// to. This costs little if the vector is much longer than the destination, and avoids atomics: bincount went from 33
/// ms to 3 (`make bench CASES="'bincount *'"`).
pub(super) fn suits_copies(target: &Target, axis: &IndexAxis<'_>, elements: i64) -> bool {
    let copies = target.compute_units() as i64 * OCCUPANCY_TARGET;
    target.is_cpu() && axis.size < elements && axis.size * copies * 4 <= elements
}

/// Minimum number of destination rows per CPU core for which the cores divide the rows: with this many rows, indices
/// are usually spread over all parts.
pub(super) const ROWS_FOR_A_CORE: i64 = 16;
/// Minimum number of bytes per core for which the cores divide a row.
pub(super) const SHARE_OF_ROW: i64 = 512;

/// The dimension of elements that share an index; its size is 1 if each has its own index.
pub(super) fn row_of(lanes: &[Dim<3>], dtypes: [DType; 2]) -> Dim<3> {
    lanes.first().copied().unwrap_or(Dim { size: 1, strides: dense(dtypes) })
}

/// Strides of dense elements of the destination and the source, which share an index.
fn dense(dtypes: [DType; 2]) -> [i64; 3] {
    let [dst, src] = dtypes.map(|dtype| dtype.size() as i64);
    [dst, src, 0]
}

/// Returns true if a CPU's cores should divide the rows of the destination, not each row. With rows of one element, a
/// core would take as long to find its own rows as one core takes to add them all.
pub(super) fn suits_rows(target: &Target, axis: &IndexAxis<'_>, row: Dim<3>, dtypes: [DType; 2]) -> bool {
    let cores = target.compute_units() as i64;
    target.is_cpu()
        && row.size > 1
        && row.strides == dense(dtypes)
        && axis.stride > 0
        // Offsets folded from several indices have an unbounded dimension.
        && (cores * ROWS_FOR_A_CORE..i64::from(i32::MAX)).contains(&axis.size)
        && row.size * row.strides[0] < cores * SHARE_OF_ROW
}

/// Returns true if a CPU has too few lanes with too many updates each. A sequential loop gives the same result every
/// time, so it is used as long as it keeps the device busy: atomics pay off only from 16 idle cores on.
pub(super) fn is_worth_racing(target: &Target, lanes: usize, depth: usize) -> bool {
    lanes < target.compute_units() / 16 && depth > 4096
}

/// Maximum number of updates of a lane that a GPU's work-item makes one after the other. This constant and the
/// next two are guesses until they are measured on a GPU.
pub(super) const SHALLOW: usize = 16;
/// Work-items for each compute unit of a GPU from which sequential lanes keep it as busy as racing updates.
pub(super) const RACING_ITEMS: usize = 512;
/// As `RACING_ITEMS`, for updates that are sorted first, which costs several passes over their offsets.
pub(super) const SORTING_ITEMS: usize = 64;

/// Distance between the reads of neighbours along a dimension.
pub(super) fn step_of_reads(dim: &Dim<3>) -> i64 {
    let [_, src, index] = dim.strides;
    src.abs() + index.abs()
}

/// Returns true if reads are denser along the depth than along lanes.
pub(super) fn is_across(lanes: &[Dim<3>], depth: &[Dim<3>]) -> bool {
    match (lanes.first(), depth.first()) {
        (Some(lane), Some(deep)) => step_of_reads(deep) < step_of_reads(lane),
        _ => false,
    }
}
