//! The two passes of attention in blocks, and the sizes of their blocks.

use crate::kernels::{Class, DType, Family, Spec};
use crate::ops::core::geometry::{native_lanes, Geometry};
use crate::ops::core::space::div_ceil;
use crate::ops::Target;

/// Maximum number of queries, and of keys, of a block. Blocks of 128 queries are as fast for 12 heads of width 64 and
/// 512 x 512 scores, up to a third slower with a causal mask, and faster from 2048 on (PoCL, Xeon; `make bench
/// CASES=attention`).
const LARGEST_BLOCK: i64 = measured!("ATTENTION_BLOCK", 64);
/// A block holds at least one part of a matmul.
const SMALLEST_BLOCK: i64 = 4;
/// Vectors and rows that an item keeps in registers: `BLOCK_VECTORS` and `BLOCK_ROWS` of `block.cl`. CPUs whose vectors
/// have 64 bytes have 32 registers for them, others 16.
const WIDE_CPU_PART: (i64, i64) = (2, 8);
const CPU_PART: (i64, i64) = (2, 4);
const GPU_PART: (i64, i64) = (1, 4);
/// Local memory that all GPUs have; some have room for several groups of this size. CPUs' drivers report host memory.
const GPU_LOCAL: i64 = 32 << 10;
/// Items of a group on GPUs: a block of 32 x 32 scores has 64 parts of 4 x 4.
const GPU_GROUP: usize = 64;
/// Banks of local memory on GPUs, of 4 bytes: rows of as many elements, one below the other, begin in the same one.
const BANKS: i64 = 32;
/// Value on GPUs, equal to that in `scores.cl`.
const SLICES: i64 = 8;

/// The two passes, which keep different blocks in local memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::ops) enum Pass {
    Forward,
    Backward,
}

impl Pass {
    pub(super) const fn family(self) -> Family {
        match self {
            Self::Forward => Family::Attention,
            Self::Backward => Family::AttentionBackward,
        }
    }

    /// Elements of local memory, for square blocks and rows of `width`.
    const fn elements(self, block: i64, width: i64) -> i64 {
        match self {
            Self::Forward => block * (3 * width + block + 3 + SLICES),
            Self::Backward => block * (8 * width + 2 * block + 3),
        }
    }
}

/// Block sizes of the kernels of a pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::ops) struct BlockSizes {
    /// Queries, and keys, of a block.
    pub block: i64,
    /// Elements of a row in a block.
    width: i64,
    /// Elements of a vector.
    pub lanes: i64,
    part: (i64, i64),
    /// Items of a work-group.
    pub group: usize,
}

impl BlockSizes {
    /// The largest blocks that local memory holds; `None` if not even the smallest fit.
    fn of(pass: Pass, is_cpu: bool, lanes: i64, local_bytes: i64, size: i64, width: i64) -> Option<Self> {
        let (vectors, rows) = match is_cpu {
            true if lanes * size >= 64 => WIDE_CPU_PART,
            true => CPU_PART,
            false => GPU_PART,
        };
        let mut block = LARGEST_BLOCK;
        while block >= SMALLEST_BLOCK {
            let lanes = lanes.min(block);
            // A matmul whose rows are a head's elements writes whole parts of rows.
            let step = lanes.max(rows.min(block));
            let width = div_ceil(width.max(1), step) * step;
            let padded = if !is_cpu && width % BANKS == 0 { width + step } else { width };
            let width = if pass.elements(block, padded) * size <= local_bytes { padded } else { width };
            if pass.elements(block, width) * size <= local_bytes {
                let part = (if block > lanes { vectors } else { 1 }, rows.min(block));
                return Some(Self { block, width, lanes, part, group: if is_cpu { 1 } else { GPU_GROUP } });
            }
            block /= 2;
        }
        None
    }

    /// Always built for its dtype, whatever the size: the kernels are mostly matmuls of a few constant shapes.
    pub(super) fn spec(&self, dtype: DType, bias: Option<DType>, drops: bool, is_aligned: bool) -> Spec {
        let spec = if is_aligned { Spec::generic().define("SPEC_ALIGNED", 1) } else { Spec::generic() };
        let spec = spec
            .define("LSIZE", self.group as i64)
            .define("VEC", self.lanes)
            .define("BLOCK_VECTORS", self.part.0)
            .define("BLOCK_ROWS", self.part.1)
            .define("WIDTH", self.width)
            .define("QUERIES", self.block)
            .define("KEYS", self.block)
            .define("SPEC_DTYPE0", i64::from(dtype.code()))
            .define("BIASED", i64::from(bias.is_some()))
            .define("DROPS", i64::from(drops));
        bias.into_iter().fold(spec, |spec, bias| spec.define("SPEC_DTYPE1", i64::from(bias.code())))
    }
}

/// The plan of a pass for a device.
pub(super) fn block_sizes(target: &Target, pass: Pass, class: Class, width: i64) -> Option<BlockSizes> {
    let lanes = if target.is_cpu() { native_lanes(target, class) } else { Geometry::of(target, class).lanes as i64 };
    let local = i64::try_from(target.device.info.local_mem).unwrap_or(i64::MAX);
    let of = |local| BlockSizes::of(pass, target.is_cpu(), lanes, local, class.size() as i64, width);
    // Rows that are too wide for that use all local memory.
    let modest = if target.is_cpu() { None } else { of(local.min(GPU_LOCAL)) };
    modest.or_else(|| of(local))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cpus_take_large_blocks() {
        let block_sizes = BlockSizes::of(Pass::Backward, true, 16, 2 << 20, 4, 64);
        assert_eq!(block_sizes, Some(BlockSizes { block: 64, width: 64, lanes: 16, part: (2, 8), group: 1 }));
        let block_sizes = BlockSizes::of(Pass::Backward, true, 8, 2 << 20, 4, 64);
        assert_eq!(block_sizes, Some(BlockSizes { block: 64, width: 64, lanes: 8, part: (2, 4), group: 1 }));
    }

    #[test]
    fn blocks_shrink_until_they_fit() {
        let block_sizes = BlockSizes::of(Pass::Backward, false, 4, 48 << 10, 4, 256);
        assert_eq!(block_sizes, Some(BlockSizes { block: 4, width: 260, lanes: 4, part: (1, 4), group: GPU_GROUP }));
        let narrow = BlockSizes::of(Pass::Forward, true, 16, 32 << 10, 4, 250);
        assert_eq!(narrow, Some(BlockSizes { block: 8, width: 256, lanes: 8, part: (1, 8), group: 1 }));
    }

    #[test]
    fn some_rows_are_too_wide() {
        assert_eq!(BlockSizes::of(Pass::Backward, false, 4, 32 << 10, 4, 512), None);
    }
}
