//! Convolutions of 3x3 taps by Winograd's minimal filtering, where that pays: on CPUs, in float32.

use std::sync::Arc;

use super::conv::{Part, WeightStrides};
use super::epilogue::Epilogue;
use super::gemm::{launch, multiply, Factor, Product};
use super::matrix::{advance, div_up, struct_bytes, Axis, Matrix, Operand};
use super::patches::{Spatial, Volume, Window};
use super::plan::{Cores, Plan, Size, Tile};
use super::tuning::Tuning;
use super::{Target, Workspace};
use crate::cl::Arg;
use crate::error::Result;
use crate::kernels::{CachedProgram, Class, DType, Family, Spec};

/// Products of matrices, one for each point at which polynomials are evaluated; as in `cl/winograd_points.cl`.
const POINTS: i64 = 36;
/// Pixels of a tile's side.
const SIDE: i64 = 4;
/// What the tiles of a part may take at all points; with 55 KiB for the products and the weights that pass by, they stay
/// in a second cache of 2 MiB.
const TILE_BYTES: i64 = 1200 << 10;
/// Channels, and vectors of tiles, that are brought to global memory at a time: 288 KiB, in runs of 512 bytes. Less where
/// local memory is smaller.
const STORED_CHANNELS: i64 = 16;
const STORED_VECTORS: i64 = 8;
/// Bytes of tiles at all points that are in memory at a time, for each core.
const STORED_BYTES: i64 = 2 << 20;

/// What transforms cost, in cycles of a core with AVX-512: a vector of tiles of a source channel, and of a result channel;
/// the same on their way to global memory; a weight's value at a point, evaluated or interpolated.
const SOURCE: f64 = 500.0;
const RESULT: f64 = 350.0;
const STORED: f64 = 1800.0;
const WEIGHT: f64 = 2.4;

/// Sizes of the products of a point.
#[derive(Clone, Copy, Debug)]
struct Products {
    /// Vectors of tiles.
    vectors: i64,
    /// Panels of result channels.
    panels: i64,
    /// Source channels.
    channels: i64,
}

/// Parts of the tiles and of the result channels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Cut {
    across: i64,
    down: i64,
}

impl Products {
    /// Those of a convolution with pixels.
    fn new(pixels: &Volume, result_channels: i64, channels: i64, tile: Tile) -> Self {
        let [width, height, _] = pixels.sizes;
        let tiles = div_up(width, SIDE) * div_up(height, SIDE) * pixels.images;
        Self { vectors: div_up(tiles, tile.lanes), panels: div_up(result_channels, tile.rows), channels }
    }

    /// The cheapest cut, and its cycles until the last core is done; none where not even a vector of tiles fits.
    fn cut(&self, tile: Tile, units: i64, local_bytes: i64) -> Option<(f64, Cut)> {
        let fits = |&vectors: &i64| {
            let all @ [tiles, ..] = self.local_bytes(vectors, tile);
            tiles <= TILE_BYTES && all.iter().sum::<i64>() <= local_bytes
        };
        let cuts = (1..=tile.vectors)
            .take_while(fits)
            .flat_map(|vectors| [1, 2, 4].map(|down| (div_up(self.vectors, vectors), down)));
        let cuts = cuts.map(|(across, down)| Cut { across, down: down.min(self.panels) });
        cuts.map(|cut| (self.cost(cut, tile, units), cut)).min_by(|a, b| a.0.total_cmp(&b.0))
    }

    /// Bytes of local memory of the kernel `winograd` for a part of so many vectors of tiles: those at all points, a
    /// panel's products with them, and what is being transformed.
    fn local_bytes(&self, vectors: i64, tile: Tile) -> [i64; 3] {
        [self.channels * vectors, tile.rows * vectors, tile.rows]
            .map(|count| POINTS * count * tile.lanes * tile.element)
    }

    fn cost(&self, cut: Cut, tile: Tile, units: i64) -> f64 {
        let rounds = div_up(cut.across * cut.down, units) as f64;
        let vectors = self.vectors as f64 / cut.across as f64;
        let rows = (div_up(self.panels, cut.down) * tile.rows) as f64;
        // One vector a row loads as much as it multiplies.
        let step = rows * vectors.max(1.25) / 2.0;
        let products = step * (POINTS * self.channels) as f64;
        let transforms = vectors * (self.channels as f64 * SOURCE + rows * RESULT);
        (products + transforms) * rounds + self.weight_cost(tile, units)
    }

