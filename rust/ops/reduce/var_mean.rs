//! Variance, standard deviation and mean.

use super::reduction::{Reduction, Traversal};
use crate::error::Result;
use crate::kernels::entry::{self, Value};
use crate::kernels::{DType, Family};
use crate::ops::core::geometry::Geometry;
use crate::ops::core::space::{layout, Dim};
use crate::ops::core::tier::tier;
use crate::ops::core::vectors::Vectors;
use crate::ops::{Operand, Target};

#[cxx::bridge(namespace = "torch_opencl::bridge")]
mod ffi {
    /// Options of a variance.
    #[derive(Clone, Copy, Debug)]
    pub struct VarMeanOptions {
        /// Degrees of freedom subtracted from the count: 1 for the unbiased variance.
        pub correction: f64,
        /// True for the standard deviation instead of the variance.
        pub take_sqrt: bool,
    }

    unsafe extern "C++" {
        include!("torch_opencl/rust/abi.rs.h");
        type Operand<'a> = crate::abi::Operand<'a>;
    }

    extern "Rust" {
        fn var_mean(
            options: VarMeanOptions,
            shape: &[i64],
            variance: &Operand,
            mean: &Operand,
            input: &Operand,
        ) -> Result<()>;
    }
}

pub use ffi::VarMeanOptions;

/// The result that a kernel computes from the sum of squared deviations; values as in `var_mean.cl`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(i32)]
enum Finish {
    Squares = 0,
    Variance = 1,
    Std = 2,
}

/// Computes the variance (or standard deviation) of `input`, and the mean unless the address of `mean` is 0. `shape` is
/// the input's, innermost dimension first; the dimensions where `variance` has stride 0 are reduced.
///
/// # Errors
/// Errors reported by the driver.
pub fn var_mean(
    options: VarMeanOptions,
    shape: &[i64],
    variance: &Operand<'_>,
    mean: &Operand<'_>,
    input: &Operand<'_>,
) -> Result<()> {
    let space = Reduction::new(shape, [variance.strides, mean.strides, input.strides]);
    let (outputs, length) = (space.outputs(), space.length());
    if outputs == 0 {
        return Ok(());
    }
    let target = Target::of(variance.address)?;
    let class = input.dtype.class();
    let geometry = Geometry::of(&target, class);
    let order = space.order(&geometry);
    let geometry = space.geometry(order, geometry, input.dtype);
    let splits = space.splits(order, &geometry);
    let vectors = space.vectors(order, Vectors::of(geometry), splits, (input.address, input.dtype));
    let constants = [("SPEC_DTYPE0", input.dtype.code())].into_iter().chain(vectors.constants());
    let spec = geometry.define(tier(outputs * length, constants));
    let program = target.program(Family::VarMean, class, &spec)?;
    let finish = if options.take_sqrt { Finish::Std } else { Finish::Variance };
    let correction = Value::real(class, options.correction);

    let launch = |kept: &[Dim<3>], squares: (usize, DType), means: (usize, DType), finish: Finish| {
        let var_mean = entry::VarMeanArguments {
            input: target.memory(input.address)?,
            dtype0: input.dtype,
            variance: target.memory(squares.0)?,
            variance_dtype: squares.1,
            mean: target.memory(means.0)?,
            mean_dtype: means.1,
            kept: layout(kept)?,
            reduced: layout(&space.reduced)?,
            outputs,
            length,
            splits,
            finish: finish as i32,
            correction,
        };
        match order {
            Traversal::Rows => {
                let args = entry::VarMeanRows { var_mean, run_items: geometry.run_items(space.run()) };
                let (global, local) = geometry.groups_for(outputs * splits);
                target.launch(&program, entry::VAR_MEAN_ROWS, &args, &global, Some(&local))
            }
            Traversal::Columns => {
                let columns = space.columns(space.tasks(order, &geometry) * splits, length / splits);
                let args = |parts| entry::VarMeanColumns { var_mean, parts };
                geometry.launch_columns(&target, &program, entry::VAR_MEAN_COLUMNS, args, columns)
            }
        }
    };
    if splits == 1 {
        return launch(&space.kept, (variance.address, variance.dtype), (mean.address, mean.dtype), finish);
    }
    let size = class.size() as i64;
    let bytes = (splits * outputs * size) as usize;
    let (squares, means) = (target.workspace(bytes)?, target.workspace(bytes)?);
    let storage = class.storage();
    launch(
        &space.split(splits, [size, size, 0]),
        (squares.address, storage),
        (means.address, storage),
        Finish::Squares,
    )?;
    let args = entry::VarMeanMerge {
        squares: target.memory(squares.address)?,
        means: target.memory(means.address)?,
        variance: target.memory(variance.address)?,
        variance_dtype: variance.dtype,
        mean: target.memory(mean.address)?,
        mean_dtype: mean.dtype,
        kept: layout(&space.kept)?,
        outputs,
        length,
        splits,
        finish: finish as i32,
        correction,
        parts: 1,
    };
    let args = |parts| entry::VarMeanMerge { parts, ..args };
    geometry.launch_join(&target, &program, entry::VAR_MEAN_MERGE, args, (outputs, splits))
}
