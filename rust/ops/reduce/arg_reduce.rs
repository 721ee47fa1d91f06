//! Reductions that return indices: argmax, argmin, maximum and minimum along a dimension.

use super::reduction::{Reduction, Traversal};
use crate::error::Result;
use crate::kernels::{entry, Class, DType, Family};
use crate::ops::core::geometry::Geometry;
use crate::ops::core::space::{layout, Dim};
use crate::ops::core::tier::tier;
use crate::ops::core::vectors::Vectors;
use crate::ops::{Target, Tensor};

#[cxx::bridge(namespace = "torch_opencl::bridge")]
mod ffi {
    unsafe extern "C++" {
        include!("torch_opencl/rust/abi.rs.h");
        type Tensor<'a> = crate::abi::Tensor<'a>;
    }

    extern "Rust" {
        fn arg_reduce(values: &Tensor, indices: &Tensor, input: &Tensor, dim: usize, largest: bool) -> Result<()>;
    }
}

/// Finds the largest or smallest elements of `input` along `dim` and their indices. `values` (may be absent) and
/// `indices` (int64) have size 1 along `dim`.
///
/// # Errors
/// Errors reported by the driver.
pub fn arg_reduce(
    values: &Tensor<'_>,
    indices: &Tensor<'_>,
    input: &Tensor<'_>,
    dim: usize,
    largest: bool,
) -> Result<()> {
    let space = space(values, indices, input, dim);
    let (outputs, length) = (space.outputs(), input.size(dim));
    if outputs == 0 || length == 0 {
        return Ok(());
    }
    let target = Target::of(indices.address)?;
    let class = input.class();
    let geometry = Geometry::of(&target, class);
    let order = order(&space, &geometry, class);
    let geometry = space.geometry(order, geometry, input.dtype);
    let splits = space.splits(order, &geometry);
    let largest = i32::from(largest);
    let constants = [("SPEC_DTYPE0", input.dtype.code()), ("SPEC_LARGEST", largest)];
    let vectors = match order {
        Traversal::Rows => Vectors::of_rows(geometry, length / splits, input.dtype),
        Traversal::Columns => Vectors::of(geometry),
    };
    let vectors = space.vectors(order, vectors, splits, (input.address, input.dtype));
    let spec = tier(input.numel(), constants.into_iter().chain(vectors.constants()));
    let program = target.program(Family::ArgReduce, class, &geometry.define(spec))?;

    let launch = |kept: &[Dim<3>], values: usize, dtype: DType, indices: usize| {
        let extremes = entry::ExtremesArguments {
            input: target.tensor(input)?,
            dtype0: input.dtype,
            values: target.memory(values)?,
            values_dtype: dtype,
            indices: target.memory(indices)?,
            kept: layout(kept)?,
            outputs,
            length,
            stride: input.stride(dim) * input.dtype.size() as i64,
            splits,
            largest,
        };
        match order {
            Traversal::Rows => {
                let (global, local) = geometry.groups_for(outputs * splits);
                target.launch(&program, entry::ARG_ROWS, &entry::ArgRows { extremes }, &global, Some(&local))
            }
            Traversal::Columns => {
                let columns = space.columns(space.tasks(order, &geometry) * splits, length / splits);
                let args = |parts| entry::ArgColumns { extremes, parts };
                geometry.launch_columns(&target, &program, entry::ARG_COLUMNS, args, columns)
            }
        }
    };
    if splits == 1 {
        return launch(&space.kept, values.address, values.dtype, indices.address);
    }
    let (size, index_size) = (class.size() as i64, DType::I64.size() as i64);
    let best = target.workspace((splits * outputs * size) as usize)?;
    let best_indices = target.workspace((splits * outputs * index_size) as usize)?;
    launch(&space.split(splits, [size, index_size, 0]), best.address, class.storage(), best_indices.address)?;
    let args = entry::ArgMerge {
        best: target.memory(best.address)?,
        best_dtype: class.storage(),
        best_indices: target.memory(best_indices.address)?,
        values: target.tensor(values)?,
        values_dtype: values.dtype,
        indices: target.tensor(indices)?,
        kept: layout(&space.kept)?,
        outputs,
        splits,
        largest,
        parts: 1,
    };
    let args = |parts| entry::ArgMerge { parts, ..args };
    geometry.launch_join(&target, &program, entry::ARG_MERGE, args, (outputs, splits))
}

fn space(values: &Tensor<'_>, indices: &Tensor<'_>, input: &Tensor<'_>, dim: usize) -> Reduction<3> {
    let bytes = |tensor: &Tensor<'_>, d: usize| tensor.stride(d) * tensor.dtype.size() as i64;
    let output = |tensor: &Tensor<'_>| -> Vec<i64> {
        (0..input.ndim()).map(|d| if d == dim { 0 } else { bytes(tensor, d) }).collect()
    };
    let input_strides: Vec<i64> = (0..input.ndim()).map(|d| bytes(input, d)).collect();
    // The indices come first: they are always present, so their stride 0 marks the reduced dimension.
    let mut space = Reduction::new(input.sizes, [&output(indices), &output(values), &input_strides]);
    for kept in &mut space.kept {
        kept.strides.swap(0, 1);
    }
    space
}

/// On CPUs, rows of at most this many elements are compared with one row per lane: comparing the lanes of a vector, and
/// searching for the winner's index, takes longer than gathering. 16384 rows of 16 take 1.0 ms (PoCL, 2 cores).
const SHORT_ROW: i64 = 32;

/// The kernel that reads in the order of memory, unless the indices do not fit its lanes.
fn order(space: &Reduction<3>, geometry: &Geometry, class: Class) -> Traversal {
    if class == Class::Float && space.length() > i64::from(i32::MAX) {
        return Traversal::Rows;
    }
    let rows = space.kept.first().map_or(0, |dim| dim.size);
    if geometry.group == 1 && space.length() <= SHORT_ROW && rows >= geometry.lanes as i64 {
        return Traversal::Columns;
    }
    space.order(geometry)
}
