//! Batch normalisation of dense tensors.

use super::{Affine, NormCall, NormShape, Ownership, Statistics, Sums, Tasks};
use crate::error::Result;
use crate::kernels::entry::{self, Value};
use crate::kernels::DType;
use crate::ops::core::vectors::Vectors;
use crate::ops::reduce::var_mean::{var_mean, VarMeanOptions};
use crate::ops::{Operand, Scalar, Tensor, Workspace};

#[cxx::bridge(namespace = "torch_opencl::bridge")]
mod ffi {
    /// Momentum of the running statistics, and epsilon.
    #[derive(Clone, Copy, Debug)]
    pub struct NormHyper {
        /// Weight of the new statistics in the running statistics.
        pub momentum: f64,
        /// Added to the variance.
        pub eps: f64,
    }

    /// Mean and variance of each channel; both may be absent.
    #[derive(Clone, Copy, Debug)]
    pub struct MeanVar<'a> {
        /// The mean.
        pub mean: Tensor<'a>,
        /// The variance.
        pub var: Tensor<'a>,
    }

    /// Statistics of a batch-norm backward pass.
    #[derive(Clone, Copy, Debug)]
    pub struct BatchNormMode<'a> {
        /// In training, the statistics of the batch, which the forward pass saved.
        pub saved: Statistics<'a>,
        /// In evaluation, the running statistics.
        pub running: MeanVar<'a>,
        /// True in training: the statistics depend on the input.
        pub training: bool,
        /// Added to the running variance.
        pub eps: f64,
    }

    unsafe extern "C++" {
        include!("torch_opencl/rust/abi.rs.h");
        include!("torch_opencl/rust/ops/norm/mod.rs.h");
        type Affine<'a> = super::Affine<'a>;
        type NormShape = super::NormShape;
        type Statistics<'a> = super::Statistics<'a>;
        type Tensor<'a> = crate::abi::Tensor<'a>;
    }

    extern "Rust" {
        fn batch_norm_training(
            input: &Tensor,
            affine: &Affine,
            output: &Tensor,
            saved: &Statistics,
            running: &MeanVar,
            shape: &NormShape,
            hyper: NormHyper,
        ) -> Result<()>;
        fn batch_norm_evaluation(
            input: &Tensor,
            affine: &Affine,
            output: &Tensor,
            running: &MeanVar,
            shape: &NormShape,
            eps: f64,
        ) -> Result<()>;
        fn batch_norm_backward(
            grad: &Tensor,
            input: &Tensor,
            weight: &Tensor,
            mode: &BatchNormMode,
            grad_input: &Tensor,
            grad_affine: &Affine,
            shape: &NormShape,
        ) -> Result<()>;
        fn batch_norm_statistics(input: &Tensor, statistics: &MeanVar, shape: &NormShape) -> Result<()>;
        fn batch_norm_apply(input: &Tensor, coefficients: &Tensor, output: &Tensor, shape: &NormShape) -> Result<()>;
        fn batch_norm_apply_backward(
            grad: &Tensor,
            input: &Tensor,
            coefficients: &Tensor,
            grad_input: &Tensor,
            shape: &NormShape,
        ) -> Result<()>;
    }
}

pub use ffi::{BatchNormMode, MeanVar, NormHyper};

/// Values per channel that one kernel passes to the next.
const TABLES: i64 = 4;

/// Batch norm with statistics of the batch, which are stored in `saved` and update the running mean and variance in
/// `running`; each of these tensors may be absent.
///
/// # Errors
/// Errors reported by the driver.
pub fn batch_norm_training(
    input: &Tensor<'_>,
    affine: &Affine<'_>,
    output: &Tensor<'_>,
    saved: &Statistics<'_>,
    running: &MeanVar<'_>,
    shape: &NormShape,
    hyper: NormHyper,
) -> Result<()> {
    if shape.count() == 0 {
        return Ok(());
    }
    let call = NormCall::new(input)?;
    let batch = call.tables(2, shape.channels)?;
    let statistics =
        MeanVar { mean: call.table(&batch, 0, shape.channels), var: call.table(&batch, 1, shape.channels) };
    batch_norm_statistics(input, &statistics, shape)?;
    let tables = prepare(&call, &statistics, affine, running, saved, shape, hyper)?;
    apply(&call, input, output, tables.address, shape)
}

