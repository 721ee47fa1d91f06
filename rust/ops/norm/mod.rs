//! Layer, root-mean-square and group normalisation of dense tensors, and the code that batch norm (`batch_norm.rs`)
//! shares with them.

pub mod batch_norm;

use crate::error::{Error, Result};
use crate::kernels::entry::{self, Arguments, EntryPoint, Value};
use crate::kernels::{Class, DType, Family};
use crate::ops::core::geometry::{Columns, Geometry};
use crate::ops::core::space::div_ceil;
use crate::ops::core::tier::tier;
use crate::ops::core::vectors::Vectors;
use crate::ops::{Target, Tensor, Workspace};

#[cxx::bridge(namespace = "torch_opencl::bridge")]
mod ffi {
    /// A dense tensor viewed as [outer, channels, inner].
    #[derive(Clone, Copy, Debug)]
    pub struct NormShape {
        /// Samples, times positions if channels are innermost.
        pub outer: i64,
        /// Channels: weight and bias have one value for each.
        pub channels: i64,
        /// Consecutive positions of a channel.
        pub inner: i64,
    }

    /// Rows that layer and group norm normalise separately, and the channels of each.
    #[derive(Clone, Copy, Debug)]
    pub struct NormRows {
        /// Number of rows.
        pub count: i64,
        /// Elements of each row.
        pub length: i64,
        /// Rows of a sample; row r begins with channel `r % groups * (length / inner)`.
        pub groups: i64,
        /// Elements of each channel of a row.
        pub inner: i64,
    }

    /// Weight and bias, or their gradients, each of which may be absent.
    #[derive(Clone, Copy, Debug)]
    pub struct Affine<'a> {
        /// Weight of each channel.
        pub weight: Tensor<'a>,
        /// Bias of each channel.
        pub bias: Tensor<'a>,
    }

    /// Mean and reciprocal standard deviation.
    #[derive(Clone, Copy, Debug)]
    pub struct Statistics<'a> {
        /// Mean; absent for rows that are not centred, as in root-mean-square norm.
        pub mean: Tensor<'a>,
        /// `1 / sqrt(variance + eps)`.
        pub rstd: Tensor<'a>,
    }

    unsafe extern "C++" {
        include!("torch_opencl/rust/abi.rs.h");
        type Tensor<'a> = crate::abi::Tensor<'a>;
    }

    extern "Rust" {
        fn norm_rows(
            input: &Tensor,
            affine: &Affine,
            output: &Tensor,
            statistics: &Statistics,
            rows: &NormRows,
            eps: f64,
        ) -> Result<()>;
        fn norm_rows_backward(
            grad: &Tensor,
            input: &Tensor,
            weight: &Tensor,
            statistics: &Statistics,
            grad_input: &Tensor,
            grad_affine: &Affine,
            rows: &NormRows,
        ) -> Result<()>;
    }
}

pub use ffi::{Affine, NormRows, NormShape, Statistics};

/// Minimum number of samples in a split of the gradient sums.
const SHORTEST_SPLIT: i64 = 16;

/// Vectors of channels that an item on a CPU sums together: `STRIP` of `norm.cl`.
const STRIP: i64 = 64;

impl NormShape {
    pub(super) fn count(&self) -> i64 {
        self.outer * self.channels * self.inner
    }

    /// Elements that share a channel.
    pub(super) fn per_channel(&self) -> i64 {
        self.outer * self.inner
    }
}

impl NormRows {
    fn shape(&self) -> NormShape {
        let channels = self.groups * (self.length / self.inner.max(1));
        NormShape { outer: self.count / self.groups.max(1), channels, inner: self.inner }
    }

    /// The vectors of dense tensors, and of `weights` if each element of a row has one.
    fn vectors(&self, geometry: Geometry, dense: &[&Tensor<'_>], weights: &[&Tensor<'_>]) -> Vectors {
        let span = if self.inner == 1 { self.length } else { self.inner };
        let weights = if self.inner == 1 { weights } else { &[] };
        dense.iter().chain(weights).fold(Vectors::of(geometry), |rows, tensor| rows.along(tensor, span))
    }
}

