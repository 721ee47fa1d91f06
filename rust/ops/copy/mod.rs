//! Partial copies: triangles.

pub mod cat;
pub mod transpose;

use crate::error::Result;
use crate::kernels::{entry, Class, Family, Spec, MAX_DIMS};
use crate::ops::core::space::{layout, span, Dim};
use crate::ops::core::target::ITEM_GROUP;
use crate::ops::{Target, Tensor};

#[cxx::bridge(namespace = "torch_opencl::bridge")]
mod ffi {
    unsafe extern "C++" {
        include!("torch_opencl/rust/abi.rs.h");
        type Tensor<'a> = crate::abi::Tensor<'a>;
    }

    extern "Rust" {
        fn triangle(dst: &Tensor, src: &Tensor, diagonal: i64, upper: bool) -> Result<()>;
    }
}

/// Copies the upper or lower triangle of a batch of matrices and zeroes the rest; `dst` may be `src`.
///
/// # Errors
/// Errors reported by the driver.
pub fn triangle(dst: &Tensor<'_>, src: &Tensor<'_>, diagonal: i64, upper: bool) -> Result<()> {
    if src.numel() == 0 {
        return Ok(());
    }
    if src.ndim() > MAX_DIMS {
        return (0..src.size(0)).try_for_each(|matrix| triangle(&dst.at(matrix), &src.at(matrix), diagonal, upper));
    }
    let width = src.dtype.size() as i64;
    let space: Vec<Dim<2>> = (0..src.ndim())
        .rev()
        .map(|dim| Dim { size: src.size(dim), strides: [dst.stride(dim) * width, src.stride(dim) * width] })
        .collect();
    let rows = span(&space) / src.sizes.last().map_or(1, |columns| *columns as usize);
    let target = Target::of(dst.address)?;
    let shares = if target.is_cpu() { 1 } else { ITEM_GROUP };
    let program = target.program(Family::Copy, Class::Integer, &Spec::generic())?;
    let args = entry::Triangle {
        dst: target.tensor(dst)?,
        src: target.tensor(src)?,
        layout: layout(&space)?,
        width: width as i32,
        diagonal,
        upper: i32::from(upper),
        shares: shares as i32,
    };
    target.launch(&program, entry::TRIANGLE, &args, &[rows * shares], None)
}
