//! Copies that the pointwise family does badly or cannot do: transposed matrices, triangles.

use super::space::{div_ceil, layout, span, Dim};
use super::{Target, Tensor};
use crate::cl::Arg;
use crate::error::{Error, Result};
use crate::kernels::{Class, Family, Spec, MAX_DIMS};

/// The `TILE` of `cl/copy.cl`.
const TILE: usize = 16;

/// Copies a batch of row-major matrices `[batch, rows, columns]` into `dst`, transposed, `[batch, columns, rows]`. The
/// last stride of both is 1.
///
/// # Errors
/// [`Error::Invalid`] for tensors of other than three dimensions.
pub fn transpose(dst: &Tensor<'_>, src: &Tensor<'_>) -> Result<()> {
    let &[batch, rows, columns] = src.sizes else {
        return Err(Error::Invalid(format!("OpenCL: transpose takes a batch of matrices, not {}", src.describe())));
    };
    if src.numel() == 0 {
        return Ok(());
    }
    let kernel = match src.dtype.size() {
        1 => "transpose_1",
        2 => "transpose_2",
        4 => "transpose_4",
        8 => "transpose_8",
        _ => "transpose_16",
    };
    let target = Target::of(dst.address)?;
    let program = target.program(Family::Copy, Class::Integer, &Spec::generic())?;
    let args = [
        target.tensor(dst)?,
        target.tensor(src)?,
        Arg::Long(rows),
        Arg::Long(columns),
        Arg::Long(dst.stride(1)),
        Arg::Long(src.stride(1)),
        Arg::Long(dst.stride(0)),
        Arg::Long(src.stride(0)),
    ];
    let tiles = |size: i64| div_ceil(size, TILE as i64) as usize * TILE;
    target.launch(&program, kernel, &args, &[tiles(columns), tiles(rows), batch as usize], Some(&[TILE, TILE, 1]))
}

/// Copies the upper or lower triangle of a batch of matrices and zeroes the rest; `dst` may be `src`.
///
/// # Errors
/// As the driver reports.
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
    let program = target.program(Family::Copy, Class::Integer, &Spec::generic())?;
    let walk = layout(&space)?;
    let args = [
        target.tensor(dst)?,
        target.tensor(src)?,
        Arg::Bytes(walk.as_bytes()),
        Arg::Int(width as i32),
        Arg::Long(diagonal),
        Arg::Int(i32::from(upper)),
    ];
    target.launch(&program, "triangle", &args, &[rows], None)
}
