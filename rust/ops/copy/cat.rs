//! Copies of several tensors into one in few launches.

use crate::error::Result;
use crate::kernels::structs::cat::CatRows;
use crate::kernels::{entry, Class, Family, Spec};
use crate::ops::core::forms::Form;
use crate::ops::core::geometry::Geometry;
use crate::ops::core::multi_tensor::MultiTensorBatch;
use crate::ops::core::space::{coalesce, dims, div_ceil};
use crate::ops::{Target, Tensor, TensorList};

#[cxx::bridge(namespace = "torch_opencl::bridge")]
mod ffi {
    /// A part of a concatenation.
    #[derive(Clone, Copy, Debug)]
    pub struct CatPart<'a> {
        /// A view of the result, with the sizes of `from`.
        pub to: Tensor<'a>,
        /// The source tensor.
        pub from: Tensor<'a>,
    }

    unsafe extern "C++" {
        include!("torch_opencl/rust/abi.rs.h");
        type Tensor<'a> = crate::abi::Tensor<'a>;
    }

    extern "Rust" {
        fn cat(result: &Tensor, parts: &[CatPart]) -> Result<bool>;
    }
}

pub use ffi::CatPart;

/// Parts of a launch, whose arguments must fit the 1024 bytes that every device supports; as in `cat.cl`.
const PARTS: usize = 16;
type Parts = MultiTensorBatch<PARTS, 1>;
/// Bytes of the widest word. CPUs move vectors of words.
const CPU_WORD: i64 = 8;
const GPU_WORD: i64 = 16;
/// Minimum number of bytes that a CPU's work-item copies.
const CPU_CHUNK: i64 = 4096;
/// Maximum number of words that an item of a GPU copies.
const GPU_WORDS: i64 = 16;

/// Rows of adjacent bytes, in memory of the result and of a part.
struct Rows {
    run: i64,
    strides: [i64; 2],
    bytes: i64,
}

impl Rows {
    /// `None` if rows are not adjacent bytes in both, or lie along several dimensions. The shortest row is one element.
    fn of(part: &CatPart<'_>) -> Option<Self> {
        let width = part.from.dtype.size() as i64;
        let mut space = dims([&part.to, &part.from]);
        space.sort_by_key(|dim| dim.strides[0]);
        let (run, strides, rows) = match coalesce(space).as_slice() {
            [] => (width, [0, 0], 1),
            [inner] if inner.strides == [width; 2] => (inner.size * width, [0, 0], 1),
            [elements] => (width, elements.strides, elements.size),
            [inner, outer] if inner.strides == [width; 2] => (inner.size * width, outer.strides, outer.size),
            _ => return None,
        };
        let fits = strides.iter().all(|stride| *stride >= 0) && i32::try_from(run * rows).is_ok();
        fits.then_some(Self { run, strides, bytes: run * rows })
    }
}

/// The generic programs.
pub(in crate::ops) fn forms(target: &Target) -> Vec<Form> {
    let widths = [1, 2, 4, 8, 16].into_iter().filter(|width| *width <= widest(target));
    widths.map(|width| (Class::Integer, spec(target, width))).collect()
}

fn spec(target: &Target, width: i64) -> Spec {
    let group = Geometry::of(target, Class::Integer).group;
    Parts::define(Spec::generic()).define("LSIZE", group as i64).define("WIDTH", width)
}

fn widest(target: &Target) -> i64 {
    if target.is_cpu() {
        CPU_WORD
    } else {
        GPU_WORD
    }
}

