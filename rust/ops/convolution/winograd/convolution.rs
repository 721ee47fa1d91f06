//! Winograd convolution that computes a value for each output position: a convolution, or the gradient of its input.

use super::{cores_of, images, is_chosen, is_possible, program, tile_of, PointGemms, POINTS};
use crate::cl::Memory;
use crate::error::Result;
use crate::kernels::entry::{self, LocalBytes};
use crate::kernels::structs::winograd::Weight;
use crate::kernels::{Class, DType};
use crate::ops::convolution::{SubConvolution, WeightStrides};
use crate::ops::core::space::div_ceil;
use crate::ops::matmul::gemm::launch;
use crate::ops::matmul::matrix::advance;
use crate::ops::matmul::plan::{GemmPlan, GemmSize, Tile};
use crate::ops::Target;

/// Bytes of a part's tiles at all points; with 55 KiB for the GEMMs' results and the weights that are streamed, they
/// stay in an L2 of 2 MiB.
const TILE_BYTES: i64 = 1200 << 10;
/// Cycles in which a core with AVX-512 transforms a vector of tiles: of an input channel, and of an output channel.
const INPUT_COST: f64 = 500.0;
const OUTPUT_COST: f64 = 350.0;

/// Numbers of parts: `across` divides the vectors of tiles, `down` the panels of output channels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Partition {
    across: i64,
    down: i64,
}

impl PointGemms {
    /// The cheapest partition, after its cost in cycles until the last core is done; `None` if no vector of tiles fits.
    fn partition(&self, tile: Tile, units: i64, local_bytes: i64) -> Option<(f64, Partition)> {
        let fits = |&vectors: &i64| {
            let all @ [tiles, ..] = self.local_bytes(vectors, tile);
            tiles <= TILE_BYTES && all.iter().sum::<i64>() <= local_bytes
        };
        let partitions = (1..=tile.vectors)
            .take_while(fits)
            .flat_map(|vectors| [1, 2, 4].map(|down| (div_ceil(self.vectors, vectors), down)));
        let partitions = partitions.map(|(across, down)| Partition { across, down: down.min(self.panels) });
        partitions.map(|partition| (self.cost(partition, tile, units), partition)).min_by(|a, b| a.0.total_cmp(&b.0))
    }

    /// Bytes of local memory of the kernel `winograd` for a part of `vectors` vectors of tiles: the tiles at all
    /// points, a panel's GEMM results with them, and the tiles being transformed.
    fn local_bytes(&self, vectors: i64, tile: Tile) -> [i64; 3] {
        [self.channels * vectors, tile.rows * vectors, tile.rows]
            .map(|count| POINTS * count * tile.lanes * tile.element)
    }

    fn cost(&self, partition: Partition, tile: Tile, units: i64) -> f64 {
        let rounds = div_ceil(partition.across * partition.down, units) as f64;
        let vectors = self.vectors as f64 / partition.across as f64;
        let rows = (div_ceil(self.panels, partition.down) * tile.rows) as f64;
        // With one vector per row there are as many loads as multiplications.
        let step = rows * vectors.max(1.25) / 2.0;
        let gemms = step * (POINTS * self.channels) as f64;
        let transforms = vectors * (self.channels as f64 * INPUT_COST + rows * OUTPUT_COST);
        (gemms + transforms) * rounds + self.weight_cost(tile, units)
    }
}

/// A Winograd convolution that computes a value for each output position.
#[derive(Clone, Copy, Debug)]
pub(in crate::ops) struct Convolution {
    part: SubConvolution,
    /// The tile of the tuning used for the partition: another thread may change the tuning before `run`.
    tile: Tile,
    gemms: PointGemms,
    partition: Partition,
}

impl Convolution {
    /// The convolution `part`, if Winograd is faster than a GEMM with the im2col matrix.
    pub fn of(target: &Target, part: &SubConvolution, class: Class) -> Option<Self> {
        let SubConvolution { out, input, weight, bias, kernel_map, groups, .. } = part;
        let supports_bias = bias.is_none_or(|bias| bias.dtype == DType::F32);
        if !supports_bias || !is_possible(target, kernel_map, *groups, [out, input], weight) {
            return None;
        }
        let cores = cores_of(target)?;
        let tile = tile_of(&cores, class);
        let gemms = PointGemms::new(out, out.channels, input.channels, tile);
        let (cost, partition) = gemms.partition(tile, cores.units, cores.local_bytes)?;
        let size = GemmSize {
            rows: out.channels,
            columns: out.images * out.positions(),
            k: input.channels * weight.positions(),
            batches: 1,
        };
        let (_, im2col_cost) = GemmPlan::of(size, Tile::tuned(&cores.tuning, class), &cores, true);
        is_chosen(cost, im2col_cost).then_some(Self { part: *part, tile, gemms, partition })
    }

