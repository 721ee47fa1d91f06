//! Stable sort along the last dimension.

pub mod kthvalue;
pub mod radix;

pub mod topk;

use std::sync::Arc;

use crate::error::Result;
use crate::kernels::entry::{self, Arguments, EntryPoint};
use crate::kernels::{CachedProgram, DType, Family};
use crate::ops::core::geometry::Geometry;
use crate::ops::core::space::div_ceil;
use crate::ops::core::tier::tier;
use crate::ops::{Target, Tensor, Workspace};

#[cxx::bridge(namespace = "torch_opencl::bridge")]
mod ffi {
    unsafe extern "C++" {
        include!("torch_opencl/rust/abi.rs.h");
        type Tensor<'a> = crate::abi::Tensor<'a>;
    }

    extern "Rust" {
        fn sort(values: &Tensor, indices: &Tensor, input: &Tensor, descending: bool) -> Result<()>;
    }
}

/// The `BLOCK` of `sort.cl`.
const BLOCK: i64 = 32;
/// Maximum number of elements that a work-item on a CPU merges; each work-item starts with two bisections.
const MERGED: i64 = 1024;
/// The `TAKEN` of `sort_groups.cl`.
const TAKEN: i64 = 4;

/// The rows of a contiguous tensor, and the order to sort them in.
#[derive(Clone, Copy, Debug)]
pub struct SortRows<'a> {
    /// The tensor.
    pub input: Tensor<'a>,
    /// Elements of a row.
    pub length: i64,
    /// True to sort the largest first.
    pub descending: bool,
}

impl SortRows<'_> {
    /// Number of rows.
    pub fn count(&self) -> i64 {
        self.input.numel() / self.length
    }

    /// The program for elements of a dtype.
    pub fn program(&self, target: &Target, dtype: DType) -> Result<Arc<CachedProgram>> {
        let class = dtype.class();
        let spec = tier(self.input.numel(), &[("SPEC_DTYPE0", dtype.code())]);
        target.program(Family::Sort, class, &Geometry::of(target, class).define(spec))
    }

    /// The order as kernels take it, in `descending`.
    pub fn order(&self) -> i32 {
        i32::from(self.descending)
    }
}

/// Sorts the rows of `input` into `values`; `indices` (int64) gets the original index of each element. All are
/// contiguous and have the same shape, but the rows of the results may be shorter: then they hold the first elements
/// only.
///
/// # Errors
/// Errors reported by the driver.
pub fn sort(values: &Tensor<'_>, indices: &Tensor<'_>, input: &Tensor<'_>, descending: bool) -> Result<()> {
    if values.numel() == 0 {
        return Ok(());
    }
    let target = Target::of(values.address)?;
    let last = |tensor: &Tensor<'_>| tensor.sizes.last().copied().unwrap_or(1);
    let rows = SortRows { input: *input, length: last(input), descending };
    let k = last(values);
    if topk::suits(&target, &rows, k) {
        topk::sort(&target, &rows, values, indices)
    } else if radix::suits(&target, &rows) {
        radix::sort(&target, &rows, values.address, indices.address, k)
    } else if k == rows.length {
        merge(&target, &rows, values.address, indices.address)
    } else {
        let sorted = Elements::new(&target, input.numel(), input.dtype)?;
        merge(&target, &rows, sorted.values.address, sorted.indices.address)?;
        prefix(&target, &rows, values, indices, &sorted, rows.length)
    }
}

/// Elements and their indices, in workspaces.
pub struct Elements {
    /// The elements.
    pub values: Workspace,
    /// Their int64 indices.
    pub indices: Workspace,
    /// Dtype that the elements are stored in.
    pub dtype: DType,
}

impl Elements {
    /// Memory for `count` elements.
    pub fn new(target: &Target, count: i64, dtype: DType) -> Result<Self> {
        let values = target.workspace(count as usize * dtype.size())?;
        let indices = target.workspace(count as usize * DType::I64.size())?;
        Ok(Self { values, indices, dtype })
    }
}

