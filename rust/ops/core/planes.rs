//! Layouts for kernels of tensors [N, C, (D, (H,)) W], whose batch dimension may be missing.

use super::space::div_ceil;
use crate::abi::Tensor;
use crate::error::Result;
use crate::kernels::Layout;

/// Maximum number of spatial dimensions of a tensor.
pub const SPATIAL: usize = 3;
/// Spatial dimensions, channels and samples.
const DIMS: usize = SPATIAL + 2;

/// [W, H, D, C, N] from a list with the outermost dimension first, whose last `spatial` dimensions are spatial;
/// `absent` for missing ones.
fn arrange(list: &[i64], spatial: usize, absent: i64) -> [i64; DIMS] {
    let mut arranged = [absent; DIMS];
    let (outer, inner) = list.split_at_checked(list.len().saturating_sub(spatial)).unwrap_or((&[], list));
    for (slot, value) in arranged.iter_mut().zip(inner.iter().rev()) {
        *slot = *value;
    }
    for (slot, value) in arranged.iter_mut().skip(SPATIAL).zip(outer.iter().rev()) {
        *slot = *value;
    }
    arranged
}

/// Sizes [W, H, D, C, N].
pub fn sizes(tensor: &Tensor<'_>, spatial: usize) -> [i64; DIMS] {
    arrange(tensor.sizes, spatial, 1)
}

/// Sizes [W, H, D, C, N] of the first tensor and the strides of all along them.
///
/// # Errors
/// See [`Layout::new`].
pub fn layout(tensors: &[&Tensor<'_>], spatial: usize) -> Result<Layout> {
    let strides: Vec<[i64; DIMS]> = tensors
        .iter()
        .map(|tensor| arrange(tensor.strides, spatial, 0).map(|stride| stride * tensor.dtype.size() as i64))
        .collect();
    let slices: Vec<&[i64]> = strides.iter().map(<[i64; DIMS]>::as_slice).collect();
    Layout::new(&tensors.first().map_or([1; DIMS], |first| sizes(first, spatial)), &slices)
}

/// Returns true if the channels of an element are contiguous in all tensors, as in channels-last ones.
pub fn channels_are_neighbours(tensors: &[&Tensor<'_>], spatial: usize) -> bool {
    tensors.iter().all(|tensor| {
        let channel = tensor.ndim().checked_sub(spatial + 1);
        channel.is_some_and(|dim| tensor.size(dim) > 1 && tensor.stride(dim) == 1)
    })
}

/// Vectors of `lanes` elements along the columns or, with `by_channel`, the channels; and how many such lines there
/// are.
pub fn strips(sizes: &[i64; DIMS], by_channel: bool, lanes: usize) -> (i64, i64) {
    let [width, _, _, channels, _] = *sizes;
    let along = if by_channel { channels } else { width };
    let lines = sizes.iter().product::<i64>() / along.max(1);
    (div_ceil(along.max(0), lanes as i64), lines)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernels::DType;

    #[test]
    fn a_missing_batch_is_one_sample() {
        let image = Tensor { address: 0, dtype: DType::F32, sizes: &[3, 8, 6], strides: &[48, 6, 1] };
        assert_eq!(sizes(&image, 2), [6, 8, 1, 3, 1]);
        let batch = Tensor { address: 0, dtype: DType::F32, sizes: &[1, 3, 8, 6], strides: &[0, 48, 6, 1] };
        assert_eq!(layout(&[&image], 2), layout(&[&batch], 2));
    }

    #[test]
    fn strips_run_along_columns_or_channels() {
        assert_eq!(strips(&[6, 8, 1, 20, 2], false, 16), (1, 320));
        assert_eq!(strips(&[6, 8, 1, 20, 2], true, 16), (2, 96));
    }
}
