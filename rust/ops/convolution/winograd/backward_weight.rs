//! Winograd convolution that computes the gradient of the weight.

use super::{cores_of, images, is_chosen, is_possible, program, tile_of, PointGemms, POINTS};
use crate::cl::Memory;
use crate::error::Result;
use crate::kernels::entry::{self, LocalBytes};
use crate::kernels::structs::winograd::Weight;
use crate::kernels::{Class, DType};
use crate::ops::core::space::div_ceil;
use crate::ops::matmul::epilogue::Epilogue;
use crate::ops::matmul::gemm::{launch, multiply};
use crate::ops::matmul::im2col::{KernelMap, Volume};
use crate::ops::matmul::matrix::{advance, Axis, Matrix, MatrixOperand};
use crate::ops::matmul::operands::{Gemm, GemmOperand};
use crate::ops::matmul::plan::{GemmPlan, GemmSize, Tile};
use crate::ops::{Target, Workspace};

/// Channels, and vectors of tiles, that are written to global memory at a time: 288 KiB, in runs of 512 bytes. Less if
/// local memory is smaller.
const STORED_CHANNELS: i64 = 16;
const STORED_VECTORS: i64 = 8;
/// Bytes of tiles at all points that are in memory at a time, for each core.
const STORED_BYTES: i64 = 2 << 20;

/// Cost of transforming and writing a vector of tiles of a channel, in cycles of a core with AVX-512.
const STORED_COST: f64 = 1800.0;

/// Tiles written to global memory at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Block {
    channels: i64,
    /// Vectors of tiles.
    vectors: i64,
}

impl Block {
    /// The longest runs that fit; `None` if not even one vector of the channels that are read at a time fits.
    fn of(tile: Tile, local_bytes: i64) -> Option<Self> {
        let vectors = (1..=STORED_VECTORS).rev();
        let mut blocks =
            vectors.flat_map(|vectors| [STORED_CHANNELS, tile.rows].map(|channels| Self { channels, vectors }));
        blocks.find(|block| block.local_bytes(tile).iter().sum::<i64>() <= local_bytes)
    }

    /// Bytes of local memory of the kernel `winograd_tiles`: for the tiles at all points, and the tiles being
    /// transformed.
    fn local_bytes(&self, tile: Tile) -> [i64; 2] {
        [self.channels * self.vectors, tile.rows].map(|count| POINTS * count * tile.lanes * tile.element)
    }
}

/// The gradient of a weight.
#[derive(Clone, Copy, Debug)]
pub(in crate::ops) struct BackwardWeight {
    weight: Volume,
    input: Volume,
    gradient: Volume,
    kernel_map: KernelMap,
    /// The tile of the tuning that chose this algorithm, as in `Convolution`.
    tile: Tile,
    gemms: PointGemms,
    block: Block,
}

impl BackwardWeight {
    /// The gradient of a convolution's weight, if Winograd is faster than a GEMM with the im2col matrix.
    pub fn of(
        target: &Target,
        weight: Volume,
        input: Volume,
        gradient: Volume,
        kernel_map: KernelMap,
        groups: i64,
        class: Class,
    ) -> Option<Self> {
        if !is_possible(target, &kernel_map, groups, [&input, &gradient], &weight) {
            return None;
        }
        let cores = cores_of(target)?;
        let tile = tile_of(&cores, class);
        let gemms = PointGemms::new(&gradient, gradient.channels, input.channels, tile);
        let block = Block::of(tile, cores.local_bytes)?;
        let this = Self { weight, input, gradient, kernel_map, tile, gemms, block };
        let (_, gemm_cost) = GemmPlan::of(this.size(), Tile::tuned(&cores.tuning, class), &cores, true);
        let values = gemms.vectors * (input.channels + gradient.channels);
        let cost = gemm_cost + values as f64 * STORED_COST / cores.units as f64 + gemms.weight_cost(tile, cores.units);
        let size = GemmSize {
            rows: gradient.channels,
            columns: input.channels * weight.positions(),
            k: gradient.images * gradient.positions(),
            batches: 1,
        };
        let (_, im2col_cost) = GemmPlan::of(size, Tile::tuned(&cores.tuning, class), &cores, false);
        is_chosen(cost, im2col_cost).then_some(this)
    }

    fn size(&self) -> GemmSize {
        GemmSize {
            rows: self.gradient.channels,
            columns: self.input.channels,
            k: self.gemms.vectors * self.tile.lanes,
            batches: POINTS,
        }
    }

    /// Images whose tiles are in memory at a time, so that the tiles stay in L2. All images if the sums, which are read
    /// and written for each part, are not small compared to the tiles.
    fn images_at_once(&self, units: i64) -> i64 {
        let tile = self.tile;
        let (channels, of) = (self.input.channels + self.gradient.channels, self.gradient.images);
        let image_bytes = POINTS * channels * self.gemms.vectors * tile.lanes * tile.element / of;
        let sum_bytes = POINTS * self.input.channels * self.gradient.channels * tile.element;
        let images = (STORED_BYTES * units / image_bytes.max(1)).clamp(1, of);
        if sum_bytes * 2 > image_bytes * images {
            of
        } else {
            images
        }
    }