    fn weight_cost(&self, tile: Tile, units: i64) -> f64 {
        (POINTS * self.channels * self.panels * tile.rows) as f64 * WEIGHT / units as f64
    }
}

/// The tile of the kernels: as many rows as blocks of `cl/panel.cl` have, whatever suits other products.
fn tile_of(cores: &Cores, class: Class) -> Tile {
    let tile = Tile::tuned(&cores.tuning, class);
    let (rows, vectors) = (if tile.lanes == 16 { 8 } else { 4 }, 3);
    Tile { rows, vectors, columns: vectors * tile.lanes, ..tile }
}

/// What the product of patches is cut for; none on GPUs.
fn cores_of(target: &Target) -> Option<Cores> {
    match Tuning::of(target.device) {
        Tuning::Cpu(tuning) => {
            let (units, local_bytes) = (target.compute_units() as i64, target.device.info.local_mem as i64);
            Some(Cores { units, local_bytes, tuning })
        }
        Tuning::Gpu(_) => None,
    }
}

fn program(target: &Target, class: Class, tile: Tile) -> Result<Arc<CachedProgram>> {
    let spec = Spec::generic()
        .define("VEC", tile.vector())
        .define("TILE_ROWS", tile.rows)
        .define("TILE_VECTORS", tile.vectors)
        .define("TILE_LANES", tile.lanes);
    target.program(Family::Winograd, class, &spec)
}

/// Whether minimal filtering can do a convolution between these volumes.
fn is_possible(target: &Target, window: &Window, groups: i64, images: [&Volume; 2], weight: &Volume) -> bool {
    let Window { taps, scale, step: [step_w, step_h, _], origin: [.., origin_d], .. } = *window;
    let is_f32 = images.iter().chain(&[weight]).all(|volume| volume.dtype == DType::F32);
    let are_flat = images.iter().all(|volume| volume.numel() > 0 && volume.sizes.last() == Some(&1));
    // Vectors are read and written along rows or along channels.
    let are_dense =
        images.iter().all(|Volume { channel_stride, strides: [w, ..], .. }| *channel_stride == 1 || *w == 1);
    let is_square = taps == [3, 3, 1] && scale == [1; 3] && step_w.abs() == 1 && step_h.abs() == 1 && origin_d == 0;
    target.is_cpu() && groups == 1 && is_f32 && are_flat && are_dense && is_square
}

/// The `Images` of `cl/winograd_tiles.cl`.
fn image_bytes(source: &Volume, origin: Spatial, pixels: &Volume) -> Vec<u8> {
    let plane = |all: Spatial| all.into_iter().take(2);
    let reach = |size: i64, stride: i64| (size - 1) * stride;
    let inside: i64 = source.sizes.iter().zip(source.strides).map(|(&size, stride)| reach(size, stride)).sum();
    let elements =
        1 + inside + reach(source.channels, source.channel_stride) + reach(source.images, source.image_stride);
    let longs = plane(pixels.sizes)
        .chain(plane(source.sizes))
        .chain(plane(origin))
        .chain([source.images, source.channels])
        .chain(plane(source.strides))
        .chain([source.channel_stride, source.image_stride, elements, pixels.channels])
        .chain(plane(pixels.strides))
        .chain([pixels.channel_stride, pixels.image_stride]);
    struct_bytes(longs)
}

/// A value for each pixel.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pixels {
    part: Part,
    /// That of the tuning by which it was cut: another thread may change it before it runs.
    tile: Tile,
    products: Products,
    cut: Cut,
}

impl Pixels {
    /// The convolution `part`, where that is sooner done so than by a product of its patches.
    pub fn of(target: &Target, part: &Part, class: Class) -> Option<Self> {
        let Part { out, source, weight, bias, window, groups, .. } = part;
        let has_bias = bias.is_none_or(|bias| bias.dtype == DType::F32);
        if !has_bias || !is_possible(target, window, *groups, [out, source], weight) {
            return None;
        }
        let cores = cores_of(target)?;
        let tile = tile_of(&cores, class);
        let products = Products::new(out, out.channels, source.channels, tile);
        let (cost, cut) = products.cut(tile, cores.units, cores.local_bytes)?;
        let size = Size {
            rows: out.channels,
            columns: out.images * out.positions(),
            depth: source.channels * weight.positions(),
            batches: 1,
        };
        let (_, patch_cost) = Plan::of(size, Tile::tuned(&cores.tuning, class), &cores, true);
        (cost < patch_cost).then_some(Self { part: *part, tile, products, cut })
    }

