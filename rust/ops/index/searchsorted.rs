//! Searches for values among others: their insertion index in sorted values, and whether they are present.

use crate::error::Result;
use crate::kernels::{entry, Family};
use crate::ops::core::geometry::Geometry;
use crate::ops::core::space::div_ceil;
use crate::ops::core::tier::tier;
use crate::ops::{Target, Tensor};

#[cxx::bridge(namespace = "torch_opencl::bridge")]
mod ffi {
    unsafe extern "C++" {
        include!("torch_opencl/rust/abi.rs.h");
        type Tensor<'a> = crate::abi::Tensor<'a>;
    }

    extern "Rust" {
        fn searchsorted(out: &Tensor, values: &Tensor, boundaries: &Tensor, sorter: &Tensor, right: bool)
            -> Result<()>;
        fn is_among(out: &Tensor, values: &Tensor, others: &Tensor, inverted: bool) -> Result<()>;
    }
}

/// Writes the insertion index of each value among ascending boundaries, along the last dimension. All tensors are
/// contiguous. Without a sorter, the boundaries are in order. All values may share one row of boundaries.
///
/// # Errors
/// Errors reported by the driver.
pub fn searchsorted(
    out: &Tensor<'_>,
    values: &Tensor<'_>,
    boundaries: &Tensor<'_>,
    sorter: &Tensor<'_>,
    right: bool,
) -> Result<()> {
    let count = values.numel();
    if count == 0 {
        return Ok(());
    }
    let target = Target::of(out.address)?;
    let length = boundaries.sizes.last().copied().unwrap_or(1);
    let shared = boundaries.ndim() <= 1;
    let per_row = if shared { count } else { values.sizes.last().copied().unwrap_or(1) };
    let geometry = Geometry::of(&target, values.class());
    let spec = geometry.define(tier(count, &[("SPEC_DTYPE0", values.dtype.code())]));
    let program = target.program(Family::Index, values.class(), &spec)?;
    let args = entry::Searchsorted {
        out: target.tensor(out)?,
        values: target.tensor(values)?,
        boundaries: target.tensor(boundaries)?,
        sorter: target.tensor(sorter)?,
        out_dtype: out.dtype,
        dtype0: values.dtype,
        length,
        count,
        per_row,
        row_step: if shared { 0 } else { length },
        right: i32::from(right),
    };
    // `SEARCHES` of the kernel.
    let at_once = if target.is_cpu() { geometry.lanes as i64 } else { 1 };
    target.launch(&program, entry::SEARCHSORTED, &args, &geometry.items_for(div_ceil(count, at_once)), None)
}

/// Writes bools to `out`: which values are among `others`, which should be few, or with `inverted` which are not. All
/// tensors are contiguous.
///
/// # Errors
/// Errors reported by the driver.
pub fn is_among(out: &Tensor<'_>, values: &Tensor<'_>, others: &Tensor<'_>, inverted: bool) -> Result<()> {
    let n = values.numel();
    if n == 0 {
        return Ok(());
    }
    let target = Target::of(out.address)?;
    let class = values.class();
    let geometry = Geometry::of(&target, class);
    let spec = geometry.define(tier(n, &[("SPEC_DTYPE0", values.dtype.code())]));
    let program = target.program(Family::Index, class, &spec)?;
    let args = entry::IsAmong {
        out: target.tensor(out)?,
        values: target.tensor(values)?,
        others: target.tensor(others)?,
        dtype0: values.dtype,
        n,
        count: others.numel(),
        inverted: i32::from(inverted),
    };
    let vectors = div_ceil(n, geometry.lanes as i64);
    target.launch(&program, entry::IS_AMONG, &args, &geometry.items_for(vectors), None)
}
