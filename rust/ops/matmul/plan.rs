//! Blocking of a GEMM: parts for work-items, and in them blocks that fit the caches.

use crate::kernels::Class;
use crate::ops::core::space::div_ceil;
use crate::ops::tuning::{CpuTuning, Tuning};
use crate::ops::Target;

/// Kinds of the operands of a program that reads matrices only.
pub const MATRICES: [i64; 2] = [0; 2];

/// A part of k shorter than this is not worth separate sums.
const SHORTEST_SPLIT: i64 = 256;

/// Costs of a tile besides its multiplications, in cycles of a core with AVX-512: to pack a row or a column for a step
/// of k, and to store a value of C. `make bench CASES=gemm` shows whether other costs choose better.
const PACK_ROW: f64 = 1.0;
const PACK_COLUMN: f64 = 0.8;
const STORE: f64 = 1.5;
/// Rows read in place cost nothing if they are in L2; reading them from memory costs as much as packing them.
const CACHED_BYTES: i64 = 2 << 20;
/// Cost of enqueueing a second kernel, which adds the sums of parts of k.
const FINISH: f64 = 20_000.0;

/// Rows of a tile, in reals, that are valid for every class and vector width.
const LEAST_ROWS: i64 = 4;

/// Rows and columns, in elements, that a kernel computes at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tile {
    /// Rows of C.
    pub rows: i64,
    /// Columns of C.
    pub columns: i64,
    /// Vectors of a row.
    pub vectors: i64,
    /// Reals of a vector.
    pub lanes: i64,
    /// Reals of an element.
    pub parts: i64,
    /// Bytes of an element.
    pub element: i64,
}

impl Tile {
    /// The tile of a device. On GPUs, where nothing is packed, only the vector counts.
    pub fn of(target: &Target, class: Class) -> Self {
        match Tuning::of(target.device) {
            Tuning::Cpu(tuning) => Self::tuned(&tuning, class),
            Tuning::Gpu(_) => Self::new(class, LEAST_ROWS, 1, 4),
        }
    }

    /// The tuned tile, or one with fewer rows for a class whose panels would not be whole numbers of packing blocks.
    pub fn tuned(tuning: &CpuTuning, class: Class) -> Self {
        let real = if class.is_complex() { class.size() / 2 } else { class.size() };
        let tile = |rows| Self::new(class, rows, tuning.tile_vectors, tuning.vector_bytes / real as i64);
        Some(tile(tuning.tile_rows)).filter(Self::packs_evenly).unwrap_or_else(|| tile(LEAST_ROWS))
    }

    /// A tile of `rows` reals down and `vectors * lanes` across.
    fn new(class: Class, rows: i64, vectors: i64, lanes: i64) -> Self {
        let parts = if class.is_complex() { 2 } else { 1 };
        let element = class.size() as i64;
        Self { rows: rows / parts, columns: vectors * lanes / parts, vectors, lanes, parts, element }
    }

    /// Returns true if both panels are whole numbers of blocks; `BLOCK` of `panel.cl`.
    fn packs_evenly(&self) -> bool {
        let block = match self.parts {
            1 if self.rows % 8 == 0 => 8,
            1 => 4,
            _ => self.rows,
        };
        self.rows % block == 0 && self.columns % block == 0 && block <= self.lanes
    }

    /// Elements of a kernel's vector; 1 for complex numbers, which have no vectors.
    pub const fn vector(&self) -> i64 {
        if self.parts == 1 {
            self.lanes
        } else {
            1
        }
    }
}

/// Rows, columns and K of a batch of matmuls, and the batch size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GemmSize {
    /// Rows of C.
    pub rows: i64,
    /// Columns of C.
    pub columns: i64,
    /// K, the terms of each sum.
    pub k: i64,
    /// Batch size.
    pub batches: i64,
}

/// The cores that GEMMs are blocked for.
#[derive(Clone, Copy, Debug)]
pub struct Cores {
    /// Number of cores.
    pub units: i64,
    /// Local memory of a work-group.
    pub local_bytes: i64,
    /// Tuning for their caches.
    pub tuning: CpuTuning,
}