    /// Enqueues it.
    ///
    /// # Errors
    /// As the allocator and the driver report.
    pub fn run(&self, target: &Target, class: Class) -> Result<()> {
        let Self { part, tile, products: Products { vectors, panels, channels }, cut } = *self;
        let Part { out, source, bias, window, .. } = part;
        let program = program(target, class, tile)?;
        // Whole vectors of a panel's result channels and as many source channels as fill them.
        let lane_channels = tile.lanes / tile.rows;
        let padded = div_up(channels, lane_channels) * lane_channels;
        let evaluated = target.workspace((POINTS * padded * panels * tile.rows * tile.element) as usize)?;
        let factors = target.memory(evaluated.address)?;
        let (weight, layout) = self.weight();
        let parts = div_up(2 * target.compute_units() as i64, panels).min(padded / lane_channels);
        launch(target, &program, "winograd_weight", &[weight, Arg::Bytes(&layout), factors], [parts, panels, 1])?;

        let mut origin = window.origin;
        for (origin, step) in origin.iter_mut().zip(window.step) {
            *origin += (2 * step).min(0);
        }
        let images = image_bytes(&source, origin, &out);
        let widest = div_up(vectors, cut.across);
        let [points, products, scratch] =
            self.products.local_bytes(widest, tile).map(|bytes| Arg::Local(bytes as usize));
        let (bias, bias_stride) = bias.map_or((target.memory(0)?, 0), |bias| (bias.memory, bias.stride));
        let args = [
            source.memory,
            factors,
            bias,
            Arg::Long(bias_stride),
            out.memory,
            Arg::Bytes(&images),
            points,
            products,
            scratch,
        ];
        launch(target, &program, "winograd", &args, [cut.across, cut.down, 1])
    }

    /// The weight from the first tap in the order of the source's positions on, and the `Weight` of `cl/winograd.cl`.
    fn weight(&self) -> (Arg<'static>, Vec<u8>) {
        let Part { out, source, weight, direction, window, .. } = self.part;
        let strides =
            WeightStrides::new(direction, weight.image_stride, weight.channel_stride, out.channels, source.channels);
        let [w, h, _] = weight.strides;
        let [step_w, step_h, _] = window.step;
        let last = |step: i64, stride: i64| if step < 0 { 2 * stride } else { 0 };
        let first = advance(weight.memory, last(step_w, w) + last(step_h, h), weight.dtype);
        let longs = [out.channels, source.channels, strides.out, strides.source, w * step_w, h * step_h];
        (first, struct_bytes(longs))
    }
}

/// What is brought to global memory at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Block {
    channels: i64,
    /// Vectors of tiles.
    vectors: i64,
}

impl Block {
    /// The longest runs that fit; none where not even a vector of as many channels as are read at a time fits.
    fn of(tile: Tile, local_bytes: i64) -> Option<Self> {
        let vectors = (1..=STORED_VECTORS).rev();
        let mut blocks =
            vectors.flat_map(|vectors| [STORED_CHANNELS, tile.rows].map(|channels| Self { channels, vectors }));
        blocks.find(|block| block.local_bytes(tile).iter().sum::<i64>() <= local_bytes)
    }

    /// Bytes of local memory of the kernel `winograd_tiles`: for the tiles at all points, and what is being transformed.
    fn local_bytes(&self, tile: Tile) -> [i64; 2] {
        [self.channels * self.vectors, tile.rows].map(|count| POINTS * count * tile.lanes * tile.element)
    }
}

/// A value for each weight.
#[derive(Clone, Copy, Debug)]
pub(super) struct Weights {
    weight: Volume,
    source: Volume,
    gradient: Volume,
    window: Window,
    /// That of the tuning by which it was chosen, as for pixels.
    tile: Tile,
    products: Products,
    block: Block,
}

