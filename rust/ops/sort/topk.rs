//! The first few elements of sorted rows, on CPUs.

use super::{prefix, Elements, SortRows};
use crate::error::Result;
use crate::kernels::entry;
use crate::ops::{Target, Tensor, Workspace};

/// Occupancy target: pieces of rows per core of a CPU if there are too few rows. Each additional piece must fill a
/// heap.
const OCCUPANCY_TARGET: i64 = 2;
/// A heap is faster while it is this much smaller than its input: then few elements enter it. For 1024 rows of 1024
/// floats, the first 100 of each take 16 ms, and sorting all of them takes 6 ms (PoCL, 2 cores;
/// `make bench CASES="'topk *' 'sort rows *'"` has other sizes).
const HEAP_SHARE: i64 = measured!("TOPK_HEAP_SHARE", 64);
/// Pieces are not made shorter than this: each fills and empties a heap.
const SHORTEST_CHUNK: i64 = 1 << 14;

/// Returns true if few enough elements are requested.
pub fn suits(target: &Target, rows: &SortRows<'_>, k: i64) -> bool {
    target.is_cpu() && k * HEAP_SHARE <= rows.length
}

/// Writes the first elements of each sorted row: as many as rows of `values` and `indices` have.
///
/// # Errors
/// Errors reported by the driver.
pub fn sort(target: &Target, rows: &SortRows<'_>, values: &Tensor<'_>, indices: &Tensor<'_>) -> Result<()> {
    let k = values.numel() / rows.count();
    let best = heaps(target, rows, k)?;
    prefix(target, rows, values, indices, &best, k)
}

/// The best `k` elements of each row, in order.
fn heaps(target: &Target, rows: &SortRows<'_>, k: i64) -> Result<Elements> {
    let wanted = target.compute_units() as i64 * OCCUPANCY_TARGET / rows.count();
    let chunks = wanted.min(rows.length / SHORTEST_CHUNK.max(k * HEAP_SHARE)).max(1);
    let pieces = pass(target, rows, None, chunks, k)?;
    if chunks == 1 {
        return Ok(pieces);
    }
    let sizes = [rows.count(), chunks * k];
    let input = Tensor { address: pieces.values.address, dtype: pieces.dtype, sizes: &sizes, strides: &[] };
    pass(target, &SortRows { input, length: chunks * k, ..*rows }, Some(&pieces.indices), 1, k)
}

/// Keeps the best of each piece of the rows; `indices` has the indices of the elements, if these are not the original
/// rows.
fn pass(target: &Target, rows: &SortRows<'_>, indices: Option<&Workspace>, chunks: i64, k: i64) -> Result<Elements> {
    let items = rows.count() * chunks;
    let best = Elements::new(target, items * k, rows.input.class().storage())?;
    let args = entry::TopkRows {
        values: target.memory(best.values.address)?,
        indices: target.memory(best.indices.address)?,
        input: target.tensor(&rows.input)?,
        in_indices: target.memory(indices.map_or(0, |memory| memory.address))?,
        dtype0: rows.input.dtype,
        length: rows.length,
        chunk: rows.length / chunks,
        chunks,
        k,
        descending: rows.order(),
    };
    let program = rows.program(target, rows.input.dtype)?;
    target.launch(&program, entry::TOPK_ROWS, &args, &[items as usize], None)?;
    Ok(best)
}