impl Cores {
    /// The cores of a device.
    pub fn new(target: &Target, tuning: CpuTuning) -> Self {
        Self { units: target.compute_units() as i64, local_bytes: target.device.info.local_mem as i64, tuning }
    }
}

/// Blocking of a GEMM; the `Blocking` of `gemm.cl`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GemmPlan {
    /// Rows of C that a work-item, or a work-group, computes.
    pub part_rows: i64,
    /// Columns of C that it computes.
    pub part_columns: i64,
    /// Rows of A packed at a time.
    pub strip_rows: i64,
    /// Columns of B packed at a time.
    pub block_columns: i64,
    /// Values of k packed at a time.
    pub block_k: i64,
    /// True if a part's rows stay packed, for all of k.
    pub keeps_rows: bool,
    /// Parts of k with separate sums.
    pub splits: i64,
}

impl GemmPlan {
    /// Blocks a GEMM for a device, and returns the cost as well. If `stays`, rows of A are read in place.
    pub fn of(size: GemmSize, tile: Tile, cores: &Cores, stays: bool) -> (Self, f64) {
        let units = cores.units;
        let caches = Caches::of(size, tile, cores);
        let most = |size: i64, panel: i64| doublings(div_ceil(size, panel).min(units * 2));
        let mut best = (f64::INFINITY, caches.plan(size, tile, 1, 1, 1, stays));
        for splits in doublings((size.k / SHORTEST_SPLIT).min(units * 2)) {
            for across in most(size.columns, tile.columns) {
                for down in most(size.rows, tile.rows) {
                    if splits * across * down * size.batches > units * 4 && splits * across * down > 1 {
                        break;
                    }
                    let plan = caches.plan(size, tile, down, across, splits, stays);
                    let cost = plan.cost(size, tile, units, stays);
                    if cost < best.0 {
                        best = (cost, plan);
                    }
                }
            }
        }
        (best.1, best.0)
    }

    /// Parts across and down.
    pub fn parts(&self, size: GemmSize) -> (i64, i64) {
        (div_ceil(size.columns, self.part_columns), div_ceil(size.rows, self.part_rows))
    }

    /// K of one split.
    fn split_k(&self, size: GemmSize) -> i64 {
        div_ceil(size.k, self.splits)
    }

    /// Bytes of the partial sums that all parts store between blocks of k; 0 if k is one block.
    pub fn partial_bytes(&self, size: GemmSize, tile: Tile) -> i64 {
        if self.split_k(size) <= self.block_k {
            return 0;
        }
        let (across, down) = self.parts(size);
        // A complex row counts as two reals, and so does a complex column.
        across * down * size.batches * self.splits * self.part_rows * self.block_columns * tile.element * tile.parts
    }

    /// Bytes of local memory for the panels of A and of B.
    pub fn local_bytes(&self, size: GemmSize, tile: Tile) -> (i64, i64) {
        let kept = if self.keeps_rows { self.split_k(size).max(1) } else { self.block_k };
        (self.strip_rows * kept * tile.element, self.block_columns * self.block_k * tile.element)
    }

    /// Cycles until the last core is done.
    fn cost(&self, size: GemmSize, tile: Tile, units: i64, stays: bool) -> f64 {
        let (across, down) = self.parts(size);
        let rounds = div_ceil(across * down * size.batches * self.splits, units) as f64;
        let vectors = div_ceil(self.part_columns.min(size.columns) * tile.parts, tile.lanes);
        let row_panels = div_ceil(self.part_rows.min(size.rows), tile.rows);
        let (rows, columns) = ((row_panels * tile.rows) as f64, (vectors * tile.lanes / tile.parts) as f64);
        let blocks = if self.keeps_rows { 1 } else { div_ceil(self.part_columns, self.block_columns) };
        let multiply_adds = (row_panels * tile.rows * tile.parts * vectors) as f64 / 2.0;
        let in_cache = stays && size.rows * size.k * tile.element <= CACHED_BYTES;
        let pack_row = if in_cache { 0.0 } else { PACK_ROW };
        let step = multiply_adds + rows * blocks as f64 * pack_row + columns * PACK_COLUMN;
        let k = self.split_k(size);
        let updates = div_ceil(k, self.block_k) as f64 / 2.0 + 0.5;
        let part = step * k as f64 + rows * columns * updates * STORE;
        let finish = if self.splits == 1 {
            0.0
        } else {
            let values = (size.rows * size.columns * size.batches) as f64;
            FINISH + values * (self.splits + 1) as f64 * STORE / units as f64
        };
        // Shares are never quite equal. The wait for the last part is shorter if parts are smaller.
        part * (rounds + 0.05) + finish
    }
}

