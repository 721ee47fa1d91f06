//! Variance, standard deviation and mean.

use super::reduction::{Order, Reduction};
use crate::error::Result;
use crate::kernels::entry::{self, Value};
use crate::kernels::{DType, Family};
use crate::ops::core::geometry::Geometry;
use crate::ops::core::space::{layout, Dim};
use crate::ops::core::tier::tier;
use crate::ops::{Operand, Target};

#[cxx::bridge(namespace = "torch_opencl::bridge")]
mod ffi {
    /// Parameters of a variance.
    #[derive(Clone, Copy, Debug)]
    pub struct Spread {
        /// Degrees of freedom taken from the count: 1 for the unbiased variance.
        pub correction: f64,
        /// The standard deviation in place of the variance.
        pub take_root: bool,
    }

    unsafe extern "C++" {
        include!("torch_opencl/rust/abi.rs.h");
        type Operand<'a> = crate::abi::Operand<'a>;
    }

    extern "Rust" {
        fn variance(spread: Spread, shape: &[i64], variance: &Operand, mean: &Operand, input: &Operand) -> Result<()>;
    }
}

pub use ffi::Spread;

/// Finish of the squared deviations: values of `var_mean.cl`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(i32)]
enum Finish {
    Squares = 0,
    Variance = 1,
    Deviation = 2,
}

/// Variance (or deviation) of `input`, and its mean unless the operand for it has address 0, over `shape` (innermost dimension
/// first): along the dimensions where `variance` has stride 0.
///
/// # Errors
/// As the driver reports.
pub fn variance(
    spread: Spread,
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
    let geometry = order.geometry(geometry);
    let splits = space.splits(order, &geometry);
    let spec = geometry.define(tier(outputs * length, &[("SPEC_DTYPE0", input.dtype.code())]));
    let program = target.program(Family::Moments, class, &spec)?;
    let finish = if spread.take_root { Finish::Deviation } else { Finish::Variance };
    let correction = Value::real(class, spread.correction);

    let search = |kept: &[Dim<3>], squares: (usize, DType), means: (usize, DType), finish: Finish| {
        let moments = entry::MomentsArguments {
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
            Order::Rows => {
                let args = entry::MomentsRows { moments, run_items: geometry.run_items(space.run()) };
                let (global, local) = geometry.groups_for(outputs * splits);
                target.launch(&program, entry::MOMENTS_ROWS, &args, &global, Some(&local))
            }
            Order::Columns => {
                let columns = space.columns(space.tasks(order, &geometry) * splits, length / splits);
                let args = |parts| entry::MomentsColumns { moments, parts };
                geometry.launch_columns(&target, &program, entry::MOMENTS_COLUMNS, args, columns)
            }
        }
    };
    if splits == 1 {
        return search(&space.kept, (variance.address, variance.dtype), (mean.address, mean.dtype), finish);
    }
    let size = class.size() as i64;
    let bytes = (splits * outputs * size) as usize;
    let (squares, means) = (target.workspace(bytes)?, target.workspace(bytes)?);
    let storage = class.storage();
    search(
        &space.split(splits, [size, size, 0]),
        (squares.address, storage),
        (means.address, storage),
        Finish::Squares,
    )?;
    let args = entry::MomentsMerge {
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
    let args = |parts| entry::MomentsMerge { parts, ..args };
    geometry.launch_join(&target, &program, entry::MOMENTS_MERGE, args, (outputs, splits))
}
