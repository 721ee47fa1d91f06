//! Negative log likelihood and binary cross entropy of contiguous tensors.

pub mod ctc;
pub mod margin;

use crate::error::Result;
use crate::kernels::entry::{self, Value};
use crate::kernels::{CachedProgram, Family};
use crate::ops::core::geometry::Geometry;
use crate::ops::core::space::div_ceil;
use crate::ops::core::tier::tier;
use crate::ops::{Target, Tensor};

#[cxx::bridge(namespace = "torch_opencl::bridge")]
mod ffi {
    /// Reduction of the losses: values of `at::Reduction`.
    #[derive(Debug)]
    #[repr(i32)]
    pub enum Reduction {
        /// No reduction.
        None,
        /// Weighted mean.
        Mean,
        /// Sum.
        Sum,
    }

    /// Selects a likelihood for each target.
    #[derive(Clone, Copy, Debug)]
    pub struct Classes<'a> {
        /// Class of each target: int64, int32 or uint8.
        pub target: Tensor<'a>,
        /// Weight of each class; may be absent.
        pub weight: Tensor<'a>,
        /// Class that is ignored.
        pub ignored: i64,
        /// Number of classes.
        pub count: i64,
        /// Targets per sample.
        pub inner: i64,
    }

    unsafe extern "C++" {
        include!("torch_opencl/rust/abi.rs.h");
        type Tensor<'a> = crate::abi::Tensor<'a>;
    }

    extern "Rust" {
        fn nll_loss(
            input: &Tensor,
            classes: &Classes,
            reduction: Reduction,
            output: &Tensor,
            total_weight: &Tensor,
        ) -> Result<()>;
        fn nll_loss_backward(
            grad: &Tensor,
            classes: &Classes,
            reduction: Reduction,
            total_weight: &Tensor,
            grad_input: &Tensor,
        ) -> Result<()>;
        fn binary_cross_entropy(input: &Tensor, target: &Tensor, weight: &Tensor, output: &Tensor) -> Result<()>;
        fn binary_cross_entropy_backward(
            grad: &Tensor,
            input: &Tensor,
            target: &Tensor,
            weight: &Tensor,
            grad_input: &Tensor,
            scale: f64,
        ) -> Result<()>;
    }
}

pub use ffi::{Classes, Reduction};

/// Device, program and geometry of one call.
struct LossCall {
    target: Target,
    geometry: Geometry,
    program: std::sync::Arc<CachedProgram>,
}

impl LossCall {
    fn new(tensor: &Tensor<'_>, elements: i64) -> Result<Self> {
        let target = Target::of(tensor.address)?;
        let geometry = Geometry::of(&target, tensor.class());
        let spec = geometry.define(tier(elements, &[("SPEC_DTYPE0", tensor.dtype.code())]));
        Ok(Self { target, geometry, program: target.program(Family::Loss, tensor.class(), &spec)? })
    }

    /// Arguments that all kernels of the likelihood share.
    fn likelihood(&self, classes: &Classes<'_>) -> Result<entry::LikelihoodArguments> {
        Ok(entry::LikelihoodArguments {
            targets: self.target.tensor(&classes.target)?,
            target_dtype: classes.target.dtype,
            weight: self.target.tensor(&classes.weight)?,
            count: classes.target.numel(),
            classes: classes.count,
            inner: classes.inner,
            ignored: classes.ignored,
            faults: self.target.faults()?,
        })
    }
}