/// Copies parts of one dtype to their places in `result`. Returns false, without doing anything, if a launch for each
/// part is better: the parts are not such rows, or so large that they are written past the caches.
///
/// # Errors
/// Errors reported by the driver.
pub fn cat(result: &Tensor<'_>, parts: &[CatPart<'_>]) -> Result<bool> {
    let target = Target::of(result.address)?;
    let bytes = result.numel() * result.dtype.size() as i64;
    let Some(rows) = parts.iter().map(Rows::of).collect::<Option<Vec<_>>>() else { return Ok(false) };
    if target.writes_non_temporal(bytes.max(0) as usize) {
        return Ok(false);
    }
    let dst = target.tensor(result)?;
    let mut alignment = dst.offset as i64 | widest(&target);
    for (part, rows) in parts.iter().zip(&rows) {
        let from = target.tensor(&part.from)?;
        alignment |= from.offset as i64 | offset_of(result, part) | rows.run | rows.strides[0] | rows.strides[1];
    }
    // The largest power of two that divides all of them.
    let width = 1 << alignment.trailing_zeros();

    let geometry = Geometry::of(&target, Class::Integer);
    let share = div_ceil(bytes / width, geometry.groups as i64);
    let group = geometry.group as i64;
    let chunk = if target.is_cpu() { share.max(CPU_CHUNK / width) } else { share.clamp(group, group * GPU_WORDS) };
    let program = target.program(Family::Cat, Class::Integer, &spec(&target, width))?;
    let addresses: Vec<usize> = parts.iter().map(|part| part.from.address).collect();
    let list = TensorList { addresses: &addresses, dtype: result.dtype, is_one: false };
    let counts = rows.iter().map(|rows| rows.bytes / width).enumerate();
    Parts::for_each(&target, &[list], counts, |batch| {
        let mut table = CatRows { to: [0; PARTS], to_stride: [0; PARTS], from_stride: [0; PARTS], run: [1; PARTS] };
        let slots = table.to.iter_mut().zip(&mut table.to_stride).zip(&mut table.from_stride).zip(&mut table.run);
        for (tensor, (((to, to_stride), from_stride), run)) in batch.tensors.iter().zip(slots) {
            let (Some(part), Some(rows)) = (parts.get(tensor.index), rows.get(tensor.index)) else { continue };
            *to = offset_of(result, part);
            [*to_stride, *from_stride] = rows.strides;
            *run = (rows.run / width) as i32;
        }
        let locations = batch.table(chunk);
        let args = entry::Cat { dst, rows: table, multi_tensor: batch.arguments(&locations) };
        let global = [batch.groups(chunk) * geometry.group];
        target.launch_elements(&program, entry::CAT, &args, batch.elements(), &global, Some(&[geometry.group]))
    })?;
    Ok(true)
}

/// Bytes from the start of the result to the start of a part in it.
fn offset_of(result: &Tensor<'_>, part: &CatPart<'_>) -> i64 {
    part.to.address.wrapping_sub(result.address) as i64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernels::DType;

    fn tensor<'a>(sizes: &'a [i64], strides: &'a [i64]) -> Tensor<'a> {
        Tensor { address: 0, dtype: DType::F32, sizes, strides }
    }

    #[test]
    fn columns_of_a_matrix_are_rows_of_adjacent_elements() {
        let sizes = [5, 3];
        let part = CatPart { to: tensor(&sizes, &[3, 1]), from: tensor(&sizes, &[8, 1]) };
        let rows = Rows::of(&part).map(|rows| (rows.run, rows.strides, rows.bytes));
        assert_eq!(rows, Some((12, [12, 32], 60)));
    }

    #[test]
    fn elements_of_one_stride_are_rows_of_one() {
        let sizes = [5, 3];
        let part = CatPart { to: tensor(&sizes, &[6, 2]), from: tensor(&sizes, &[3, 1]) };
        let rows = Rows::of(&part).map(|rows| (rows.run, rows.strides, rows.bytes));
        assert_eq!(rows, Some((4, [8, 4], 60)));
    }

    #[test]
    fn transposed_parts_have_no_such_rows() {
        let sizes = [5, 3];
        let part = CatPart { to: tensor(&sizes, &[3, 1]), from: tensor(&sizes, &[1, 5]) };
        assert!(Rows::of(&part).is_none());
    }
}