/// Mean and biased variance (divided by the number of elements) of each channel, in the compute dtype.
///
/// # Errors
/// Errors reported by the driver.
pub fn batch_norm_statistics(input: &Tensor<'_>, statistics: &MeanVar<'_>, shape: &NormShape) -> Result<()> {
    let (along, element) = ([0, input.class().size() as i64, 0], input.dtype.size() as i64);
    let steps = [element, shape.inner * element, shape.channels * shape.inner * element];
    let operand = |tensor: &Tensor<'_>, strides| Operand {
        address: tensor.address,
        dtype: tensor.dtype,
        strides,
        value: Scalar::default(),
    };
    var_mean(
        VarMeanOptions { correction: 0.0, take_sqrt: false },
        &[shape.inner, shape.channels, shape.outer],
        &operand(&statistics.var, &along),
        &operand(&statistics.mean, &along),
        &operand(input, &steps),
    )
}

/// Batch norm with the running statistics.
///
/// # Errors
/// Errors reported by the driver.
pub fn batch_norm_evaluation(
    input: &Tensor<'_>,
    affine: &Affine<'_>,
    output: &Tensor<'_>,
    running: &MeanVar<'_>,
    shape: &NormShape,
    eps: f64,
) -> Result<()> {
    if shape.count() == 0 {
        return Ok(());
    }
    let call = NormCall::new(input)?;
    let tables = prepare(&call, running, affine, &NO_RUNNING, &NOT_SAVED, shape, NormHyper { momentum: 0.0, eps })?;
    apply(&call, input, output, tables.address, shape)
}

/// `(x - mean) * (weight * rstd) + bias`, with the table `coefficients` [4, channels], in the compute dtype: mean,
/// rstd, weight * rstd and bias.
///
/// # Errors
/// Errors reported by the driver.
pub fn batch_norm_apply(
    input: &Tensor<'_>,
    coefficients: &Tensor<'_>,
    output: &Tensor<'_>,
    shape: &NormShape,
) -> Result<()> {
    if shape.count() == 0 {
        return Ok(());
    }
    apply(&NormCall::new(input)?, input, output, coefficients.address, shape)
}

/// `a * grad + b * (x - c) + d`, with the table `coefficients` [4, channels], in the compute dtype: a, b, c and d.
///
/// # Errors
/// Errors reported by the driver.
pub fn batch_norm_apply_backward(
    grad: &Tensor<'_>,
    input: &Tensor<'_>,
    coefficients: &Tensor<'_>,
    grad_input: &Tensor<'_>,
    shape: &NormShape,
) -> Result<()> {
    if shape.count() == 0 {
        return Ok(());
    }
    apply_backward(&NormCall::new(input)?, grad, input, coefficients.address, grad_input, shape)
}

/// Gradients of batch norm; `grad_input`, `grad_affine.weight` and `grad_affine.bias` may each be absent.
///
/// # Errors
/// Errors reported by the driver.
pub fn batch_norm_backward(
    grad: &Tensor<'_>,
    input: &Tensor<'_>,
    weight: &Tensor<'_>,
    mode: &BatchNormMode<'_>,
    grad_input: &Tensor<'_>,
    grad_affine: &Affine<'_>,
    shape: &NormShape,
) -> Result<()> {
    if shape.count() == 0 {
        return Ok(());
    }
    let call = NormCall::new(input)?;
    let constants;
    let statistics = if mode.training {
        mode.saved
    } else {
        let none = Affine { weight: ABSENT, bias: ABSENT };
        let hyper = NormHyper { momentum: 0.0, eps: mode.eps };
        constants = prepare(&call, &mode.running, &none, &NO_RUNNING, &NOT_SAVED, shape, hyper)?;
        let table = |index| call.table(&constants, index, shape.channels);
        Statistics { mean: table(0), rstd: table(1) }
    };
    let sums = Sums::of(&call, grad, input, &statistics, shape, &Ownership { outer: 0, channels: 1 })?;
    let tables = call.tables(TABLES, shape.channels)?;
    sums.finish(&call, grad_affine, weight, &statistics, Some(&tables), mode.training)?;
    if !grad_input.is_present() {
        return Ok(());
    }
    apply_backward(&call, grad, input, tables.address, grad_input, shape)
}

const ABSENT: Tensor<'static> = Tensor { address: 0, dtype: DType::F32, sizes: &[], strides: &[] };
const NO_RUNNING: MeanVar<'static> = MeanVar { mean: ABSENT, var: ABSENT };
const NOT_SAVED: Statistics<'static> = Statistics { mean: ABSENT, rstd: ABSENT };

