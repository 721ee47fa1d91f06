//! Sums and products in dtypes narrower than the type that kernels compute in, such as 16-bit floats. If each update
//! were rounded to the dtype, 5000 ones would sum to 256 in bfloat16. So all updates of an element are combined in
//! float, and rounded once. There are two ways:
//!
//! - [`by_copy`]: elements that updates may reach are copied to float32, updated there by atomics or loops, and rounded
//!   back. That takes 4 bytes of memory for each of these elements, and reads and writes 12 bytes.
//! - Updates are sorted by destination, and one work-item makes all updates of a destination, in a register
//!   (`Scatter::by_destination`). That takes [`SORTED_BYTES`] of memory for each index, whatever the size of the table,
//!   and only touches elements that have updates; each pass of the sort reads and writes 32 bytes.
//!
//! The way that needs less memory is chosen. It is also the one that moves fewer bytes, in proportion: the gradient of
//! an embedding of 50000 rows of 1024 elements by 8192 indices is 0.3 MB to sort, and 200 MB to copy, but that of
//! 100000 indices into 4 rows is 16 KB to copy and 4 MB to sort.

use super::IndexAxis;
use crate::error::Result;
use crate::kernels::{Class, DType};
use crate::ops::pointwise::cast;
use crate::ops::{Target, Tensor};

/// Bytes of memory for each index that is sorted: its offset, and offset and position both sorted and being merged.
const SORTED_BYTES: i64 = 5 * DType::I64.size() as i64;

/// Returns true if several sums or products of one element would each be rounded.
///
/// Both ways handle each element once. If elements share memory, atomics make the updates, and round each of them.
pub(super) fn is_needed(dst: &Tensor<'_>, axes: &[IndexAxis<'_>]) -> bool {
    let is_rounded = matches!(dst.class(), Class::Float | Class::Complex) && dst.dtype != dst.class().storage();
    let repeats = dst.sizes.iter().zip(dst.strides).any(|(size, stride)| *size > 1 && *stride == 0);
    is_rounded && repeats && !shares_memory(dst, axes)
}

/// Returns true if elements of `dst` that updates may reach may share memory, so that different lanes, and different
/// indices, may write to the same address.
pub(super) fn shares_memory(dst: &Tensor<'_>, axes: &[IndexAxis<'_>]) -> bool {
    overlaps(extents(dst, axes))
}

/// Returns true if a wide copy of all elements that updates may reach needs less memory than sorting the updates.
pub(super) fn suits_copy(dst: &Tensor<'_>, axes: &[IndexAxis<'_>]) -> bool {
    let wide = dst.class().storage().size() as i64;
    let elements = extents(dst, axes).iter().fold(wide, |bytes, extent| bytes.saturating_mul(extent.size));
    let moves = |dim: usize| dst.stride(dim) == 0 || axes.iter().any(|axis| axis.index.stride(dim) != 0);
    let indices: i64 = (0..dst.ndim()).filter(|dim| moves(*dim)).map(|dim| dst.size(dim)).product();
    elements <= indices.saturating_mul(SORTED_BYTES)
}

/// A dimension of the elements that updates may reach: its size, and its stride in elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Extent {
    size: i64,
    stride: i64,
}

/// The dimensions along which `dst` moves, and those that indices walk.
fn extents(dst: &Tensor<'_>, axes: &[IndexAxis<'_>]) -> Vec<Extent> {
    let lanes = dst.sizes.iter().zip(dst.strides).filter(|(_, stride)| **stride != 0);
    let lanes = lanes.map(|(&size, &stride)| Extent { size, stride });
    let element = dst.dtype.size() as i64;
    lanes.chain(axes.iter().map(|axis| Extent { size: axis.size, stride: axis.stride / element })).collect()
}

/// Returns true if elements may share memory: the elements of one dimension do not fit between those of the next.
fn overlaps(mut extents: Vec<Extent>) -> bool {
    extents.retain(|extent| extent.size > 1);
    extents.sort_by_key(|extent| extent.stride);
    let mut reach = 1;
    extents.iter().any(|extent| {
        let is_inside = extent.stride < reach;
        reach = reach.saturating_add(extent.stride.saturating_mul(extent.size - 1));
        is_inside
    })
}

/// Strides of a dense copy whose dimensions are in the order of the original's.
fn dense_strides(extents: &[Extent]) -> Vec<i64> {
    let mut inner_first: Vec<(usize, &Extent)> = extents.iter().enumerate().collect();
    inner_first.sort_by_key(|(_, extent)| extent.stride);
    let mut step = 1;
    let mut strides: Vec<(usize, i64)> = Vec::with_capacity(extents.len());
    for (position, extent) in inner_first {
        strides.push((position, step));
        step *= extent.size;
    }
    strides.sort_unstable();
    strides.into_iter().map(|(_, stride)| stride).collect()
}

/// Copies the elements that updates may reach to a dense tensor of a wider dtype, updates the copy, and rounds it back.
///
/// `index_set` makes the updates: it is called once, with the destination and axes that describe the copy in place of
/// `dst` and `axes`. Returns the result of `index_set`.
pub(super) fn by_copy(
    target: &Target,
    dst: &Tensor<'_>,
    axes: &[IndexAxis<'_>],
    index_set: impl FnOnce(&Tensor<'_>, &[IndexAxis<'_>]) -> Result<bool>,
) -> Result<bool> {
    let extents = extents(dst, axes);
    let wide = dst.class().storage();
    let sizes: Vec<i64> = extents.iter().map(|extent| extent.size).collect();
    let (strides, dense): (Vec<i64>, _) =
        (extents.iter().map(|extent| extent.stride).collect(), dense_strides(&extents));
    let elements: i64 = sizes.iter().product();
    let memory = target.workspace(elements as usize * wide.size())?;
    let narrow = Tensor { address: dst.address, dtype: dst.dtype, sizes: &sizes, strides: &strides };
    let copy = Tensor { address: memory.address, dtype: wide, sizes: &sizes, strides: &dense };

    let mut steps = dense.iter().copied();
    let lanes: Vec<i64> =
        dst.strides.iter().map(|stride| if *stride == 0 { 0 } else { steps.next().unwrap_or(0) }).collect();
    let axes: Vec<_> =
        axes.iter().map(|axis| IndexAxis { stride: steps.next().unwrap_or(0) * wide.size() as i64, ..*axis }).collect();
    if elements > 0 {
        cast(&copy, &narrow)?;
    }
    let is_checked = index_set(&Tensor { strides: &lanes, ..Tensor { sizes: dst.sizes, ..copy } }, &axes)?;
    if elements > 0 {
        cast(&narrow, &copy)?;
    }
    Ok(is_checked)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dense_copy_keeps_the_order_of_dimensions() {
        let extents = [(3, 100), (4, 1), (5, 7)].map(|(size, stride)| Extent { size, stride });
        assert_eq!(dense_strides(&extents), [20, 1, 4]);
    }

    #[test]
    fn dimensions_overlap_where_one_is_longer_than_the_step_of_the_next() {
        let case = |dims: &[(i64, i64)]| overlaps(dims.iter().map(|&(size, stride)| Extent { size, stride }).collect());
        assert!(!case(&[(3, 100), (4, 1), (5, 7)]));
        assert!(!case(&[(4, 1), (3, 4), (1, 1)]));
        assert!(case(&[(4, 1), (3, 1)]));
        assert!(case(&[(3, 4), (5, 1)]));
    }
}