/// 1, 2, 4, ... up to `limit`.
fn doublings(limit: i64) -> impl Iterator<Item = i64> {
    std::iter::successors(Some(1), |n| Some(n * 2)).take_while(move |n| *n <= limit.max(1))
}

/// Sizes packed at a time, within the local memory.
#[derive(Clone, Copy, Debug)]
struct Caches {
    block_k: i64,
    block_bytes: i64,
    kept_bytes: i64,
    strip_rows: i64,
}

impl Caches {
    /// If local memory is smaller than the caches, a third of it holds rows and two thirds hold columns.
    fn of(size: GemmSize, tile: Tile, cores: &Cores) -> Self {
        let CpuTuning { block_k, block_bytes, strip_rows, kept_bytes, .. } = cores.tuning;
        let block_bytes = block_bytes.min(cores.local_bytes * 2 / 3);
        let kept_bytes = kept_bytes.min(cores.local_bytes / 3);
        let strip_rows = (strip_rows / tile.rows).max(1) * tile.rows;
        let fit = (block_bytes / (tile.columns * tile.element)).min(kept_bytes / (tile.rows * tile.element));
        let most = block_k.min(fit).max(1);
        let block_k = div_ceil(size.k, div_ceil(size.k, most).max(1)).max(1);
        Self { block_k, block_bytes, kept_bytes, strip_rows }
    }