impl Affine<'_> {
    /// The dtype of both, or `absent`.
    ///
    /// # Errors
    /// They have different dtypes.
    pub(super) fn dtype(&self, absent: DType) -> Result<DType> {
        let Self { weight, bias } = self;
        if weight.is_present() && bias.is_present() && weight.dtype != bias.dtype {
            let (weight, bias) = (weight.dtype.name(), bias.dtype.name());
            return Err(Error::Invalid(format!(
                "OpenCL: a norm's weight is {weight} and its bias {bias}; convert one to the other's dtype"
            )));
        }
        Ok([weight, bias].into_iter().find(|tensor| tensor.is_present()).map_or(absent, |tensor| tensor.dtype))
    }
}

/// Owners of statistics: mean `o * outer + c / channels` belongs to sample o and channel c.
pub(super) struct Ownership {
    pub outer: i64,
    pub channels: i64,
}

/// Device and program parameters of one call.
pub(super) struct NormCall {
    pub target: Target,
    pub class: Class,
    geometry: Geometry,
}

impl NormCall {
    pub fn new(tensor: &Tensor<'_>) -> Result<Self> {
        let target = Target::of(tensor.address)?;
        let class = tensor.class();
        Ok(Self { target, class, geometry: Geometry::of(&target, class) })
    }

    /// Launches a kernel of the family, which loads and stores these vectors; `dtypes` are of the input and of the
    /// weight. `args` gets the number of items that share a column.
    pub fn launch<A: Arguments>(
        &self,
        kernel: EntryPoint<A>,
        count: i64,
        dtypes: [DType; 2],
        args: impl FnOnce(i32) -> A,
        by: Tasks,
        vectors: Vectors,
    ) -> Result<()> {
        let [input, weight] = dtypes;
        let constants = [("SPEC_DTYPE0", input.code()), ("SPEC_DTYPE1", weight.code())];
        let (geometry, constants) = (vectors.geometry, constants.into_iter().chain(vectors.constants()));
        let program = self.target.program(Family::Norm, self.class, &geometry.define(tier(count, constants)))?;
        match by {
            Tasks::OfGroups(tasks) => {
                let (global, local) = geometry.groups_for(tasks);
                self.target.launch(&program, kernel, &args(1), &global, Some(&local))
            }
            Tasks::OfColumns(columns) => geometry.launch_columns(&self.target, &program, kernel, args, columns),
            Tasks::OfSplits(results, splits) => {
                geometry.launch_join(&self.target, &program, kernel, args, (results, splits))
            }
            Tasks::Items(items) => self.target.launch(&program, kernel, &args(1), &[items as usize], None),
        }
    }

    /// Memory for `tables` values per channel.
    pub fn tables(&self, tables: i64, channels: i64) -> Result<Workspace> {
        self.target.workspace((tables * channels) as usize * self.class.size())
    }

    /// One of these tables, as a tensor whose sizes are not used.
    pub fn table(&self, tables: &Workspace, index: i64, channels: i64) -> Tensor<'static> {
        let address = tables.address + (index * channels) as usize * self.class.size();
        Tensor { address, dtype: self.class.storage(), sizes: &[], strides: &[] }
    }
}

/// How a kernel's work is distributed.
pub(super) enum Tasks {
    /// Groups take whole tasks.
    OfGroups(i64),
    /// Items take columns.
    OfColumns(Columns),
    /// (results, splits): items add up the splits of each result.
    OfSplits(i64, i64),
    /// One item per task.
    Items(i64),
}

