//! The first few elements of sorted rows, on CPUs.

use super::{prefix, Elements, Rows};
use crate::error::Result;
use crate::kernels::entry;
use crate::ops::{Target, Tensor, Workspace};

/// Pieces of a row for each core of a CPU that has too few rows: each more has a heap of its own to fill.
const CHUNKS_PER_UNIT: i64 = 2;
/// A heap pays while it is this much smaller than what it is fed from: then few elements enter it. Of 1024 rows of 1024
/// floats, the first 100 of each take 16 ms, and sorting all of them 6 ms (PoCL, 2 cores).
const HEAP_SHARE: i64 = measured!("TOPK_HEAP_SHARE", 64);
/// Pieces are not made shorter than this: each fills and empties a heap.
const SHORTEST_CHUNK: i64 = 1 << 14;

/// Returns true if few enough elements are asked for.
pub fn suits(target: &Target, rows: &Rows<'_>, kept: i64) -> bool {
    target.is_cpu() && kept * HEAP_SHARE <= rows.length
}

/// Writes the first elements of each sorted row: as many as rows of `values` and `indices` have.
///
/// # Errors
/// As the driver reports.
pub fn sort(target: &Target, rows: &Rows<'_>, values: &Tensor<'_>, indices: &Tensor<'_>) -> Result<()> {
    let kept = values.numel() / rows.count();
    let best = heaps(target, rows, kept)?;
    prefix(target, rows, values, indices, &best, kept)
}

/// The best `kept` elements of each row, in order.
fn heaps(target: &Target, rows: &Rows<'_>, kept: i64) -> Result<Elements> {
    let busy = target.compute_units() as i64 * CHUNKS_PER_UNIT / rows.count();
    let chunks = busy.min(rows.length / SHORTEST_CHUNK.max(kept * HEAP_SHARE)).max(1);
    let pieces = pass(target, rows, None, chunks, kept)?;
    if chunks == 1 {
        return Ok(pieces);
    }
    let sizes = [rows.count(), chunks * kept];
    let input = Tensor { address: pieces.keys.address, dtype: pieces.dtype, sizes: &sizes, strides: &[] };
    pass(target, &Rows { input, length: chunks * kept, ..*rows }, Some(&pieces.places), 1, kept)
}

/// Keeps the best of each piece of the rows; `places` has the indices of the elements, if they are not the rows
/// themselves.
fn pass(target: &Target, rows: &Rows<'_>, places: Option<&Workspace>, chunks: i64, kept: i64) -> Result<Elements> {
    let items = rows.count() * chunks;
    let best = Elements::new(target, items * kept, rows.input.class().storage())?;
    let args = entry::TopRows {
        keys: target.memory(best.keys.address)?,
        places: target.memory(best.places.address)?,
        input: target.tensor(&rows.input)?,
        in_places: target.memory(places.map_or(0, |memory| memory.address))?,
        dtype0: rows.input.dtype,
        length: rows.length,
        chunk: rows.length / chunks,
        chunks,
        kept,
        descending: rows.order(),
    };
    let program = rows.program(target, rows.input.dtype)?;
    target.launch(&program, entry::TOP_ROWS, &args, &[items as usize], None)?;
    Ok(best)
}