/// Copies the beginnings of rows of `length` elements.
pub fn prefix(
    target: &Target,
    rows: &SortRows<'_>,
    values: &Tensor<'_>,
    indices: &Tensor<'_>,
    from: &Elements,
    length: i64,
) -> Result<()> {
    let args = entry::SortPrefix {
        values: target.tensor(values)?,
        indices: target.tensor(indices)?,
        sorted_values: target.memory(from.values.address)?,
        sorted_indices: target.memory(from.indices.address)?,
        to_dtype: values.dtype,
        from_dtype: from.dtype,
        length,
        k: values.numel() / rows.count(),
    };
    let program = rows.program(target, rows.input.dtype)?;
    target.launch(&program, entry::SORT_PREFIX, &args, &[values.numel() as usize], None)
}

/// Sorts the rows by merging runs, into the memory at two addresses.
///
/// # Errors
/// Errors reported by the driver.
pub fn merge(target: &Target, rows: &SortRows<'_>, values: usize, indices: usize) -> Result<()> {
    let (count, length, descending) = (rows.input.numel(), rows.length, rows.order());
    let program = rows.program(target, rows.input.dtype)?;
    let dtype0 = rows.input.dtype;
    let cut = MergeSizes::of(target, rows);

    let merges = (0..).map(|level| cut.block << level).take_while(|run| *run < length);
    let spare_values = target.workspace(count as usize * rows.input.dtype.size())?;
    let spare_indices = target.workspace(count as usize * DType::I64.size())?;
    let mut spare = [target.memory(spare_values.address)?, target.memory(spare_indices.address)?];
    let mut result = [target.memory(values)?, target.memory(indices)?];
    // Each merge swaps the two pairs of buffers; the last must write into the outputs.
    if merges.clone().count() % 2 == 1 {
        std::mem::swap(&mut spare, &mut result);
    }
    let blocks = div_ceil(length, cut.block);
    let ([values, indices], input) = (result, target.tensor(&rows.input)?);
    if cut.group > 0 {
        let args = entry::SortGroupBlocks {
            values,
            indices,
            input,
            dtype0,
            length,
            blocks,
            rows: rows.count(),
            width: cut.block as i32,
            descending,
        };
        // Groups take as many rows as fill their tile.
        let groups = div_ceil(rows.count() * blocks, cut.chunk / cut.block);
        cut.launch(target, &program, entry::SORT_GROUP_BLOCKS, &args, groups)?;
    } else {
        let args = entry::SortBlocks { values, indices, input, dtype0, length, blocks, descending };
        cut.launch(target, &program, entry::SORT_BLOCKS, &args, rows.count() * blocks)?;
    }
    for run in merges {
        std::mem::swap(&mut spare, &mut result);
        let chunk = run.min(cut.chunk);
        let chunks = div_ceil(length, chunk);
        let ([values, indices], [input, in_indices]) = (result, spare);
        let args =
            entry::SortMerge { values, indices, input, in_indices, dtype0, length, run, chunk, chunks, descending };
        cut.launch(target, &program, entry::SORT_MERGE, &args, rows.count() * chunks)?;
    }
    Ok(())
}

/// Block and chunk sizes of a row.
struct MergeSizes {
    /// Elements of the runs that merging begins with.
    block: i64,
    /// Elements that a work-item merges, or on GPUs a group, which also sorts as many at first.
    chunk: i64,
    /// Items of a group; 0 if each item works alone.
    group: usize,
}

impl MergeSizes {
    fn of(target: &Target, rows: &SortRows<'_>) -> Self {
        if target.is_cpu() {
            return Self { block: BLOCK, chunk: MERGED, group: 0 };
        }
        let group = Geometry::of(target, rows.input.class()).group;
        let chunk = group as i64 * TAKEN;
        let block = (rows.length.max(TAKEN) as u64).next_power_of_two() as i64;
        Self { block: block.min(chunk), chunk, group }
    }

    /// Launches a kernel over `tasks` items or groups.
    fn launch<A: Arguments>(
        &self,
        target: &Target,
        program: &CachedProgram,
        kernel: EntryPoint<A>,
        args: &A,
        tasks: i64,
    ) -> Result<()> {
        if self.group == 0 {
            return target.launch(program, kernel, args, &[tasks as usize], None);
        }
        target.launch(program, kernel, args, &[tasks as usize * self.group], Some(&[self.group]))
    }
}