/// Normalises rows into `output` and stores their statistics.
///
/// # Errors
/// Errors reported by the driver.
pub fn norm_rows(
    input: &Tensor<'_>,
    affine: &Affine<'_>,
    output: &Tensor<'_>,
    statistics: &Statistics<'_>,
    rows: &NormRows,
    eps: f64,
) -> Result<()> {
    if rows.count * rows.length == 0 {
        return Ok(());
    }
    let call = NormCall::new(input)?;
    let dtypes = [input.dtype, affine.dtype(input.dtype)?];
    let args = entry::NormRows {
        input: call.target.tensor(input)?,
        dtype0: input.dtype,
        weight: call.target.tensor(&affine.weight)?,
        bias: call.target.tensor(&affine.bias)?,
        dtype1: dtypes[1],
        output: call.target.tensor(output)?,
        mean: call.target.tensor(&statistics.mean)?,
        rstd: call.target.tensor(&statistics.rstd)?,
        stat_dtype: statistics.rstd.dtype,
        rows: rows.count,
        length: rows.length,
        groups: rows.groups,
        inner: rows.inner,
        eps: Value::real(call.class, eps),
    };
    let vectors = rows.vectors(call.geometry, &[input, output], &[&affine.weight, &affine.bias]);
    call.launch(entry::NORM_ROWS, input.numel(), dtypes, |_| args, Tasks::OfGroups(rows.count), vectors)
}

/// Gradients of [`norm_rows`]; `grad_input`, `grad_affine.weight` and `grad_affine.bias` may each be absent.
///
/// # Errors
/// Errors reported by the driver.
pub fn norm_rows_backward(
    grad: &Tensor<'_>,
    input: &Tensor<'_>,
    weight: &Tensor<'_>,
    statistics: &Statistics<'_>,
    grad_input: &Tensor<'_>,
    grad_affine: &Affine<'_>,
    rows: &NormRows,
) -> Result<()> {
    if rows.count * rows.length == 0 {
        return Ok(());
    }
    let call = NormCall::new(input)?;
    let shape = rows.shape();
    let wants_sums = grad_affine.weight.is_present() || grad_affine.bias.is_present();
    let mut sums = None;
    if grad_input.is_present() {
        let groups = call.geometry.groups_for(rows.count).0.iter().product::<usize>() as i64;
        if wants_sums && call.geometry.group == 1 && input.numel() >= groups * shape.channels * SHORTEST_SPLIT {
            sums = Some(Sums { memory: call.tables(2 * groups, shape.channels)?, shape, splits: groups });
        }
        let weight_dtype = if weight.is_present() { weight.dtype } else { input.dtype };
        let dtypes = [input.dtype, weight_dtype];
        let args = entry::NormRowsBackward {
            grad: call.target.tensor(grad)?,
            input: call.target.tensor(input)?,
            dtype0: input.dtype,
            weight: call.target.tensor(weight)?,
            dtype1: weight_dtype,
            mean: call.target.tensor(&statistics.mean)?,
            rstd: call.target.tensor(&statistics.rstd)?,
            stat_dtype: statistics.rstd.dtype,
            grad_input: call.target.tensor(grad_input)?,
            sums: call.target.memory(sums.as_ref().map_or(0, |sums| sums.memory.address))?,
            rows: rows.count,
            length: rows.length,
            groups: rows.groups,
            inner: rows.inner,
        };
        let (count, by) = (input.numel(), Tasks::OfGroups(rows.count));
        let vectors = rows.vectors(call.geometry, &[grad, input, grad_input], &[weight]);
        call.launch(entry::NORM_ROWS_BACKWARD, count, dtypes, |_| args, by, vectors)?;
    }
    if !wants_sums {
        return Ok(());
    }
    let owner = Ownership { outer: rows.groups, channels: shape.channels / rows.groups };
    let sums = sums.map_or_else(|| Sums::of(&call, grad, input, statistics, &shape, &owner), Ok)?;
    sums.finish(&call, grad_affine, weight, statistics, None, true)
}

/// Partial sums per channel of dy * xhat and of dy: `splits` tables of each.
pub(super) struct Sums {
    memory: Workspace,
    shape: NormShape,
    splits: i64,
}

