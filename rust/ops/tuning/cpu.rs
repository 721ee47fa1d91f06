//! Tuning of matmuls on CPUs.

use super::field::Field;
use crate::cl::DeviceInfo;

/// Packing and tiling of matmuls, as `rust/ops/matmul/plan.rs` uses them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CpuTuning {
    /// Bytes of the vectors that are multiplied: a register, or two.
    pub vector_bytes: i64,
    /// Rows of a tile of C, in reals. With `tile_vectors` the number of accumulators, which registers must hold.
    pub tile_rows: i64,
    /// Vectors in a row of a tile.
    pub tile_vectors: i64,
    /// Elements of K that are packed at a time. A tile of C is read and written once for each such block.
    pub block_k: i64,
    /// Bytes of the block of B that is packed at a time.
    pub block_bytes: i64,
    /// Rows of A that are packed at a time, so that the cache lines of its columns are read whole.
    pub strip_rows: i64,
    /// Bytes for rows of A that stay packed, if a part has no more.
    pub kept_bytes: i64,
}

impl CpuTuning {
    /// Defaults for cores with 2 MiB of L2: a block of B takes a third of it, a panel of B 72 KiB. 8 x 3 accumulators
    /// and a step's operands take 28 of AVX-512's 32 registers, with 11 loads for 24 multiply-adds, while 12 x 2 would
    /// take 14. 16 registers hold 4 x 3; registers narrower than 32 bytes are used in pairs.
    /// `python -m torch_opencl.tune` with PoCL on a Xeon with AVX-512: 12 x 2 is 0.93 times as fast, 4 x 3 0.92, half
    /// vectors 0.58; a `block_k` of 128 0.97, of 768 1.01; other sizes from 384 KiB to 2.8 MiB of block, of strips, and
    /// of kept rows are within 1 %.
    pub fn of(info: &DeviceInfo) -> Self {
        let vector_bytes = if info.native_vector_floats >= 16 { 64 } else { 32 };
        Self {
            vector_bytes,
            tile_rows: if vector_bytes == 64 { 8 } else { 4 },
            tile_vectors: 3,
            block_k: 384,
            block_bytes: 720 << 10,
            strip_rows: 64,
            kept_bytes: 384 << 10,
        }
    }

    /// The parameters. Vectors of 16 bytes would be narrower than the blocks that packing moves; `gemm.cl` has tiles of
    /// up to three vectors.
    pub(super) fn fields(&mut self) -> [Field<'_>; 7] {
        let field = |name, value, least, most, step| Field { name, value, least, most, step };
        [
            field("vector_bytes", &mut self.vector_bytes, 32, 64, 32),
            field("tile_rows", &mut self.tile_rows, 4, 16, 4),
            field("tile_vectors", &mut self.tile_vectors, 1, 3, 1),
            field("block_k", &mut self.block_k, 16, 4096, 1),
            field("block_bytes", &mut self.block_bytes, 16 << 10, 64 << 20, 1),
            field("strip_rows", &mut self.strip_rows, 4, 1024, 4),
            field("kept_bytes", &mut self.kept_bytes, 16 << 10, 64 << 20, 1),
        ]
    }
}
