//! Indices of non-zero elements.

use crate::error::Result;
use crate::kernels::entry::{self, Arguments, EntryPoint};
use crate::kernels::{CachedProgram, DType, Family, MAX_DIMS};
use crate::ops::core::space::{div_ceil, layout, span, Dim};
use crate::ops::core::target::ITEM_GROUP;
use crate::ops::core::tier::tier;
use crate::ops::{Target, Tensor};

#[cxx::bridge(namespace = "torch_opencl::bridge")]
mod ffi {
    unsafe extern "C++" {
        include!("torch_opencl/rust/abi.rs.h");
        type Tensor<'a> = crate::abi::Tensor<'a>;
    }

    extern "Rust" {
        fn nonzero_count(input: &Tensor, counts: &Tensor) -> Result<()>;
        fn nonzero_write(input: &Tensor, ends: &Tensor, out: &Tensor) -> Result<()>;
    }
}

/// Counts the non-zero elements in each of `counts.numel()` equal blocks of a contiguous tensor.
///
/// # Errors
/// Errors reported by the driver.
pub fn nonzero_count(input: &Tensor<'_>, counts: &Tensor<'_>) -> Result<()> {
    let (blocks, count) = (counts.numel(), input.numel());
    if blocks == 0 {
        return Ok(());
    }
    let target = Target::of(counts.address)?;
    let spec = tier(count, &[("SPEC_DTYPE0", input.dtype.code())]);
    let program = target.program(Family::Index, input.class(), &spec)?;
    let args = entry::NonzeroCount {
        input: target.tensor(input)?,
        counts: target.tensor(counts)?,
        dtype0: input.dtype,
        n: count,
        block: div_ceil(count, blocks),
    };
    launch_blocks(&target, &program, entry::NONZERO_COUNT, &args, blocks)
}

/// Enqueues a kernel of `nonzero.cl`: on GPUs with a group for each block.
fn launch_blocks<A: Arguments>(
    target: &Target,
    program: &CachedProgram,
    kernel: EntryPoint<A>,
    args: &A,
    blocks: i64,
) -> Result<()> {
    if target.is_cpu() {
        return target.launch(program, kernel, args, &[blocks as usize], None);
    }
    target.launch(program, kernel, args, &[blocks as usize * ITEM_GROUP], Some(&[ITEM_GROUP]))
}

/// Writes the coordinates of the non-zero elements, one row of `out` each; `ends` is the running sum of
/// [`nonzero_count`].
///
/// # Errors
/// Errors reported by the driver.
pub fn nonzero_write(input: &Tensor<'_>, ends: &Tensor<'_>, out: &Tensor<'_>) -> Result<()> {
    let (blocks, count) = (ends.numel(), input.numel());
    if out.numel() == 0 {
        return Ok(());
    }
    let target = Target::of(out.address)?;
    let element = DType::I64.size() as i64;
    let column = out.stride(1) * element;
    let space: Vec<Dim<1>> =
        (0..input.ndim()).rev().map(|dim| Dim { size: input.size(dim), strides: [dim as i64 * column] }).collect();
    let spec = tier(count, &[("SPEC_DTYPE0", input.dtype.code())]);
    let program = target.program(Family::Index, input.class(), &spec)?;
    let mut inner = 1;
    // Dimensions inside a group are skipped as one dimension, whose coordinate is written to the group's first column
    // and then overwritten.
    for group in space.chunks(MAX_DIMS - 1) {
        let skipped = group.iter().take(usize::from(inner > 1)).map(|dim| Dim { size: inner, ..*dim });
        let args = entry::NonzeroWrite {
            input: target.tensor(input)?,
            ends: target.tensor(ends)?,
            out: target.tensor(out)?,
            dtype0: input.dtype,
            n: count,
            block: div_ceil(count, blocks),
            layout: layout(&skipped.chain(group.iter().copied()).collect::<Vec<_>>())?,
            row_stride: out.stride(0) * element,
        };
        launch_blocks(&target, &program, entry::NONZERO_WRITE, &args, blocks)?;
        inner *= span(group) as i64;
    }
    Ok(())
}
