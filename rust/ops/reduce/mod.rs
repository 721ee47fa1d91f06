//! Reductions to one value: sums, products, extremes, norms, all and any.

pub mod arg_reduce;
pub mod reduction;
pub mod var_mean;

use self::reduction::{Reduction, Traversal};
use crate::error::{Error, Result};
use crate::kernels::entry::{self, Value};
use crate::kernels::{Class, DType, Family};
use crate::ops::core::geometry::Geometry;
use crate::ops::core::space::{div_ceil, layout};
use crate::ops::core::tier::{tier, with_rare};
use crate::ops::core::vectors::Vectors;
use crate::ops::{Operand, Target};

#[cxx::bridge(namespace = "torch_opencl::bridge")]
mod ffi {
    /// The kind of reduction.
    #[derive(Debug)]
    #[repr(i32)]
    pub enum ReduceOp {
        /// Sum.
        Sum,
        /// Sum without NaNs.
        NanSum,
        /// Product.
        Product,
        /// Arithmetic mean.
        Mean,
        /// Smallest; NaN wins.
        Minimum,
        /// Largest; NaN wins.
        Maximum,
        /// True if all are non-zero.
        All,
        /// True if any is non-zero.
        Any,
        /// Number of non-zero elements: the "0-norm".
        NonZeros,
        /// Sum of magnitudes.
        NormOne,
        /// Root of the sum of squares.
        NormTwo,
        /// Largest magnitude.
        NormMaximum,
        /// Smallest magnitude.
        NormMinimum,
        /// `sum(|x|^p)^(1/p)`.
        NormPower,
        /// `sum(|x|^p)`.
        PowerSum,
        /// Exclusive or of the bits of integers.
        Xor,
    }

    unsafe extern "C++" {
        include!("torch_opencl/rust/abi.rs.h");
        type Operand<'a> = crate::abi::Operand<'a>;
    }

    extern "Rust" {
        fn reduce(op: ReduceOp, power: f64, shape: &[i64], output: &Operand, input: &Operand) -> Result<()>;
    }
}

pub use ffi::ReduceOp;

/// Up to this many vectors in a row, folding the last one to a value takes more time than reading all.
const LONGEST_SHORT_ROW: i64 = 32;