    /// Enqueues the kernels.
    ///
    /// # Errors
    /// Errors reported by the allocator or the driver.
    pub fn run(&self, target: &Target, class: Class) -> Result<()> {
        let Self { part, tile, gemms: PointGemms { vectors, panels, channels }, partition } = *self;
        let SubConvolution { out, input, bias, kernel_map, .. } = part;
        let program = program(target, class, tile)?;
        // A vector holds a panel's output channels for `lane_channels` input channels; the last one is padded.
        let lane_channels = tile.lanes / tile.rows;
        let padded = div_ceil(channels, lane_channels) * lane_channels;
        let evaluated = target.workspace((POINTS * padded * panels * tile.rows * tile.element) as usize)?;
        let packed_weight = target.memory(evaluated.address)?;
        let (weight, layout) = self.weight();
        let parts = div_ceil(2 * target.compute_units() as i64, panels).min(padded / lane_channels);
        let args = entry::WinogradWeight { weight, layout, out: packed_weight };
        launch(target, &program, entry::WINOGRAD_WEIGHT, &args, [parts, panels, 1])?;

        let mut origin = kernel_map.origin;
        for (origin, step) in origin.iter_mut().zip(kernel_map.dilation) {
            *origin += (2 * step).min(0);
        }
        let widest = div_ceil(vectors, partition.across);
        let [points, gemm_results, scratch] =
            self.gemms.local_bytes(widest, tile).map(|bytes| LocalBytes(bytes as usize));
        let (bias, bias_stride) = bias.map_or((target.memory(0)?, 0), |bias| (bias.memory, bias.stride));
        let args = entry::Winograd {
            input: input.memory,
            weight: packed_weight,
            bias,
            bias_stride,
            out: out.memory,
            images: images(&input, origin, &out),
            points,
            gemm_results,
            scratch,
        };
        launch(target, &program, entry::WINOGRAD, &args, [partition.across, partition.down, 1])
    }

    /// The weight's layout and memory, from the kernel element of the first input position on.
    fn weight(&self) -> (Memory, Weight) {
        let SubConvolution { out, input, weight, direction, kernel_map, .. } = self.part;
        let strides =
            WeightStrides::new(direction, weight.image_stride, weight.channel_stride, out.channels, input.channels);
        let [w, h, _] = weight.strides;
        let [step_w, step_h, _] = kernel_map.dilation;
        let last = |step: i64, stride: i64| if step < 0 { 2 * stride } else { 0 };
        let first = advance(weight.memory, last(step_w, w) + last(step_h, h), weight.dtype);
        let layout = Weight {
            out_channels: out.channels,
            channels: input.channels,
            out_stride: strides.out,
            channel_stride: strides.input,
            strides: [w * step_w, h * step_h],
        };
        (first, layout)
    }
}

#[cfg(test)]
mod tests {
    use super::super::samples::{LOCAL_BYTES, NARROW, WIDE};
    use super::*;

    #[test]
    fn a_part_fits_local_memory_and_its_tiles_their_cache() {
        for (tile, local_bytes) in [WIDE, NARROW].into_iter().flat_map(|tile| LOCAL_BYTES.map(|bytes| (tile, bytes))) {
            for channels in 1..600 {
                let gemms = PointGemms { vectors: 98, panels: 8, channels };
                let Some((_, partition)) = gemms.partition(tile, 2, local_bytes) else {
                    let all @ [tiles, ..] = gemms.local_bytes(1, tile);
                    assert!(tiles > TILE_BYTES || all.iter().sum::<i64>() > local_bytes, "{channels}: {tile:?}");
                    continue;
                };
                let widest = div_ceil(98, partition.across);
                assert!((1..=tile.vectors).contains(&widest), "{channels}: {partition:?}");
                let all @ [tiles, ..] = gemms.local_bytes(widest, tile);
                assert!(tiles <= TILE_BYTES && all.iter().sum::<i64>() <= local_bytes, "{channels}: {partition:?}");
            }
        }
    }

    #[test]
    fn the_channels_of_a_part_are_limited_by_its_memory() {
        let fits = |channels, local_bytes| {
            PointGemms { vectors: 98, panels: 8, channels }.partition(WIDE, 2, local_bytes).is_some()
        };
        assert!(!fits(1, 32 << 10));
        assert!(fits(97, 256 << 10) && !fits(98, 256 << 10));
        assert!(fits(500, 2 << 20) && !fits(4096, 2 << 20));
    }
}
