//! Max pooling of windows at random positions.

use crate::error::Result;
use crate::kernels::structs::fractional_max_pool::Fractional;
use crate::kernels::{entry, Family};
use crate::ops::core::geometry::Geometry;
use crate::ops::core::tier::tier;
use crate::ops::{Target, Tensor};

#[cxx::bridge(namespace = "torch_opencl::bridge")]
mod ffi {
    unsafe extern "C++" {
        include!("torch_opencl/rust/abi.rs.h");
        type Tensor<'a> = crate::abi::Tensor<'a>;
    }

    extern "Rust" {
        fn fractional_max_pool(
            output: &Tensor,
            indices: &Tensor,
            input: &Tensor,
            random_samples: &Tensor,
            kernel_size: &[i64],
        ) -> Result<()>;
    }
}

/// The last three of some sizes, with leading ones if there are fewer.
fn volume(sizes: &[i64]) -> [i64; 3] {
    let mut last = sizes.iter().rev();
    let mut next = || last.next().copied().unwrap_or(1);
    let (width, height, depth) = (next(), next(), next());
    [depth, height, width]
}

/// Pools [planes, ..., height, width] by windows of `kernel_size`, of two dimensions or three. All tensors are
/// contiguous; `random_samples` [planes, dimensions] has a row for each plane, or more.
///
/// # Errors
/// Errors reported by the driver.
pub fn fractional_max_pool(
    output: &Tensor<'_>,
    indices: &Tensor<'_>,
    input: &Tensor<'_>,
    random_samples: &Tensor<'_>,
    kernel_size: &[i64],
) -> Result<()> {
    let count = output.numel();
    if count == 0 {
        return Ok(());
    }
    let (target, class) = (Target::of(output.address)?, input.class());
    let geometry = Geometry::of(&target, class);
    let spec = geometry.define(tier(count, &[("SPEC_DTYPE0", input.dtype.code())]));
    let program = target.program(Family::FractionalMaxPool, class, &spec)?;
    let spatial = |tensor: &Tensor<'_>| volume(tensor.sizes.get(1..).unwrap_or_default());
    let args = entry::FractionalMaxPool {
        out: target.tensor(output)?,
        indices: target.tensor(indices)?,
        input: target.tensor(input)?,
        samples: target.tensor(random_samples)?,
        dtype0: input.dtype,
        p: Fractional { input: spatial(input), output: spatial(output), kernel_size: volume(kernel_size) },
        n: count,
        spatial: kernel_size.len() as i32,
    };
    target.launch(&program, entry::FRACTIONAL_MAX_POOL, &args, &geometry.items_for(count), None)
}