impl Weights {
    /// The gradient of a convolution's weight, where that is sooner done so than by a product with its patches.
    pub fn of(
        target: &Target,
        weight: Volume,
        source: Volume,
        gradient: Volume,
        window: Window,
        groups: i64,
        class: Class,
    ) -> Option<Self> {
        if !is_possible(target, &window, groups, [&source, &gradient], &weight) {
            return None;
        }
        let cores = cores_of(target)?;
        let tile = tile_of(&cores, class);
        let products = Products::new(&gradient, gradient.channels, source.channels, tile);
        let block = Block::of(tile, cores.local_bytes)?;
        let this = Self { weight, source, gradient, window, tile, products, block };
        let (_, product_cost) = Plan::of(this.size(), Tile::tuned(&cores.tuning, class), &cores, true);
        let values = products.vectors * (source.channels + gradient.channels);
        let cost = product_cost + values as f64 * STORED / cores.units as f64 + products.weight_cost(tile, cores.units);
        let size = Size {
            rows: gradient.channels,
            columns: source.channels * weight.positions(),
            depth: gradient.images * gradient.positions(),
            batches: 1,
        };
        let (_, patch_cost) = Plan::of(size, Tile::tuned(&cores.tuning, class), &cores, false);
        (cost < patch_cost).then_some(this)
    }

    fn size(&self) -> Size {
        Size {
            rows: self.gradient.channels,
            columns: self.source.channels,
            depth: self.products.vectors * self.tile.lanes,
            batches: POINTS,
        }
    }

    /// Images of which tiles are in memory at a time, so that they stay in the second caches; all where the sums, which
    /// are read and written for each part, are not small beside them.
    fn images_at_once(&self, units: i64) -> i64 {
        let tile = self.tile;
        let (channels, of) = (self.source.channels + self.gradient.channels, self.gradient.images);
        let image_bytes = POINTS * channels * self.products.vectors * tile.lanes * tile.element / of;
        let sum_bytes = POINTS * self.source.channels * self.gradient.channels * tile.element;
        let images = (STORED_BYTES * units / image_bytes.max(1)).clamp(1, of);
        if sum_bytes * 2 > image_bytes * images {
            of
        } else {
            images
        }
    }

    /// Enqueues it.
    ///
    /// # Errors
    /// As the allocator and the driver report.
    pub fn run(&self, target: &Target, class: Class) -> Result<()> {
        let tile = self.tile;
        let all = self.gradient.images;
        let step = self.images_at_once(target.compute_units() as i64);
        let (rows, columns) = (self.gradient.channels, self.source.channels);
        let pitch = div_up(columns, tile.lanes) * tile.lanes;
        let workspace = target.workspace((POINTS * rows * pitch * tile.element) as usize)?;
        let sums = matrix(target.memory(workspace.address)?, rows, columns, pitch);
        for first in (0..all).step_by(step as usize) {
            let part = self.some_images(first, step.min(all - first));
            part.multiply(target, class, Epilogue::plain(sums, (first > 0).then_some(sums)))?;
        }
        let [w, h, _] = self.weight.strides;
        let layout = struct_bytes([rows, columns, self.weight.image_stride, self.weight.channel_stride, w, h]);
        let args = [sums.memory, Arg::Long(pitch), self.weight.memory, Arg::Bytes(&layout)];
        launch(target, &*program(target, class, tile)?, "winograd_finish", &args, [pitch / tile.lanes, rows, 1])
    }

    /// The same of `count` images from `first` on.
    fn some_images(&self, first: i64, count: i64) -> Self {
        let some = |volume: Volume| Volume {
            memory: advance(volume.memory, first * volume.image_stride, volume.dtype),
            images: count,
            ..volume
        };
        let (source, gradient) = (some(self.source), some(self.gradient));
        let products = Products::new(&gradient, gradient.channels, source.channels, self.tile);
        Self { source, gradient, products, ..*self }
    }

    /// The products of all points.
    fn multiply(&self, target: &Target, class: Class, epilogue: Epilogue) -> Result<()> {
        let size = self.size();
        let factor = |factor: TileFactor, channels: i64| -> Result<(Workspace, Operand)> {
            let workspace = target.workspace((POINTS * channels * size.depth * self.tile.element) as usize)?;
            let memory = target.memory(workspace.address)?;
            self.evaluate(target, class, factor, memory)?;
            Ok((workspace, matrix(memory, channels, size.depth, size.depth)))
        };
        // The workspaces are held until the product is enqueued.
        let (_gradient_memory, gradient) = factor(TileFactor::Gradient, size.rows)?;
        let (_source_memory, source) = factor(TileFactor::Source, size.columns)?;
        let (a, b) = (Factor::Matrix(gradient), Factor::Matrix(source.transposed()));
        multiply(target, &Product { class, size, a, b, epilogue })
    }

