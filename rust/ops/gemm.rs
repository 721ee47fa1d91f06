//! The packed matrix product: chunks of both factors are packed into panels, which one kernel multiplies.
//!
//! Factors come from strided matrices or from the patches of a convolution; the packing kernels differ, the product
//! does not.

use std::sync::Arc;

use super::epilogue::Epilogue;
use super::geometry::Geometry;
use super::matrix::{advance, div_up, spans, Matrix, Operand, Span};
use super::patches::Patches;
use super::Target;
use crate::cl::Arg;
use crate::error::{Error, Result};
use crate::kernels::{CachedProgram, Class, DType, Family, Spec};

/// k is cut into blocks of at most this: a panel of 32 f32 columns is then 640 KiB, half of a server core's L2. The
/// largest layers of common networks (4608 = 512 channels x 9 taps) need one block, and so no partial sums.
const DEPTH: i64 = 5120;
/// k of one work-item that packs a strided matrix: longer strips of 128-byte rows miss the TLB (6.8 ms for a
/// 2048 x 2048 f32 matrix at 4096, 2.9 at 128; PoCL, Xeon).
const PACK_STEP: i64 = 128;
/// Memory for the packed chunk of a factor.
const PACKED_BYTES: i64 = 32 << 20;
/// Packed rows that a work-item passes a panel of columns through: they stay in L2 from one panel to the next.
const BLOCK_BYTES: i64 = 1 << 20;
/// A part of k shorter than this does not repay the partial sums.
const SHORTEST_SPLIT: i64 = 256;

/// Patches of a tensor in device memory.
#[derive(Clone, Copy, Debug)]
pub struct PatchOperand {
    /// Buffer and offset of the tensor.
    pub memory: Arg<'static>,
    /// Storage dtype.
    pub dtype: DType,
    /// Which patches.
    pub patches: Patches,
}

/// One of the two matrices that are multiplied.
#[derive(Clone, Copy, Debug)]
pub enum Factor {
    /// A strided matrix.
    Matrix(Operand),
    /// The patch matrix, with k over its features.
    Pixels(PatchOperand),
    /// The patch matrix, with k over its pixels.
    Features(PatchOperand),
}

/// Which factor: the first is packed by rows, the second by columns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Side {
    Rows,
    Columns,
}

impl Factor {
    fn kernel(&self, side: Side) -> Result<(Family, &'static str)> {
        Ok(match (self, side) {
            (Self::Matrix(_), Side::Rows) => (Family::Matmul, "pack_rows"),
            (Self::Matrix(_), Side::Columns) => (Family::Matmul, "pack_columns"),
            (Self::Pixels(_), Side::Rows) => (Family::Conv, "pack_pixel_rows"),
            (Self::Pixels(_), Side::Columns) => (Family::Conv, "pack_pixel_columns"),
            (Self::Features(_), Side::Columns) => (Family::Conv, "pack_feature_columns"),
            (Self::Features(_), Side::Rows) => {
                return Err(Error::Invalid("OpenCL: features are packed as columns".to_owned()));
            }
        })
    }

    fn at_batch(&self, batch: i64) -> (Arg<'static>, DType, Vec<u8>) {
        match self {
            Self::Matrix(matrix) => (matrix.at_batch(batch).memory, matrix.dtype, matrix.layout.bytes()),
            Self::Pixels(source) | Self::Features(source) => {
                let offset = batch * source.patches.group_stride;
                (advance(source.memory, offset, source.dtype), source.dtype, source.patches.bytes())
            }
        }
    }

    /// Most k of one work-item.
    const fn longest_step(&self) -> i64 {
        match self {
            Self::Matrix(_) => PACK_STEP,
            Self::Pixels(_) | Self::Features(_) => i64::MAX,
        }
    }
}

/// A matrix product to be done.
#[derive(Clone, Copy, Debug)]
pub struct Product {
    /// What it is computed in.
    pub class: Class,
    /// Rows of the result.
    pub rows: i64,
    /// Columns of the result.
    pub columns: i64,
    /// Terms of each sum.
    pub depth: i64,
    /// Matrices.
    pub batches: i64,
    /// The first factor.
    pub a: Factor,
    /// The second factor.
    pub b: Factor,
    /// Where the result goes.
    pub epilogue: Epilogue,
}

/// Rows and columns, in elements, that a kernel computes at a time, and what a panel of either takes per step of k.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Tile {
    rows: i64,
    columns: i64,
    vectors: i64,
    lanes: i64,
    parts: i64,
    real_bytes: i64,
}

