//! Stable sort along the last dimension.

use super::space::div_ceil;
use super::tier::tier;
use super::{Target, Tensor};
use crate::cl::Arg;
use crate::error::Result;
use crate::kernels::{DType, Family};

/// The `BLOCK` of `cl/sort.cl`.
const BLOCK: i64 = 32;
/// Most elements that a work-item merges; each starts with two bisections, a GPU wants many of them.
const MERGE_ON_CPU: i64 = 1024;
const MERGE_ELSEWHERE: i64 = 64;

/// Sorts the rows of `input` into `values`; `indices` (64-bit) tells where each came from. All are contiguous and of one
/// shape.
///
/// # Errors
/// As the driver reports.
pub fn sort(values: &Tensor<'_>, indices: &Tensor<'_>, input: &Tensor<'_>, descending: bool) -> Result<()> {
    let count = input.numel();
    if count == 0 {
        return Ok(());
    }
    let length = input.sizes.last().copied().unwrap_or(1);
    let rows = count / length;
    let target = Target::of(values.address)?;
    let spec = tier(count, &[("SPEC_DTYPE0", input.dtype.code())]);
    let program = target.program(Family::Sort, input.class(), &spec)?;
    let dtype = Arg::Int(input.dtype.code());
    let order = Arg::Int(i32::from(descending));

    let merges = (0..).map(|level| BLOCK << level).take_while(|run| *run < length);
    let spare_values = target.workspace(count as usize * input.dtype.size())?;
    let spare_indices = target.workspace(count as usize * DType::I64.size())?;
    let mut spare = [target.memory(spare_values.address)?, target.memory(spare_indices.address)?];
    let mut result = [target.tensor(values)?, target.tensor(indices)?];
    // Each merge swaps the two pairs of buffers; the last must write into the outputs.
    if merges.clone().count() % 2 == 1 {
        std::mem::swap(&mut spare, &mut result);
    }
    let blocks = div_ceil(length, BLOCK);
    let args = [&result[..], &[target.tensor(input)?, dtype, Arg::Long(length), Arg::Long(blocks), order]].concat();
    target.launch(&program, "sort_blocks", &args, &[(rows * blocks) as usize], None)?;
    for run in merges {
        std::mem::swap(&mut spare, &mut result);
        let chunk = run.min(if target.is_cpu() { MERGE_ON_CPU } else { MERGE_ELSEWHERE });
        let chunks = div_ceil(length, chunk);
        let sizes = [dtype, Arg::Long(length), Arg::Long(run), Arg::Long(chunk), Arg::Long(chunks), order];
        let args = [&result[..], &spare[..], &sizes].concat();
        target.launch(&program, "sort_merge", &args, &[(rows * chunks) as usize], None)?;
    }
    Ok(())
}