    /// Enqueues the kernels.
    ///
    /// # Errors
    /// Errors reported by the allocator or the driver.
    pub fn run(&self, target: &Target, class: Class) -> Result<()> {
        let tile = self.tile;
        let all = self.gradient.images;
        let step = self.images_at_once(target.compute_units() as i64);
        let (rows, columns) = (self.gradient.channels, self.input.channels);
        let pitch = div_ceil(columns, tile.lanes) * tile.lanes;
        let workspace = target.workspace((POINTS * rows * pitch * tile.element) as usize)?;
        let sums = matrix(target.memory(workspace.address)?, rows, columns, pitch);
        for first in (0..all).step_by(step as usize) {
            let part = self.some_images(first, step.min(all - first));
            part.multiply(target, class, Epilogue::plain(sums, (first > 0).then_some(sums)))?;
        }
        let [w, h, _] = self.weight.strides;
        let layout = Weight {
            out_channels: rows,
            channels: columns,
            out_stride: self.weight.image_stride,
            channel_stride: self.weight.channel_stride,
            strides: [w, h],
        };
        let args = entry::WinogradFinish { gemm_results: sums.memory, pitch, weight: self.weight.memory, layout };
        launch(target, &*program(target, class, tile)?, entry::WINOGRAD_FINISH, &args, [pitch / tile.lanes, rows, 1])
    }

    /// The part for `count` images from `first` on.
    fn some_images(&self, first: i64, count: i64) -> Self {
        let some = |volume: Volume| Volume {
            memory: advance(volume.memory, first * volume.image_stride, volume.dtype),
            images: count,
            ..volume
        };
        let (input, gradient) = (some(self.input), some(self.gradient));
        let gemms = PointGemms::new(&gradient, gradient.channels, input.channels, self.tile);
        Self { input, gradient, gemms, ..*self }
    }

    /// Enqueues the GEMMs of all points.
    fn multiply(&self, target: &Target, class: Class, epilogue: Epilogue<'_>) -> Result<()> {
        let size = self.size();
        let evaluated = |operand: TileOperand, channels: i64| -> Result<(Workspace, MatrixOperand)> {
            let workspace = target.workspace((POINTS * channels * size.k * self.tile.element) as usize)?;
            let memory = target.memory(workspace.address)?;
            self.evaluate(target, class, operand, memory)?;
            Ok((workspace, matrix(memory, channels, size.k, size.k)))
        };
        // The workspaces are held until the GEMM is enqueued.
        let (_gradient_memory, gradient) = evaluated(TileOperand::Gradient, size.rows)?;
        let (_input_memory, input) = evaluated(TileOperand::Input, size.columns)?;
        let (a, b) = (GemmOperand::Matrix(gradient), GemmOperand::Matrix(input.transposed()));
        multiply(target, &Gemm { class, size, a, b, may_round: false, epilogue })
    }

    /// Writes the tiles of an operand, at all points, to memory.
    fn evaluate(&self, target: &Target, class: Class, operand: TileOperand, out: Memory) -> Result<()> {
        let Self { tile, block, .. } = *self;
        let (volume, origin) = match operand {
            TileOperand::Input => (&self.input, self.kernel_map.origin),
            TileOperand::Gradient => (&self.gradient, [0; 3]),
        };
        let [points, scratch] = block.local_bytes(tile).map(|bytes| LocalBytes(bytes as usize));
        let args = entry::WinogradTiles {
            input: volume.memory,
            images: images(volume, origin, &self.gradient),
            is_grad_output: i32::from(operand == TileOperand::Gradient),
            block: block.channels,
            out,
            points,
            scratch,
        };
        let global = [div_ceil(self.gemms.vectors, block.vectors), div_ceil(volume.channels, block.channels), 1];
        launch(target, &*program(target, class, tile)?, entry::WINOGRAD_TILES, &args, global)
    }
}

/// Matrices of every point, whose rows are `pitch` apart.
fn matrix(memory: Memory, rows: i64, columns: i64, pitch: i64) -> MatrixOperand {
    let layout = Matrix { rows: Axis::line(rows, pitch), columns: Axis::line(columns, 1), batch_stride: rows * pitch };
    MatrixOperand { memory, dtype: DType::F32, layout }
}

/// Operands of the GEMMs for the gradient of the weight.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum TileOperand {
    Input,
    Gradient,
}

#[cfg(test)]
mod tests {
    use super::super::samples::{LOCAL_BYTES, NARROW, WIDE};
    use super::*;

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