impl Tile {
    /// 12 x 2 accumulators leave 8 of the 32 registers of AVX-512 for operands: 92 % of the multiply-add limit of a
    /// Xeon on PoCL. GPUs get a small tile.
    fn of(target: &Target, class: Class) -> Self {
        let parts = if matches!(class, Class::Complex | Class::ComplexDouble) { 2 } else { 1 };
        let real_bytes = class.size() as i64 / parts;
        let (rows, vectors, lanes) = if target.is_cpu() { (12, 2, 64 / real_bytes) } else { (4, 1, 4) };
        Self { rows: rows / parts, columns: vectors * lanes / parts, vectors, lanes, parts, real_bytes }
    }

    const fn width(&self, side: Side) -> i64 {
        match side {
            Side::Rows => self.rows,
            Side::Columns => self.columns,
        }
    }

    /// Bytes of one element of a panel.
    const fn element(&self) -> i64 {
        self.parts * self.real_bytes
    }
}

/// The program of matrix products, or of convolutions, for a class.
pub fn program(target: &Target, family: Family, class: Class) -> Result<Arc<CachedProgram>> {
    let tile = Tile::of(target, class);
    let spec = Spec::generic()
        .define("VEC", Geometry::of(target, class).lanes as i64)
        .define("TILE_ROWS", tile.rows * tile.parts)
        .define("TILE_VECTORS", tile.vectors)
        .define("TILE_LANES", tile.lanes);
    target.program(family, class, &spec)
}

/// Enqueues a kernel of independent work-items. On CPUs a work-group of one lets every core take any of them.
pub fn launch(
    target: &Target,
    program: &CachedProgram,
    kernel: &'static str,
    args: &[Arg<'_>],
    global: [i64; 3],
) -> Result<()> {
    let global = global.map(|size| size.max(0) as usize);
    let local = target.is_cpu().then_some([1_usize; 3]);
    target.launch(program, kernel, args, &global, local.as_ref().map(<[usize; 3]>::as_slice))
}

/// Independent work-items that keep the device busy.
pub fn busy(target: &Target) -> i64 {
    target.compute_units() as i64 * if target.is_cpu() { 4 } else { 256 }
}

/// How a product is cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Plan {
    tile: Tile,
    batches: i64,
    rows: i64,
    columns: i64,
    depth: i64,
    block: i64,
    splits: i64,
}

impl Plan {
    fn of(product: &Product, tile: Tile, busy: i64, is_cpu: bool) -> Self {
        let depth = div_up(product.depth, div_up(product.depth, DEPTH).max(1)).max(1);
        let fit = PACKED_BYTES / (depth * tile.element());
        let chunk = |size: i64, width: i64| (fit / width).clamp(1, div_up(size, width).max(1)) * width;
        let (rows, columns) = (chunk(product.rows, tile.rows), chunk(product.columns, tile.columns));
        let batches = (fit / rows.max(columns)).clamp(1, product.batches.max(1));

        let row_panels = div_up(rows, tile.rows);
        let columns_of_work = div_up(columns, tile.columns) * batches;
        let in_cache = if is_cpu { BLOCK_BYTES / (depth * tile.rows * tile.element()) } else { 1 };
        let blocks = div_up(busy, columns_of_work).max(div_up(row_panels, in_cache.max(1))).min(row_panels);
        let items = columns_of_work * row_panels;
        let splits = if items * 2 > busy { 1 } else { div_up(busy, items).min(div_up(depth, SHORTEST_SPLIT)) };
        Self { tile, batches, rows, columns, depth, block: div_up(row_panels, blocks), splits }
    }

    fn packed_bytes(&self, side: Side) -> usize {
        let size = if side == Side::Rows { self.rows } else { self.columns };
        (self.batches * size * self.depth * self.tile.element()).max(1) as usize
    }
}

struct Run<'a> {
    target: &'a Target,
    product: &'a Product,
    plan: Plan,
    program: Arc<CachedProgram>,
    busy: i64,
}

