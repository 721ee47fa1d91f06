//! One element of each row, by its position in the sorted row: kthvalue, median.

use super::radix::{self, launch, BINS};
use super::{merge, Elements, SortRows};
use crate::error::Result;
use crate::kernels::entry;
use crate::ops::{Target, Tensor, Workspace};

#[cxx::bridge(namespace = "torch_opencl::bridge")]
mod ffi {
    unsafe extern "C++" {
        include!("torch_opencl/rust/abi.rs.h");
        type Tensor<'a> = crate::abi::Tensor<'a>;
    }

    extern "Rust" {
        fn kthvalue(values: &Tensor, indices: &Tensor, input: &Tensor, positions: &Tensor) -> Result<()>;
    }
}

/// Writes the element of each row of `input` that a stable ascending sort would put at `positions`, and its index in
/// the row to `indices`. All are contiguous; `values`, `indices` and `positions` (both int64) have one element for each
/// row. NaN counts as larger than every number.
///
/// # Errors
/// Errors reported by the driver.
pub fn kthvalue(values: &Tensor<'_>, indices: &Tensor<'_>, input: &Tensor<'_>, positions: &Tensor<'_>) -> Result<()> {
    if values.numel() == 0 {
        return Ok(());
    }
    let target = Target::of(values.address)?;
    let length = input.sizes.last().copied().unwrap_or(1);
    let rows = SortRows { input: *input, length, descending: false };
    if radix::suits(&target, &rows) {
        narrow(&target, &rows, values, indices, positions)
    } else {
        pick(&target, &rows, values, indices, positions)
    }
}

/// Sorts the rows first: for devices without the kernels of `kthvalue.cl`, and for rows that are too short for these.
fn pick(
    target: &Target,
    rows: &SortRows<'_>,
    values: &Tensor<'_>,
    indices: &Tensor<'_>,
    positions: &Tensor<'_>,
) -> Result<()> {
    let dtype = rows.input.dtype;
    let sorted = Elements::new(target, rows.input.numel(), dtype)?;
    merge(target, rows, sorted.values.address, sorted.indices.address)?;
    let args = entry::SortPick {
        values: target.tensor(values)?,
        indices: target.tensor(indices)?,
        sorted_values: target.memory(sorted.values.address)?,
        sorted_indices: target.memory(sorted.indices.address)?,
        positions: target.tensor(positions)?,
        dtype0: dtype,
        length: rows.length,
    };
    let program = rows.program(target, dtype)?;
    target.launch(&program, entry::SORT_PICK, &args, &[rows.count() as usize], None)
}

/// Narrows the candidates of each row byte by byte.
fn narrow(
    target: &Target,
    rows: &SortRows<'_>,
    values: &Tensor<'_>,
    indices: &Tensor<'_>,
    positions: &Tensor<'_>,
) -> Result<()> {
    const WANTED_BYTES: i64 = 16;
    let (dtype, count, length) = (rows.input.dtype, rows.count(), rows.length);
    let program = rows.program(target, dtype)?;
    let key_size = radix::key_size(dtype) as i64;
    let chunk_count = radix::chunks(target, rows);
    let pieces = count * chunk_count;
    let passes = radix::key_bytes(dtype);
    let workspace = |bytes: i64| target.workspace(bytes as usize);
    let spaces = [
        workspace(count * length * 2 * key_size)?,
        workspace(pieces * 4)?,
        workspace(pieces * BINS * 4)?,
        workspace(pieces * key_size)?,
        workspace(count * WANTED_BYTES)?,
    ];
    let memory = |space: &Workspace| target.memory(space.address);
    let [records, candidates, counts, varying, wanted] = &spaces;
    let (records, candidates, counts) = (memory(records)?, memory(candidates)?, memory(counts)?);
    let (varying, wanted) = (memory(varying)?, memory(wanted)?);
    let (input, positions, chunks) = (target.tensor(&rows.input)?, target.tensor(positions)?, chunk_count as i32);

    let keys = entry::RadixKeys { records, varying, input, dtype0: dtype, length, chunks, descending: rows.order() };
    launch(target, &program, entry::RADIX_KEYS, &keys, pieces)?;
    for pass in (0..passes).rev() {
        let args = entry::KthvalueCount { records, candidates, counts, varying, wanted, length, chunks, pass, passes };
        launch(target, &program, entry::KTHVALUE_COUNT, &args, pieces)?;
        let args = entry::KthvalueChoose { wanted, positions, counts, varying, chunks, pass, passes };
        launch(target, &program, entry::KTHVALUE_CHOOSE, &args, count)?;
    }
    let args = entry::KthvalueWrite {
        values: target.tensor(values)?,
        indices: target.tensor(indices)?,
        input,
        records,
        candidates,
        counts,
        varying,
        wanted,
        dtype0: dtype,
        length,
        chunks,
        passes,
    };
    launch(target, &program, entry::KTHVALUE_WRITE, &args, count)
}
