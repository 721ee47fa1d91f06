//! Which way of writing by index suits a device and what is updated.

use super::IndexAxis;
use crate::kernels::DType;
use crate::ops::core::space::Dim;
use crate::ops::Target;

/// Scattering an element takes as long as so many elements of a pointwise kernel, so that specialised programs pay
/// for fewer.
pub(super) const SCATTER_COST: i64 = 8;

/// Occupancy target: copies of the destination, each a work-item's, for each core.
pub(super) const OCCUPANCY_TARGET: i64 = 4;

/// Returns true if a CPU's cores should have their own copies of a destination that all elements of a vector are added
/// to: that costs little where the vector is much longer, and spares atomics: bincount went from 33 ms to 3
/// (`make bench CASES="'bincount *'"`).
pub(super) fn suits_copies(target: &Target, axis: &IndexAxis<'_>, elements: i64) -> bool {
    let copies = target.compute_units() as i64 * OCCUPANCY_TARGET;
    target.is_cpu() && axis.size < elements && axis.size * copies * 4 <= elements
}

/// Rows of a destination for each core of a CPU from which cores can share them, as indices then meet all parts.
pub(super) const ROWS_FOR_A_CORE: i64 = 16;
/// Bytes of a row for each core below which a part of the row is too little for it.
pub(super) const SHARE_OF_ROW: i64 = 512;

/// The dimension of elements that share an index; of one, where each has its own.
pub(super) fn row_of(lanes: &[Dim<3>], dtypes: [DType; 2]) -> Dim<3> {
    lanes.first().copied().unwrap_or(Dim { size: 1, strides: dense(dtypes) })
}

/// Strides of dense elements of the destination and the source, which share an index.
fn dense(dtypes: [DType; 2]) -> [i64; 3] {
    let [dst, src] = dtypes.map(|dtype| dtype.size() as i64);
    [dst, src, 0]
}

/// Returns true if a CPU's cores should share the rows of the destination, and not each row. Of rows of one element each
/// core would take as long to find its own as one core takes to add them all.
pub(super) fn suits_rows(target: &Target, axis: &IndexAxis<'_>, row: Dim<3>, dtypes: [DType; 2]) -> bool {
    let cores = target.compute_units() as i64;
    target.is_cpu()
        && row.size > 1
        && row.strides == dense(dtypes)
        && axis.stride > 0
        // Offsets that several indices were folded into have a dimension without end.
        && (cores * ROWS_FOR_A_CORE..i64::from(i32::MAX)).contains(&axis.size)
        && row.size * row.strides[0] < cores * SHARE_OF_ROW
}

/// Returns true if too few lanes walk too deep for a CPU. A sequential walk gives the same result every time, so it is
/// kept as long as it keeps the device busy: atomics pay only from 16 idle cores on.
pub(super) fn is_worth_racing(target: &Target, lanes: usize, depth: usize) -> bool {
    lanes < target.compute_units() / 16 && depth > 4096
}

/// Updates of a lane that a GPU's work-item makes one after the other, each of which waits for the one before. This and
/// the next two are guesses until they are measured on a GPU.
pub(super) const SHALLOW: usize = 16;
/// Work-items for a compute unit of a GPU from which lanes that walk keep it as busy as updates that race would.
pub(super) const RACING_ITEMS: usize = 512;
/// The same for updates that are sorted first, which costs several passes over their offsets.
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