/// Number of runs of elements that use one set of coefficients each, or one row of them.
const fn runs(shape: &NormShape) -> i64 {
    if shape.inner == 1 {
        shape.outer
    } else {
        shape.outer * shape.channels
    }
}

/// Computes the tables of `apply` from mean and variance, and stores saved and running statistics that are present.
fn prepare(
    call: &NormCall,
    statistics: &MeanVar<'_>,
    affine: &Affine<'_>,
    running: &MeanVar<'_>,
    saved: &Statistics<'_>,
    shape: &NormShape,
    hyper: NormHyper,
) -> Result<Workspace> {
    let tables = call.tables(TABLES, shape.channels)?;
    let dtype = affine.dtype(call.class.storage())?;
    let args = entry::BatchNormPrepare {
        mean: call.target.tensor(&statistics.mean)?,
        variance: call.target.tensor(&statistics.var)?,
        stat_dtype: statistics.mean.dtype,
        weight: call.target.tensor(&affine.weight)?,
        bias: call.target.tensor(&affine.bias)?,
        dtype1: dtype,
        running_mean: call.target.tensor(&running.mean)?,
        running_var: call.target.tensor(&running.var)?,
        running_dtype: running.mean.dtype,
        save_mean: call.target.tensor(&saved.mean)?,
        save_rstd: call.target.tensor(&saved.rstd)?,
        save_dtype: saved.mean.dtype,
        coefficients: call.target.memory(tables.address)?,
        channels: shape.channels,
        count: shape.per_channel(),
        momentum: Value::real(call.class, hyper.momentum),
        eps: Value::real(call.class, hyper.eps),
    };
    let by = Tasks::Items(shape.channels);
    let vectors = Vectors::of(call.geometry);
    call.launch(entry::BATCH_NORM_PREPARE, shape.channels, [dtype, dtype], |_| args, by, vectors)?;
    Ok(tables)
}

/// The vectors of dense tensors, and of the tables if channels are innermost.
fn vectors(call: &NormCall, dense: &[&Tensor<'_>], coefficients: usize, shape: &NormShape) -> Vectors {
    let span = if shape.inner == 1 { shape.channels } else { shape.inner };
    let table = Tensor { address: coefficients, dtype: call.class.storage(), sizes: &[], strides: &[] };
    let tables: &[&Tensor<'_>] = if shape.inner == 1 { &[&table] } else { &[] };
    dense.iter().chain(tables).fold(Vectors::of(call.geometry), |vectors, tensor| vectors.along(tensor, span))
}

fn apply(
    call: &NormCall,
    input: &Tensor<'_>,
    output: &Tensor<'_>,
    coefficients: usize,
    shape: &NormShape,
) -> Result<()> {
    let args = entry::BatchNormApply {
        input: call.target.tensor(input)?,
        dtype0: input.dtype,
        coefficients: call.target.memory(coefficients)?,
        output: call.target.tensor(output)?,
        outer: shape.outer,
        channels: shape.channels,
        inner: shape.inner,
    };
    let (dtypes, by) = ([input.dtype, input.dtype], Tasks::OfGroups(runs(shape)));
    let vectors = vectors(call, &[input, output], coefficients, shape);
    call.launch(entry::BATCH_NORM_APPLY, shape.count(), dtypes, |_| args, by, vectors)
}

fn apply_backward(
    call: &NormCall,
    grad: &Tensor<'_>,
    input: &Tensor<'_>,
    coefficients: usize,
    grad_input: &Tensor<'_>,
    shape: &NormShape,
) -> Result<()> {
    let args = entry::BatchNormApplyBackward {
        grad: call.target.tensor(grad)?,
        input: call.target.tensor(input)?,
        dtype0: input.dtype,
        coefficients: call.target.memory(coefficients)?,
        grad_input: call.target.tensor(grad_input)?,
        outer: shape.outer,
        channels: shape.channels,
        inner: shape.inner,
    };
    let (dtypes, by) = ([input.dtype, input.dtype], Tasks::OfGroups(runs(shape)));
    let vectors = vectors(call, &[grad, input, grad_input], coefficients, shape);
    call.launch(entry::BATCH_NORM_APPLY_BACKWARD, shape.count(), dtypes, |_| args, by, vectors)
}