/// Writes the loss of `input` [samples, classes, inner] to `output`, and the divisor of a mean to `total_weight`.
///
/// # Errors
/// Errors reported by the driver.
pub fn nll_loss(
    input: &Tensor<'_>,
    classes: &Classes<'_>,
    reduction: Reduction,
    output: &Tensor<'_>,
    total_weight: &Tensor<'_>,
) -> Result<()> {
    // The scalar `total_weight` always has memory; without targets, `output` has none.
    let call = LossCall::new(total_weight, classes.target.numel())?;
    if reduction == Reduction::None {
        let args = entry::NllLossEach {
            input: call.target.tensor(input)?,
            dtype0: output.dtype,
            likelihood: call.likelihood(classes)?,
            output: call.target.tensor(output)?,
        };
        let items = call.geometry.items_for(classes.target.numel());
        call.target.launch(&call.program, entry::NLL_LOSS_EACH, &args, &items, None)?;
        return call.target.fill(total_weight.address, 0, total_weight.dtype.size());
    }
    // An empty batch still runs one group, which writes NaN or 0.
    let (global, local) = call.geometry.groups_for(classes.target.numel().max(1));
    let groups = global.iter().product::<usize>() / call.geometry.group;
    let parts = call.target.workspace(2 * groups * output.class().size())?;
    let args = entry::NllLossParts {
        input: call.target.tensor(input)?,
        dtype0: output.dtype,
        likelihood: call.likelihood(classes)?,
        parts: call.target.memory(parts.address)?,
    };
    call.target.launch(&call.program, entry::NLL_LOSS_PARTS, &args, &global, Some(&local))?;
    let args = entry::NllLossFinish {
        parts: call.target.memory(parts.address)?,
        output: call.target.tensor(output)?,
        total_weight: call.target.tensor(total_weight)?,
        dtype0: output.dtype,
        groups: groups as i64,
        reduction: reduction.repr,
    };
    call.target.launch(&call.program, entry::NLL_LOSS_FINISH, &args, &[1], None)
}

/// The gradient of [`nll_loss`]; `grad_input` is dense.
///
/// # Errors
/// Errors reported by the driver.
pub fn nll_loss_backward(
    grad: &Tensor<'_>,
    classes: &Classes<'_>,
    reduction: Reduction,
    total_weight: &Tensor<'_>,
    grad_input: &Tensor<'_>,
) -> Result<()> {
    if grad_input.numel() == 0 {
        return Ok(());
    }
    let call = LossCall::new(grad_input, classes.target.numel())?;
    call.target.fill(grad_input.address, 0, grad_input.numel() as usize * grad_input.dtype.size())?;
    let args = entry::NllLossBackward {
        grad: call.target.tensor(grad)?,
        likelihood: call.likelihood(classes)?,
        total_weight: call.target.tensor(total_weight)?,
        grad_input: call.target.tensor(grad_input)?,
        dtype0: grad_input.dtype,
        reduction: reduction.repr,
    };
    let items = call.geometry.items_for(classes.target.numel());
    call.target.launch(&call.program, entry::NLL_LOSS_BACKWARD, &args, &items, None)
}

/// The binary cross entropy of probabilities and targets, times `weight` if it is present.
///
/// # Errors
/// Errors reported by the driver.
pub fn binary_cross_entropy(
    input: &Tensor<'_>,
    target: &Tensor<'_>,
    weight: &Tensor<'_>,
    output: &Tensor<'_>,
) -> Result<()> {
    let count = output.numel();
    if count == 0 {
        return Ok(());
    }
    let call = LossCall::new(output, count)?;
    let args = entry::BinaryCrossEntropy {
        input: call.target.tensor(input)?,
        target: call.target.tensor(target)?,
        weight: call.target.tensor(weight)?,
        output: call.target.tensor(output)?,
        dtype0: output.dtype,
        count,
        faults: call.target.faults()?,
    };
    let vectors = div_ceil(count, call.geometry.lanes as i64);
    call.target.launch(&call.program, entry::BINARY_CROSS_ENTROPY, &args, &call.geometry.items_for(vectors), None)
}

/// The gradient of [`binary_cross_entropy`] times `scale`; `grad` has one value, or one for each element.
///
/// # Errors
/// Errors reported by the driver.
pub fn binary_cross_entropy_backward(
    grad: &Tensor<'_>,
    input: &Tensor<'_>,
    target: &Tensor<'_>,
    weight: &Tensor<'_>,
    grad_input: &Tensor<'_>,
    scale: f64,
) -> Result<()> {
    let count = grad_input.numel();
    if count == 0 {
        return Ok(());
    }
    let call = LossCall::new(grad_input, count)?;
    let args = entry::BinaryCrossEntropyBackward {
        grad: call.target.tensor(grad)?,
        grad_step: i64::from(grad.numel() == count),
        input: call.target.tensor(input)?,
        target: call.target.tensor(target)?,
        weight: call.target.tensor(weight)?,
        grad_input: call.target.tensor(grad_input)?,
        dtype0: grad_input.dtype,
        count,
        scale: Value::real(grad_input.class(), scale),
    };
    let vectors = div_ceil(count, call.geometry.lanes as i64);
    call.target.launch(
        &call.program,
        entry::BINARY_CROSS_ENTROPY_BACKWARD,
        &args,
        &call.geometry.items_for(vectors),
        None,
    )
}