/// Map of an element; `Fold` is the step for two values, `Finish` for the total. Values of `fold.cl`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Map {
    Copy = 0,
    NanToZero = 1,
    NonZero = 2,
    Magnitude = 3,
    Square = 4,
    Power = 5,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fold {
    Add = 0,
    Multiply = 1,
    Minimum = 2,
    Maximum = 3,
    Xor = 4,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Finish {
    Nothing = 0,
    Divide = 1,
    SquareRoot = 2,
    Root = 3,
}

impl ReduceOp {
    fn steps(self) -> Result<(Map, Fold, Finish)> {
        Ok(match self {
            Self::Sum => (Map::Copy, Fold::Add, Finish::Nothing),
            Self::NanSum => (Map::NanToZero, Fold::Add, Finish::Nothing),
            Self::Product => (Map::Copy, Fold::Multiply, Finish::Nothing),
            Self::Mean => (Map::Copy, Fold::Add, Finish::Divide),
            Self::Minimum => (Map::Copy, Fold::Minimum, Finish::Nothing),
            Self::Maximum => (Map::Copy, Fold::Maximum, Finish::Nothing),
            Self::All => (Map::NonZero, Fold::Minimum, Finish::Nothing),
            Self::Any => (Map::NonZero, Fold::Maximum, Finish::Nothing),
            Self::NonZeros => (Map::NonZero, Fold::Add, Finish::Nothing),
            Self::NormOne => (Map::Magnitude, Fold::Add, Finish::Nothing),
            Self::NormTwo => (Map::Square, Fold::Add, Finish::SquareRoot),
            Self::NormMaximum => (Map::Magnitude, Fold::Maximum, Finish::Nothing),
            Self::NormMinimum => (Map::Magnitude, Fold::Minimum, Finish::Nothing),
            Self::NormPower => (Map::Power, Fold::Add, Finish::Root),
            Self::PowerSum => (Map::Power, Fold::Add, Finish::Nothing),
            Self::Xor => (Map::Copy, Fold::Xor, Finish::Nothing),
            _ => return Err(Error::Invalid(format!("OpenCL: {} is not a reduction", self.repr))),
        })
    }
}

/// Reduces `input` to `output`. `shape` is the input's, innermost dimension first; the dimensions where the output has
/// stride 0 are reduced. `power` is the p of a norm.
///
/// # Errors
/// Errors reported by the driver.
pub fn reduce(op: ReduceOp, power: f64, shape: &[i64], output: &Operand<'_>, input: &Operand<'_>) -> Result<()> {
    let space = Reduction::new(shape, [output.strides, input.strides]);
    if space.outputs() == 0 {
        return Ok(());
    }
    let target = Target::of(output.address)?;
    target.converts([output.dtype])?;
    let class = input.dtype.class();
    let geometry = Geometry::of(&target, class);
    let order = space.order(&geometry);
    let splits = space.splits(order, &space.geometry(order, geometry, input.dtype));
    let (map, fold, finish) = op.steps()?;
    let pass = Pass { target, geometry, class, fold, power, count: space.length() };
    let (out, source) = ((output.address, output.dtype), (input.address, input.dtype));
    if splits == 1 {
        return pass.run(&space, 1, order, (map, finish), source, out);
    }
    let size = class.size() as i64;
    let totals = target.workspace((splits * space.outputs() * size) as usize)?;
    let partial = (totals.address, class.storage());
    let first = Reduction { kept: space.split(splits, [size, 0]), reduced: space.reduced.clone() };
    pass.run(&first, splits, order, (map, Finish::Nothing), source, partial)?;
    let second = space.join(splits, class);
    pass.run(&second, 1, second.order(&geometry), (Map::Copy, finish), partial, out)
}

/// State shared by both passes of a reduction.
struct Pass {
    target: Target,
    geometry: Geometry,
    class: Class,
    fold: Fold,
    power: f64,
    /// Elements of a result, over both passes.
    count: i64,
}

impl Pass {
    fn run(
        &self,
        space: &Reduction<2>,
        splits: i64,
        order: Traversal,
        (map, finish): (Map, Finish),
        (input, input_dtype): (usize, DType),
        (output, output_dtype): (usize, DType),
    ) -> Result<()> {
        let (outputs, length) = (space.outputs() / splits, space.length());
        let geometry = space.geometry(order, self.geometry, input_dtype);
        let mut vectors = match order {
            Traversal::Rows => Vectors::of_rows(geometry, space.run(), input_dtype),
            Traversal::Columns => Vectors::of(geometry),
        };
        vectors = space.vectors(order, vectors, splits, (input, input_dtype));
        if order == Traversal::Columns {
            let strides = space.kept.iter().map(|dim| dim.strides[0]);
            let steps = strides.clone().take(1).map(|stride| stride * geometry.lanes as i64).chain(strides.skip(1));
            vectors = vectors.with(output, output_dtype, steps);
        }
        let constants =
            [("SPEC_MAP", map as i32), ("SPEC_FOLD", self.fold as i32), ("SPEC_DTYPE0", input_dtype.code())];
        // A power takes as long to compile as all other code, and is rarely needed.
        let has_power = map == Map::Power || finish == Finish::Root;
        let spec = with_rare(tier(outputs * length, constants.into_iter().chain(vectors.constants())), output_dtype);
        let spec = geometry.define(spec).define("HAS_POWER", i64::from(has_power));
        let program = self.target.program(Family::Reduce, self.class, &spec)?;
        let reduction = entry::ReductionArguments {
            input: self.target.memory(input)?,
            dtype0: input_dtype,
            output: self.target.memory(output)?,
            output_dtype,
            outputs,
            length,
            map: map as i32,
            fold: self.fold as i32,
            finish: finish as i32,
            power: Value::real(self.class, self.power),
            count: self.count,
        };
        if let Some([row_stride, output_stride]) = self.short_rows(space, splits, order, input_dtype) {
            let args = entry::ReduceShortRows { reduction, row_stride, output_stride };
            let tasks = div_ceil(outputs, self.geometry.lanes as i64);
            let items = self.geometry.items_for(tasks);
            return self.target.launch(&program, entry::REDUCE_SHORT_ROWS, &args, &items, None);
        }
        let (kept, reduced) = (layout(&space.kept)?, layout(&space.reduced)?);
        match order {
            Traversal::Rows => {
                let run_items = geometry.run_items(space.run());
                let args = entry::ReduceRows { reduction, kept, reduced, splits, run_items };
                let (global, local) = geometry.groups_for(outputs * splits);
                self.target.launch(&program, entry::REDUCE_ROWS, &args, &global, Some(&local))
            }
            Traversal::Columns => {
                let columns = space.columns(space.tasks(order, &geometry), length / splits);
                let args = |parts| entry::ReduceColumns { reduction, kept, reduced, splits, parts };
                geometry.launch_columns(&self.target, &program, entry::REDUCE_COLUMNS, args, columns)
            }
        }
    }

    /// Strides of input and output from row to row, if `reduce_short_rows` applies: on CPUs, for dense rows of at most
    /// a few vectors. On other devices, items share rows.
    fn short_rows(&self, space: &Reduction<2>, splits: i64, order: Traversal, input: DType) -> Option<[i64; 2]> {
        let ([kept], [reduced]) = (space.kept.as_slice(), space.reduced.as_slice()) else { return None };
        let lanes = self.geometry.lanes as i64;
        let short = (2..=LONGEST_SHORT_ROW * lanes).contains(&reduced.size) && kept.size >= lanes;
        let dense = reduced.strides == [input.size() as i64];
        let serves = short && dense && lanes > 1 && self.geometry.group == 1 && splits == 1 && order == Traversal::Rows;
        let [output, input] = kept.strides;
        serves.then_some([input, output])
    }
}