    /// Brings the tiles of a factor to memory at all points.
    fn evaluate(&self, target: &Target, class: Class, factor: TileFactor, out: Arg<'static>) -> Result<()> {
        let Self { tile, block, .. } = *self;
        let (volume, origin) = match factor {
            TileFactor::Source => (&self.source, self.window.origin),
            TileFactor::Gradient => (&self.gradient, [0; 3]),
        };
        let images = image_bytes(volume, origin, &self.gradient);
        let [points, scratch] = block.local_bytes(tile).map(|bytes| Arg::Local(bytes as usize));
        let args = [
            volume.memory,
            Arg::Bytes(&images),
            Arg::Int(i32::from(factor == TileFactor::Gradient)),
            Arg::Long(block.channels),
            out,
            points,
            scratch,
        ];
        let global = [div_up(self.products.vectors, block.vectors), div_up(volume.channels, block.channels), 1];
        launch(target, &*program(target, class, tile)?, "winograd_tiles", &args, global)
    }
}

/// Matrices of every point, whose rows are `pitch` apart.
fn matrix(memory: Arg<'static>, rows: i64, columns: i64, pitch: i64) -> Operand {
    let layout = Matrix { rows: Axis::line(rows, pitch), columns: Axis::line(columns, 1), batch_stride: rows * pitch };
    Operand { memory, dtype: DType::F32, layout }
}

/// What is multiplied for the gradient of the weight.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum TileFactor {
    Source,
    Gradient,
}

#[cfg(test)]
mod tests {
    use super::*;

    const WIDE: Tile = Tile { rows: 8, columns: 48, vectors: 3, lanes: 16, parts: 1, element: 4 };
    const NARROW: Tile = Tile { rows: 4, columns: 24, lanes: 8, ..WIDE };
    const LOCAL_BYTES: [i64; 3] = [32 << 10, 256 << 10, 2 << 20];

    #[test]
    fn a_part_fits_local_memory_and_its_tiles_their_cache() {
        for (tile, local_bytes) in [WIDE, NARROW].into_iter().flat_map(|tile| LOCAL_BYTES.map(|bytes| (tile, bytes))) {
            for channels in 1..600 {
                let products = Products { vectors: 98, panels: 8, channels };
                let Some((_, cut)) = products.cut(tile, 2, local_bytes) else {
                    assert!(products.local_bytes(1, tile).iter().sum::<i64>() > local_bytes, "{channels}: {tile:?}");
                    continue;
                };
                let widest = div_up(98, cut.across);
                assert!((1..=tile.vectors).contains(&widest), "{channels}: {cut:?}");
                let all @ [tiles, ..] = products.local_bytes(widest, tile);
                assert!(tiles <= TILE_BYTES && all.iter().sum::<i64>() <= local_bytes, "{channels}: {cut:?}");
            }
        }
    }

    #[test]
    fn the_channels_of_a_part_are_limited_by_its_memory() {
        let fits =
            |channels, local_bytes| Products { vectors: 98, panels: 8, channels }.cut(WIDE, 2, local_bytes).is_some();
        assert!(!fits(1, 32 << 10));
        assert!(fits(97, 256 << 10) && !fits(98, 256 << 10));
        assert!(fits(500, 2 << 20) && !fits(4096, 2 << 20));
    }

    #[test]
    fn blocks_that_are_brought_to_memory_fit_local_memory() {
        let blocks = |tile: Tile| LOCAL_BYTES.map(|bytes| Block::of(tile, bytes));
        let block = |channels, vectors| Some(Block { channels, vectors });
        assert_eq!(blocks(WIDE), [None, block(8, 8), block(16, 8)]);
        assert_eq!(blocks(NARROW), [block(4, 6), block(16, 8), block(16, 8)]);
        for (tile, bytes) in [(WIDE, 256 << 10), (WIDE, 2 << 20), (NARROW, 32 << 10), (NARROW, 256 << 10)] {
            assert!(Block::of(tile, bytes).is_some_and(|block| block.local_bytes(tile).iter().sum::<i64>() <= bytes));
        }
    }
}