impl Sums {
    pub fn of(
        call: &NormCall,
        grad: &Tensor<'_>,
        input: &Tensor<'_>,
        statistics: &Statistics<'_>,
        shape: &NormShape,
        owner: &Ownership,
    ) -> Result<Self> {
        // Lanes along the channels need one statistic for all channels, or one for each.
        let by_columns = shape.inner == 1 && (owner.outer == 0 || owner.channels == shape.channels);
        let least_rows = SHORTEST_SPLIT * call.geometry.most_column_parts().max(1);
        let possible = (shape.outer / least_rows).max(1);
        let geometry = call.geometry.for_columns(shape.channels, shape.channels * possible);
        let vectors = if geometry.group == 1 { STRIP } else { 1 };
        let strips = div_ceil(shape.channels, geometry.lanes as i64 * vectors);
        let tasks = if by_columns { strips } else { shape.channels };
        let columns = |tasks, length| Columns { tasks, beside: strips, length, is_row: false };
        let parts = if by_columns { geometry.column_parts(columns(tasks, shape.outer)) } else { 1 };
        let wanted = geometry.occupancy_target(!by_columns) / (tasks * parts);
        let splits = wanted.clamp(1, (shape.outer / (SHORTEST_SPLIT * parts)).max(1));
        let memory = call.tables(2 * splits, shape.channels)?;
        let sums = entry::SumsArguments {
            grad: call.target.tensor(grad)?,
            input: call.target.tensor(input)?,
            dtype0: input.dtype,
            mean: call.target.tensor(&statistics.mean)?,
            rstd: call.target.tensor(&statistics.rstd)?,
            stat_dtype: statistics.rstd.dtype,
            sums: call.target.memory(memory.address)?,
            outer: shape.outer,
            channels: shape.channels,
            inner: shape.inner,
            stat_outer: owner.outer,
            stat_channels: owner.channels,
            splits,
        };
        let (count, dtypes) = (shape.count(), [input.dtype, input.dtype]);
        if by_columns {
            let by = Tasks::OfColumns(columns(tasks * splits, shape.outer / splits));
            let args = |parts| entry::NormSumsColumns { sums, parts };
            let table = call.table(&memory, 0, shape.channels);
            let dense = [grad, input, &table].into_iter();
            let vectors = dense.fold(Vectors::of(geometry), |vectors, tensor| vectors.along(tensor, shape.channels));
            let vectors = match owner.outer {
                0 => vectors.along(&statistics.mean, 0).along(&statistics.rstd, 0),
                _ => vectors,
            };
            call.launch(entry::NORM_SUMS_COLUMNS, count, dtypes, args, by, vectors)?;
        } else {
            let by = Tasks::OfGroups(tasks * splits);
            let vectors = Vectors::of(call.geometry).along(grad, shape.inner).along(input, shape.inner);
            call.launch(entry::NORM_SUMS_ROWS, count, dtypes, |_| entry::NormSumsRows { sums }, by, vectors)?;
        }
        Ok(Self { memory, shape: *shape, splits })
    }

    /// Stores the gradients of weight and bias, and for batch norm the tables for the gradient of its input.
    pub fn finish(
        &self,
        call: &NormCall,
        grad_affine: &Affine<'_>,
        weight: &Tensor<'_>,
        statistics: &Statistics<'_>,
        tables: Option<&Workspace>,
        training: bool,
    ) -> Result<()> {
        let dtype = if weight.is_present() { weight.dtype } else { grad_affine.dtype(call.class.storage())? };
        let channels = self.shape.channels;
        let args = entry::NormSumsFinish {
            sums: call.target.memory(self.memory.address)?,
            grad_weight: call.target.tensor(&grad_affine.weight)?,
            grad_bias: call.target.tensor(&grad_affine.bias)?,
            weight: call.target.tensor(weight)?,
            dtype1: dtype,
            mean: call.target.tensor(&statistics.mean)?,
            rstd: call.target.tensor(&statistics.rstd)?,
            stat_dtype: statistics.rstd.dtype,
            coefficients: call.target.memory(tables.map_or(0, |tables| tables.address))?,
            channels,
            splits: self.splits,
            count: self.shape.per_channel(),
            training: i32::from(training),
            parts: 1,
        };
        let by = Tasks::OfSplits(channels, self.splits);
        let args = |parts| entry::NormSumsFinish { parts, ..args };
        call.launch(entry::NORM_SUMS_FINISH, channels, [dtype, dtype], args, by, Vectors::of(call.geometry))
    }
}
