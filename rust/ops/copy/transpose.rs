//! Copies between tensors that are dense along different dimensions: transposed matrices, and images in other memory
//! formats.

use crate::error::Result;
use crate::kernels::{entry, Class, Family, Spec};
use crate::ops::core::forms::Form;
use crate::ops::core::space::{div_ceil, layout, span, Dim};
use crate::ops::{Operand, Target};

/// The smallest side of a matrix that GPUs transpose by tiles.
const GPU_SIDE: i64 = 16;
/// Bytes of a tile that each item moves, and of one access.
const GPU_ITEM: i64 = 64;
const GPU_CHUNK: i64 = 16;
/// Work-groups per compute unit that a launch with large tiles must have. Not measured.
const GPU_GROUPS: i64 = 2;
/// Side of a CPU work-item's tile, in elements: the fastest of 64, 128 and 256 for 4096 x 4096 floats.
const CPU_TILE: i64 = measured!("TRANSPOSE_TILE", 128);

/// Copies `src` to `dst`, of one dtype, over `shape` (innermost dimension first), if the copy transposes large
/// enough matrices. Returns true if it has copied.
///
/// # Errors
/// Errors reported by the driver.
pub fn copy(target: &Target, shape: &[i64], dst: &Operand<'_>, src: &Operand<'_>, non_temporal: bool) -> Result<bool> {
    let width = dst.dtype.size() as i64;
    let dims = shape.iter().zip(dst.strides.iter().zip(src.strides));
    let mut space: Vec<Dim<2>> = dims.map(|(&size, (&to, &from))| Dim { size, strides: [to, from] }).collect();
    let Some(side) = least_side(target, width) else { return Ok(false) };
    let is_matrix = |row: &Dim<2>, column: &Dim<2>| {
        let sides = row.size.min(column.size);
        // Rows that are dense on both sides, as overlapping windows are, need no transpose.
        sides >= side && row.strides[0] == width && ![0, width].contains(&row.strides[1]) && column.strides[1] == width
    };
    let column = match space.split_first() {
        Some((row, rest)) => rest.iter().position(|column| is_matrix(row, column)),
        None => None,
    };
    let Some(column) = column else { return Ok(false) };
    // The columns become the second dimension; the batch keeps its order.
    let matrix = space.remove(column + 1);
    space.insert(1, matrix);
    launch(target, &space, dst, src, width, non_temporal)?;
    Ok(true)
}

/// The smallest side of a matrix that kernels for this width transpose; `None` for elements of 16 bytes, and if groups
/// are too small for a tile.
fn least_side(target: &Target, width: i64) -> Option<i64> {
    match width {
        _ if !target.is_cpu() => (width <= 8 && Tile::of(width, false).fits(target, width)).then_some(GPU_SIDE),
        1 | 4 => Some(16),
        2 => Some(32),
        8 => Some(8),
        _ => None,
    }
}

/// The tile of a work-group on GPUs, in elements: rows and columns of the source.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Tile {
    rows: i64,
    columns: i64,
}

impl Tile {
    /// 4 or 16 KiB, whose rows and columns have whole chunks: 64 to 512 bytes.
    const fn of(width: i64, is_large: bool) -> Self {
        let columns = match width {
            1 => 64,
            8 => 16,
            _ => 32,
        };
        let rows = 4096 / (columns * width);
        if is_large {
            return Self { rows: 2 * rows, columns: 2 * columns };
        }
        Self { rows, columns }
    }

    /// The large tile, unless half of it would be empty or its groups would not fill the device.
    fn choose(target: &Target, rows: i64, columns: i64, batch: i64, width: i64) -> Self {
        let (small, large) = (Self::of(width, false), Self::of(width, true));
        let groups = div_ceil(rows, large.rows) * div_ceil(columns, large.columns) * batch;
        let is_filled = rows > small.rows && columns > small.columns;
        if is_filled && groups >= GPU_GROUPS * target.compute_units() as i64 && large.fits(target, width) {
            return large;
        }
        small
    }