/// Computes a product.
///
/// # Errors
/// As the allocator and the driver report.
pub fn multiply(target: &Target, product: &Product) -> Result<()> {
    if product.rows * product.columns * product.batches == 0 {
        return Ok(());
    }
    let busy = busy(target);
    let plan = Plan::of(product, Tile::of(target, product.class), busy, target.is_cpu());
    let run = Run { target, product, plan, program: program(target, Family::Matmul, product.class)?, busy };
    let a_memory = target.workspace(plan.packed_bytes(Side::Rows))?;
    let b_memory = target.workspace(plan.packed_bytes(Side::Columns))?;
    let (packed_a, packed_b) = (target.memory(a_memory.address)?, target.memory(b_memory.address)?);
    let is_partial = plan.splits > 1 || plan.depth < product.depth;
    let sums = plan.splits * plan.batches * plan.rows * plan.columns * product.class.size() as i64;
    let sums_memory = if is_partial { Some(target.workspace(sums as usize)?) } else { None };
    let a_stays = plan.rows >= product.rows && plan.depth >= product.depth;

    for batches in spans(product.batches, plan.batches) {
        let epilogue = product.epilogue.at_batch(batches.first);
        for rows in spans(product.rows, plan.rows) {
            for columns in spans(product.columns, plan.columns) {
                let partial = match &sums_memory {
                    Some(memory) => Some(Operand {
                        memory: target.memory(memory.address)?,
                        dtype: product.class.storage(),
                        layout: Matrix::dense(rows.count, columns.count),
                    }),
                    None => None,
                };
                for depth in spans(product.depth, plan.depth) {
                    if columns.first == 0 || !a_stays {
                        run.pack(&product.a, Side::Rows, batches, rows, depth, packed_a)?;
                    }
                    run.pack(&product.b, Side::Columns, batches, columns, depth, packed_b)?;
                    let chunk = Chunk { batches: batches.count, rows, columns, depth: depth.count };
                    match partial {
                        Some(sums) => {
                            let addend = (depth.first > 0).then_some(sums);
                            run.multiply(&chunk.at_origin(), packed_a, packed_b, &Epilogue::plain(sums, addend))?;
                        }
                        None => run.multiply(&chunk, packed_a, packed_b, &epilogue)?,
                    }
                }
                if let Some(sums) = partial {
                    let chunk = Chunk { batches: batches.count, rows, columns, depth: 0 };
                    finish(target, &run.program, product.class, &chunk, plan.splits, sums.memory, &epilogue)?;
                }
            }
        }
    }
    Ok(())
}

/// A part of a product.
#[derive(Clone, Copy, Debug)]
pub struct Chunk {
    /// Matrices.
    pub batches: i64,
    /// Rows of the result.
    pub rows: Span,
    /// Columns of the result.
    pub columns: Span,
    /// Terms of each sum.
    pub depth: i64,
}

impl Chunk {
    /// The same, as a result of its own.
    fn at_origin(&self) -> Self {
        let start = |span: Span| Span { first: 0, ..span };
        Self { rows: start(self.rows), columns: start(self.columns), ..*self }
    }
}

impl Run<'_> {
    fn pack(&self, factor: &Factor, side: Side, batches: Span, span: Span, depth: Span, packed: Arg<'_>) -> Result<()> {
        let (family, kernel) = factor.kernel(side)?;
        let program = match family {
            Family::Matmul => Arc::clone(&self.program),
            _ => program(self.target, family, self.product.class)?,
        };
        let panels = div_up(span.count, self.plan.tile.width(side));
        let pieces = div_up(self.busy, panels * batches.count);
        let step = div_up(depth.count, pieces).clamp(16, factor.longest_step());
        let (memory, dtype, layout) = factor.at_batch(batches.first);
        let args = [
            memory,
            Arg::Int(dtype.code()),
            Arg::Bytes(&layout),
            Arg::Long(span.first),
            Arg::Long(span.first + span.count),
            Arg::Long(depth.first),
            Arg::Long(depth.count),
            Arg::Long(step),
            packed,
        ];
        launch(self.target, &program, kernel, &args, [panels, div_up(depth.count, step), batches.count])
    }

    fn multiply(&self, chunk: &Chunk, packed_a: Arg<'_>, packed_b: Arg<'_>, epilogue: &Epilogue) -> Result<()> {
        let Plan { tile, block, splits, .. } = self.plan;
        let encoded = epilogue.encode(self.product.class);
        let cut = [
            packed_a,
            packed_b,
            Arg::Long(chunk.rows.first),
            Arg::Long(chunk.columns.first),
            Arg::Long(chunk.rows.count),
            Arg::Long(chunk.columns.count),
            Arg::Long(chunk.depth),
            Arg::Long(block),
            Arg::Long(splits),
            Arg::Long(chunk.batches * chunk.rows.count * chunk.columns.count),
        ];
        let row_blocks = div_up(div_up(chunk.rows.count, tile.rows), block);
        let global = [div_up(chunk.columns.count, tile.columns), row_blocks, chunk.batches * splits];
        launch(self.target, &self.program, "gemm", &[&cut[..], &encoded.args()].concat(), global)
    }
}

/// Adds `splits` partial products of a chunk, and ends.
///
/// # Errors
/// As the driver reports.
pub fn finish(
    target: &Target,
    program: &CachedProgram,
    class: Class,
    chunk: &Chunk,
    splits: i64,
    sums: Arg<'_>,
    epilogue: &Epilogue,
) -> Result<()> {
    let encoded = epilogue.encode(class);
    let cut = [
        sums,
        Arg::Long(chunk.rows.first),
        Arg::Long(chunk.columns.first),
        Arg::Long(chunk.columns.count),
        Arg::Long(splits),
    ];
    let lanes = Geometry::of(target, class).lanes as i64;
    let global = [div_up(chunk.columns.count, lanes), chunk.rows.count, chunk.batches];
    launch(target, program, "gemm_finish", &[&cut[..], &encoded.args()].concat(), global)
}
