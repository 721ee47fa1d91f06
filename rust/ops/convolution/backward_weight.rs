//! The gradient of a convolution's weight on CPUs, for few input channels and many output channels, as in the first
//! layer of a network.

use super::direct::{program, Direct};
use crate::error::Result;
use crate::kernels::{entry, Class};
use crate::ops::core::geometry::native_lanes;
use crate::ops::core::space::div_ceil;
use crate::ops::matmul::epilogue::Epilogue;
use crate::ops::matmul::gemm::{finish, launch, occupancy_target};
use crate::ops::matmul::plan::GemmSize;
use crate::ops::Target;

/// Input channels of a group up to which a GEMM takes longer, as its im2col matrix is packed value by value at borders.
const FEW_CHANNELS: i64 = 4;
/// Minimum number of vectors of output channels whose sums hide the latency of an addition.
const LEAST_VECTORS: i64 = 2;
/// Weights of an output channel whose sums are in registers at a time: `WEIGHTS_AT_ONCE` of `conv_weight.cl`.
const WEIGHTS_AT_ONCE: i64 = 6;
/// Local memory for a box's input and gradient: a part of L2. Twice as much makes no difference (7x7 stride 2, 3x3 and
/// 4x4 stride 4 of 3 channels; PoCL, Xeon with 2 MiB of L2; `make bench CASES="'7x7/2 *'"`).
const BOX_BYTES: i64 = measured!("CONV_WEIGHT_BOX_BYTES", 96 << 10);
/// Local memory for the sums.
const SUM_BYTES: i64 = 256 << 10;

/// Computes the gradient of the weight; `epilogue` takes it as rows of (input channels, kernel elements) and columns of
/// output channels. Returns false, without doing anything, if another algorithm suits the convolution better.
///
/// # Errors
/// Errors reported by the allocator or the driver.
pub(in crate::ops) fn backward_weight(
    target: &Target,
    direct: &Direct,
    class: Class,
    epilogue: &Epilogue<'_>,
) -> Result<bool> {
    let Direct { input, output, groups, .. } = *direct;
    let (rows, channels, k) = (direct.out_channels(), direct.in_channels(), direct.k());
    let (lanes, element, local_bytes) =
        (native_lanes(target, class), class.size() as i64, target.device.info.local_mem as i64);
    let is_real = !class.is_complex();
    let suits = channels <= FEW_CHANNELS && rows >= LEAST_VECTORS * lanes && k > channels;
    let (padded, pitch) = (div_ceil(k, WEIGHTS_AT_ONCE) * WEIGHTS_AT_ONCE, div_ceil(rows, lanes) * lanes);
    let fits = padded * pitch * element <= SUM_BYTES.min(local_bytes / 4);
    if !(target.is_cpu() && is_real && suits && fits) {
        return Ok(false);
    }
    let most = BOX_BYTES.min(local_bytes / 2) / element;
    let Some(boxes) = direct.largest_boxes(lanes, pitch, 1, most) else { return Ok(false) };
    let elements = direct.elements(boxes, lanes);
    let splits = div_ceil(occupancy_target(target), groups).min(output.images * direct.box_count(boxes)).max(1);
    let workspace = target.workspace((splits * groups * rows * k * element) as usize)?;
    let sums = target.memory(workspace.address)?;
    let args = direct.weight_args(sums, boxes, elements, [padded, pitch], element);
    launch(target, &*program(target, class, input.dtype)?, entry::CONV_WEIGHT, &args, [groups, splits, 1])?;
    let size = GemmSize { rows: k, columns: rows, k: 0, batches: groups };
    finish(target, class, size, splits, sums, epilogue)?;
    Ok(true)
}