    const fn items(self, width: i64) -> i64 {
        self.rows * self.columns * width / GPU_ITEM
    }

    fn fits(self, target: &Target, width: i64) -> bool {
        target.device.info.max_work_group as i64 >= self.items(width)
    }

    fn spec(self, width: i64, is_aligned: bool) -> Spec {
        let spec = Spec::generic().define("WIDTH", width).define("ROWS", self.rows).define("COLUMNS", self.columns);
        spec.define("ALIGNED", i64::from(is_aligned))
    }
}

/// Returns true if every row and every column of the matrices is whole chunks at multiples of a chunk.
fn is_aligned(space: &[Dim<2>], addresses: [usize; 2], width: i64) -> bool {
    let &[row, column, ref batch @ ..] = space else { return false };
    let sizes = [row.size * width, column.size * width];
    let steps = batch.iter().flat_map(|dim| dim.strides).chain([row.strides[1], column.strides[0]]);
    let starts = steps.chain(addresses.map(|address| address as i64));
    sizes.into_iter().chain(starts).all(|bytes| bytes % GPU_CHUNK == 0)
}

/// The generic programs.
pub(in crate::ops) fn forms(target: &Target) -> Vec<Form> {
    let widths = [1, 2, 4, 8].into_iter().filter(|width| least_side(target, *width).is_some());
    if target.is_cpu() {
        return widths
            .flat_map(|width| [false, true].map(|non_temporal| (Class::Integer, blocks(width, non_temporal))))
            .collect();
    }
    let tiles = widths.flat_map(|width| [false, true].map(|is_large| (width, Tile::of(width, is_large))));
    tiles
        .filter(|(width, tile)| tile.fits(target, *width))
        .flat_map(|(width, tile)| [false, true].map(|is_aligned| (Class::Integer, tile.spec(width, is_aligned))))
        .collect()
}

fn blocks(width: i64, non_temporal: bool) -> Spec {
    let spec = Spec::generic().define("WIDTH", width);
    // Blocks of single bytes do not fill a cache line, and only whole lines should be non-temporal.
    if non_temporal && width > 1 {
        spec.define("SPEC_NON_TEMPORAL", 1)
    } else {
        spec
    }
}

fn launch(
    target: &Target,
    space: &[Dim<2>],
    dst: &Operand<'_>,
    src: &Operand<'_>,
    width: i64,
    non_temporal: bool,
) -> Result<()> {
    let &[row, column, ref batch @ ..] = space else { return Ok(()) };
    let addresses = [dst.address, src.address];
    let (dst, src, layout) = (target.memory(dst.address)?, target.memory(src.address)?, layout(space)?);
    let count = space.iter().map(|dim| dim.size).product();
    if target.is_cpu() {
        let program = target.program(Family::Transpose, Class::Integer, &blocks(width, non_temporal))?;
        let args = entry::TransposeBlocks { dst, src, layout, tile: CPU_TILE };
        let items = span(batch) as i64 * div_ceil(row.size, CPU_TILE) * div_ceil(column.size, CPU_TILE);
        return target.launch_elements(&program, entry::TRANSPOSE_BLOCKS, &args, count, &[items as usize], Some(&[1]));
    }
    let tile = Tile::choose(target, row.size, column.size, span(batch) as i64, width);
    let spec = tile.spec(width, is_aligned(space, addresses, width));
    let program = target.program(Family::Transpose, Class::Integer, &spec)?;
    let items = tile.items(width) as usize;
    let across = div_ceil(column.size, tile.columns) as usize * items;
    let global = [across, div_ceil(row.size, tile.rows) as usize, span(batch)];
    let args = entry::TransposeTiles { dst, src, layout };
    target.launch_elements(&program, entry::TRANSPOSE_TILES, &args, count, &global, Some(&[items, 1, 1]))
}