    fn plan(&self, size: GemmSize, tile: Tile, down: i64, across: i64, splits: i64, stays: bool) -> GemmPlan {
        let share = |size: i64, parts: i64, panel: i64| div_ceil(div_ceil(size, panel), parts).max(1) * panel;
        let part_rows = share(size.rows, down, tile.rows);
        // Parts end on a vector, not a panel, so that cores have equal shares.
        let part_columns = share(size.columns, across, tile.lanes / tile.parts);
        let split_k = div_ceil(size.k, splits).max(1);
        let block_k = div_ceil(split_k, div_ceil(split_k, self.block_k));
        let fit = |bytes: i64, k: i64, panel: i64| (bytes / (k * tile.element) / panel).max(1) * panel;
        let keeps_rows = !stays
            && part_rows <= fit(self.kept_bytes, split_k, tile.rows)
            && part_rows * split_k * tile.element <= self.kept_bytes;
        let strip_rows = if keeps_rows {
            part_rows
        } else {
            fit(self.kept_bytes, block_k, tile.rows).min(self.strip_rows).min(part_rows)
        };
        let most_columns = fit(self.block_bytes, block_k, tile.columns);
        // Equal blocks, so that the last is not much smaller.
        let block_columns = share(part_columns, div_ceil(part_columns, most_columns), tile.columns);
        GemmPlan { part_rows, part_columns, strip_rows, block_columns, block_k, keeps_rows, splits }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WIDE: Tile = Tile { rows: 8, columns: 48, vectors: 3, lanes: 16, parts: 1, element: 4 };

    const TUNING: CpuTuning = CpuTuning {
        vector_bytes: 64,
        tile_rows: 8,
        tile_vectors: 3,
        block_k: 384,
        block_bytes: 720 << 10,
        strip_rows: 64,
        kept_bytes: 384 << 10,
    };
    const CORES: Cores = Cores { units: 2, local_bytes: 2 << 20, tuning: TUNING };

    fn plan(rows: i64, columns: i64, k: i64, batches: i64) -> (GemmSize, GemmPlan) {
        let size = GemmSize { rows, columns, k, batches };
        (size, GemmPlan::of(size, WIDE, &CORES, false).0)
    }

    #[test]
    fn parts_cover_the_result_and_fit_the_local_memory() {
        for (rows, columns, k) in [(1, 1, 0), (1024, 1024, 1024), (7, 5000, 33), (64, 576, 100_352), (5, 5, 1 << 20)] {
            let (size, plan) = plan(rows, columns, k, 1);
            let (across, down) = plan.parts(size);
            assert!(across * plan.part_columns >= columns && down * plan.part_rows >= rows, "{plan:?}");
            assert!(plan.part_rows % WIDE.rows == 0 && plan.block_columns % WIDE.columns == 0, "{plan:?}");
            let (a, b) = plan.local_bytes(size, WIDE);
            assert!(a <= TUNING.kept_bytes && b <= TUNING.block_bytes, "{plan:?}");
        }
    }

    #[test]
    fn a_small_result_with_long_sums_is_split_along_them() {
        assert!(plan(64, 64, 100_000, 1).1.splits > 1);
        assert_eq!(plan(1024, 1024, 1024, 1).1.splits, 1);
        assert_eq!(plan(64, 64, 100_000, 64).1.splits, 1);
    }

    #[test]
    fn every_core_has_work() {
        let (size, plan) = plan(1024, 1024, 1024, 1);
        let (across, down) = plan.parts(size);
        assert!(across * down >= 2);
    }

    #[test]
    fn little_local_memory_makes_small_blocks() {
        let size = GemmSize { rows: 1000, columns: 1000, k: 1000, batches: 1 };
        let plan = GemmPlan::of(size, WIDE, &Cores { local_bytes: 32 << 10, ..CORES }, false).0;
        let (a, b) = plan.local_bytes(size, WIDE);
        assert!(a + b <= 32 << 10, "{plan:?}");
    }

    /// For any tuning: strips and blocks are whole panels, panels whole blocks, and all fits.
    #[test]
    fn parts_are_whole_panels_whatever_is_tuned() {
        let size = GemmSize { rows: 1000, columns: 1000, k: 1000, batches: 1 };
        let classes = [Class::Float, Class::Double, Class::Integer, Class::Complex, Class::ComplexDouble];
        for (vector_bytes, tile_rows, tile_vectors) in [(32, 4, 3), (32, 8, 3), (32, 16, 1), (64, 12, 2), (64, 16, 1)] {
            for (strip_rows, block_k, local_bytes) in [(4, 16, 32 << 10), (64, 384, 2 << 20), (1024, 4096, 1 << 20)] {
                let tuning = CpuTuning { vector_bytes, tile_rows, tile_vectors, strip_rows, block_k, ..TUNING };
                for class in classes {
                    let tile = Tile::tuned(&tuning, class);
                    assert!(tile.packs_evenly(), "{tile:?}");
                    let plan = GemmPlan::of(size, tile, &Cores { units: 2, local_bytes, tuning }, false).0;
                    assert!(plan.strip_rows % tile.rows == 0 && plan.block_columns % tile.columns == 0, "{plan:?}");
                    let (a, b) = plan.local_bytes(size, tile);
                    assert!(a + b <= local_bytes, "{tile:?} {plan:?}");
                }
            }
        }
    }

    #[test]
    fn classes_whose_panels_do_not_suit_a_tile_have_fewer_rows() {
        let tuning = CpuTuning { vector_bytes: 32, ..TUNING };
        assert_eq!(Tile::tuned(&tuning, Class::Float).rows, 8);
        assert_eq!(Tile::tuned(&tuning, Class::Double).rows, LEAST_ROWS);
        assert_eq!(Tile::tuned(&TUNING, Class::Double).rows, 8);
        assert_eq!(Tile::tuned(&TUNING, Class::Complex).rows, 4);
    }
}
