//! Winograd convolution with 3x3 kernels, on CPUs in float32, where it is faster.

mod backward_weight;
mod convolution;

use std::sync::Arc;

use crate::error::Result;
use crate::kernels::structs::winograd_tiles::Images;
use crate::kernels::{CachedProgram, Class, DType, Family, Spec};
use crate::ops::core::forms::Form;
use crate::ops::core::space::div_ceil;
use crate::ops::matmul::im2col::{KernelMap, Spatial, Volume};
use crate::ops::matmul::plan::{Cores, Tile};
use crate::ops::tuning::Tuning;
use crate::ops::Target;

pub(in crate::ops) use backward_weight::BackwardWeight;
pub(in crate::ops) use convolution::Convolution;

/// GEMMs, one for each point of the Winograd transforms; as in `winograd_transforms.cl`.
const POINTS: i64 = 36;
/// Output positions of a tile's side.
const SIDE: i64 = 4;
/// Cost of a weight's value at a point, transformed either way, in cycles of a core with AVX-512. `make bench
/// CASES="'3x3/1 *'"` shows whether the costs choose the faster of Winograd and im2col.
const WEIGHT_COST: f64 = 2.4;

/// Cycles, some 50 us of a core, that a GEMM with an im2col matrix must save to be chosen. It would save less for a
/// smaller last batch or a single image, and its program takes a second to compile, in addition to the program of the
/// other batches. The price: a network that only sees such inputs takes that much longer for each convolution.
const WORTHWHILE: f64 = 150_000.0;

/// Sizes of the GEMM of a point.
#[derive(Clone, Copy, Debug)]
struct PointGemms {
    /// Vectors of tiles.
    vectors: i64,
    /// Panels of output channels.
    panels: i64,
    /// Input channels.
    channels: i64,
}

impl PointGemms {
    /// Sizes for a convolution with this output, or the gradient of it.
    fn new(output: &Volume, out_channels: i64, channels: i64, tile: Tile) -> Self {
        let [width, height, _] = output.sizes;
        let tiles = div_ceil(width, SIDE) * div_ceil(height, SIDE) * output.images;
        Self { vectors: div_ceil(tiles, tile.lanes), panels: div_ceil(out_channels, tile.rows), channels }
    }

    /// Cycles for the weights at all points.
    fn weight_cost(&self, tile: Tile, units: i64) -> f64 {
        (POINTS * self.channels * self.panels * tile.rows) as f64 * WEIGHT_COST / units as f64
    }
}

/// The tile of the kernels: it has as many rows as blocks of `panel.cl`, regardless of what suits other GEMMs.
fn tile_of(cores: &Cores, class: Class) -> Tile {
    let tile = Tile::tuned(&cores.tuning, class);
    let (rows, vectors) = (if tile.lanes == 16 { 8 } else { 4 }, 3);
    Tile { rows, vectors, columns: vectors * tile.lanes, ..tile }
}

/// The cores that GEMMs with im2col matrices are blocked for; `None` on GPUs.
fn cores_of(target: &Target) -> Option<Cores> {
    match Tuning::of(target.device) {
        Tuning::Cpu(tuning) => Some(Cores::new(target, tuning)),
        Tuning::Gpu(_) => None,
    }
}

fn program(target: &Target, class: Class, tile: Tile) -> Result<Arc<CachedProgram>> {
    target.program(Family::Winograd, class, &spec(tile))
}

fn spec(tile: Tile) -> Spec {
    Spec::generic()
        .define("VEC", tile.vector())
        .define("TILE_ROWS", tile.rows)
        .define("TILE_VECTORS", tile.vectors)
        .define("TILE_LANES", tile.lanes)
}

/// The program; only CPUs have one.
pub(in crate::ops) fn forms(target: &Target) -> Vec<Form> {
    let spec = cores_of(target).map(|cores| spec(tile_of(&cores, Class::Float)));
    spec.into_iter().map(|spec| (Class::Float, spec)).collect()
}

/// Returns true if Winograd convolution can be used between these volumes.
fn is_possible(target: &Target, kernel_map: &KernelMap, groups: i64, images: [&Volume; 2], weight: &Volume) -> bool {
    let KernelMap { kernel_size, stride, dilation: [step_w, step_h, _], origin: [.., origin_d], .. } = *kernel_map;
    let is_f32 = images.iter().chain(&[weight]).all(|volume| volume.dtype == DType::F32);
    let are_flat = images.iter().all(|volume| volume.numel() > 0 && volume.sizes.last() == Some(&1));
    // Vectors are read and written along rows or along channels.
    let are_dense =
        images.iter().all(|Volume { channel_stride, strides: [w, ..], .. }| *channel_stride == 1 || *w == 1);
    let is_square =
        kernel_size == [3, 3, 1] && stride == [1; 3] && step_w.abs() == 1 && step_h.abs() == 1 && origin_d == 0;
    target.is_cpu() && groups == 1 && is_f32 && are_flat && are_dense && is_square
}

/// Layout of the input and the output, as a kernel argument.
fn images(input: &Volume, origin: Spatial, output: &Volume) -> Images {
    let plane = |[w, h, _]: Spatial| [w, h];
    let reach = |size: i64, stride: i64| (size - 1) * stride;
    let inside: i64 = input.sizes.iter().zip(input.strides).map(|(&size, stride)| reach(size, stride)).sum();
    Images {
        out_sizes: plane(output.sizes),
        in_sizes: plane(input.sizes),
        origin: plane(origin),
        images: input.images,
        channels: input.channels,
        in_strides: plane(input.strides),
        in_channel_stride: input.channel_stride,
        in_image_stride: input.image_stride,
        elements: 1 + inside + reach(input.channels, input.channel_stride) + reach(input.images, input.image_stride),
        out_channels: output.channels,
        out_strides: plane(output.strides),
        out_channel_stride: output.channel_stride,
        out_image_stride: output.image_stride,
    }
}

/// Returns true if Winograd convolution is chosen over a GEMM with an im2col matrix; costs are in cycles.
fn is_chosen(cost: f64, im2col_cost: f64) -> bool {
    cost < im2col_cost + WORTHWHILE
}

/// Devices of the tests: tiles for both vector widths, and the local memory of small devices, of Intel's runtime and of
/// PoCL.
#[cfg(test)]
mod samples {
    use super::Tile;

    pub(in crate::ops) const WIDE: Tile = Tile { rows: 8, columns: 48, vectors: 3, lanes: 16, parts: 1, element: 4 };
    pub(in crate::ops) const NARROW: Tile = Tile { rows: 4, columns: 24, lanes: 8, ..WIDE };
    pub(in crate::ops) const LOCAL_BYTES: [i64; 3] = [32 << 10, 256 << 10, 2 << 20];
}
