//! Radix sort of rows, on CPUs.

use super::SortRows;
use crate::error::Result;
use crate::kernels::entry::{self, Arguments, EntryPoint};
use crate::kernels::{CachedProgram, Class, DType};
use crate::ops::Target;

/// The `BINS` of `radix.cl`.
pub const BINS: i64 = 256;
/// Shortest rows for which it is faster than merging: each pass clears and adds up all bins.
const SHORTEST: i64 = measured!("RADIX_SHORTEST", 128);
/// Pieces of a row are not made shorter than this, for the same reason.
const SHORTEST_CHUNK: i64 = 1 << 14;
/// Occupancy target: pieces of rows per core, so that shares stay even if another process takes a core.
const OCCUPANCY_TARGET: i64 = 4;

/// Returns true if the kernels suit such rows: counts and indices have 32 bits.
pub fn suits(target: &Target, rows: &SortRows<'_>) -> bool {
    target.is_cpu() && (SHORTEST..i64::from(u32::MAX)).contains(&rows.length)
}

/// Pieces that a row is cut into: enough for all cores, if rows are few and long.
pub fn chunks(target: &Target, rows: &SortRows<'_>) -> i64 {
    let wanted = (target.compute_units() as i64 * OCCUPANCY_TARGET).min(rows.length / SHORTEST_CHUNK);
    (wanted / rows.count()).max(1)
}

/// Bytes of the `Key` of an element.
pub fn key_size(dtype: DType) -> usize {
    if dtype.class() == Class::Float {
        4
    } else {
        8
    }
}

/// Bytes of a key that distinguish elements.
pub const fn key_bytes(dtype: DType) -> i32 {
    match dtype {
        // Bits of the float that it is loaded as: 1 of the sign, 8 of the exponent and 10 more.
        DType::F16 => 3,
        _ => dtype.size() as i32,
    }
}

/// Launches a kernel in groups of one, as each work-item has a table of bins.
///
/// # Errors
/// Errors reported by the driver.
pub fn launch<A: Arguments>(
    target: &Target,
    program: &CachedProgram,
    kernel: EntryPoint<A>,
    args: &A,
    items: i64,
) -> Result<()> {
    target.launch(program, kernel, args, &[items as usize], Some(&[1]))
}

/// Writes the first `k` elements of each sorted row, and their indices, to the memory at two addresses.
///
/// # Errors
/// Errors reported by the driver.
pub fn sort(target: &Target, rows: &SortRows<'_>, values: usize, indices: usize, k: i64) -> Result<()> {
    let (length, count, dtype) = (rows.length, rows.count(), rows.input.dtype);
    let program = rows.program(target, dtype)?;
    let key_size = key_size(dtype);
    let bytes = rows.input.numel() as usize * 2 * key_size;
    let (records, spare) = (target.workspace(bytes)?, target.workspace(bytes)?);
    let (records, spare) = (target.memory(records.address)?, target.memory(spare.address)?);
    let (values, indices, input) = (target.memory(values)?, target.memory(indices)?, target.tensor(&rows.input)?);
    let passes = key_bytes(dtype);

    let chunk_count = chunks(target, rows);
    if chunk_count == 1 {
        let args = entry::RadixRows {
            values,
            indices,
            input,
            records,
            spare,
            dtype0: dtype,
            length,
            k,
            passes,
            descending: rows.order(),
        };
        return launch(target, &program, entry::RADIX_ROWS, &args, count);
    }
    let pieces = count * chunk_count;
    let varying = target.workspace(pieces as usize * key_size)?;
    let counts = target.workspace((pieces * BINS * 4) as usize)?;
    let (varying, counts) = (target.memory(varying.address)?, target.memory(counts.address)?);
    let chunks = chunk_count as i32;
    let keys = entry::RadixKeys { records, varying, input, dtype0: dtype, length, chunks, descending: rows.order() };
    launch(target, &program, entry::RADIX_KEYS, &keys, pieces)?;
    for pass in 0..passes {
        let args = entry::RadixCount { records, spare, varying, counts, length, chunks, pass };
        launch(target, &program, entry::RADIX_COUNT, &args, pieces)?;
        launch(target, &program, entry::RADIX_OFFSETS, &entry::RadixOffsets { counts, chunks }, count)?;
        let args = entry::RadixMove { records, spare, varying, counts, length, chunks, pass };
        launch(target, &program, entry::RADIX_MOVE, &args, pieces)?;
    }
    let args =
        entry::RadixWrite { values, indices, input, records, spare, varying, dtype0: dtype, length, k, chunks, passes };
    launch(target, &program, entry::RADIX_WRITE, &args, pieces)
}
