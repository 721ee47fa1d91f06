//! Margin losses.

use std::sync::Arc;

use crate::error::Result;
use crate::kernels::entry::{self, Value};
use crate::kernels::{CachedProgram, Family};
use crate::ops::core::geometry::Geometry;
use crate::ops::core::tier::tier;
use crate::ops::{Target, Tensor};

#[cxx::bridge(namespace = "torch_opencl::bridge")]
mod ffi {
    /// Rows of scores and their targets, contiguous.
    #[derive(Clone, Copy, Debug)]
    pub struct MarginInputs<'a> {
        /// [count, classes].
        pub input: Tensor<'a>,
        /// int64: one class per row, or several per row, ended by a negative value.
        pub target: Tensor<'a>,
    }

    /// Arguments of the losses with one target per row only.
    #[derive(Clone, Copy, Debug)]
    pub struct MultiMargin<'a> {
        /// The weight of each class; may be absent.
        pub weight: Tensor<'a>,
        /// The margin.
        pub margin: f64,
        /// The exponent of the missing margin, 1 or 2.
        pub p: i32,
    }

    unsafe extern "C++" {
        include!("torch_opencl/rust/abi.rs.h");
        type Tensor<'a> = crate::abi::Tensor<'a>;
    }

    extern "Rust" {
        fn multi_margin_loss(inputs: &MarginInputs, options: &MultiMargin, output: &Tensor) -> Result<()>;
        fn multi_margin_loss_backward(
            inputs: &MarginInputs,
            options: &MultiMargin,
            grad: &Tensor,
            scale: f64,
            grad_input: &Tensor,
        ) -> Result<()>;
        fn multilabel_margin_loss(inputs: &MarginInputs, is_target: &Tensor, output: &Tensor) -> Result<()>;
        fn multilabel_margin_loss_backward(
            inputs: &MarginInputs,
            is_target: &Tensor,
            grad: &Tensor,
            scale: f64,
            grad_input: &Tensor,
        ) -> Result<()>;
    }
}

pub use ffi::{MarginInputs, MultiMargin};

/// Device, program and geometry of one call.
struct Call<'a> {
    inputs: &'a MarginInputs<'a>,
    target: Target,
    geometry: Geometry,
    program: Arc<CachedProgram>,
}

impl<'a> Call<'a> {
    fn new(inputs: &'a MarginInputs<'a>) -> Result<Self> {
        let input = &inputs.input;
        let target = Target::of(input.address)?;
        let geometry = Geometry::of(&target, input.class());
        let spec = geometry.define(tier(input.numel(), &[("SPEC_DTYPE0", input.dtype.code())]));
        let program = target.program(Family::Margin, input.class(), &spec)?;
        Ok(Self { inputs, target, geometry, program })
    }

    fn count(&self) -> i64 {
        self.inputs.input.size(0)
    }

    fn scores(&self) -> Result<entry::ScoresArguments> {
        let MarginInputs { input, target } = self.inputs;
        Ok(entry::ScoresArguments {
            input: self.target.tensor(input)?,
            targets: self.target.tensor(target)?,
            dtype0: input.dtype,
            count: self.count(),
            classes: input.size(1),
            faults: self.target.faults()?,
        })
    }

    fn multi_margin(&self, options: &MultiMargin<'_>) -> Result<entry::MultiMarginArguments> {
        Ok(entry::MultiMarginArguments {
            weight: self.target.tensor(&options.weight)?,
            margin: self.value(options.margin),
            p: options.p,
        })
    }

    fn value(&self, value: f64) -> Value {
        Value::real(self.inputs.input.class(), value)
    }

    /// 1 if each row has its own gradient, 0 if all rows share one.
    fn grad_step(&self, grad: &Tensor<'_>) -> i64 {
        i64::from(grad.ndim() > 0)
    }
}

/// Writes the loss of each row.
///
/// # Errors
/// Errors reported by the driver; a target that is out of range is a fault of the stream.
pub fn multi_margin_loss(inputs: &MarginInputs<'_>, options: &MultiMargin<'_>, output: &Tensor<'_>) -> Result<()> {
    let call = Call::new(inputs)?;
    let args = entry::MultiMarginLoss {
        scores: call.scores()?,
        multi_margin: call.multi_margin(options)?,
        output: call.target.tensor(output)?,
    };
    let (global, local) = call.geometry.groups_for(call.count());
    call.target.launch(&call.program, entry::MULTI_MARGIN_LOSS, &args, &global, Some(&local))
}

/// The gradient of [`multi_margin_loss`] times `scale`; `grad` has no dimension, or one value for each row.
///
/// # Errors
/// Errors reported by the driver; a target that is out of range is a fault of the stream.
pub fn multi_margin_loss_backward(
    inputs: &MarginInputs<'_>,
    options: &MultiMargin<'_>,
    grad: &Tensor<'_>,
    scale: f64,
    grad_input: &Tensor<'_>,
) -> Result<()> {
    let call = Call::new(inputs)?;
    let args = entry::MultiMarginLossBackward {
        scores: call.scores()?,
        multi_margin: call.multi_margin(options)?,
        grad: call.target.tensor(grad)?,
        grad_step: call.grad_step(grad),
        scale: call.value(scale),
        grad_input: call.target.tensor(grad_input)?,
    };
    let (global, local) = call.geometry.groups_for(call.count());
    call.target.launch(&call.program, entry::MULTI_MARGIN_LOSS_BACKWARD, &args, &global, Some(&local))
}

/// Writes the loss of each row. Sets `is_target` to 1 for each class that is a target of its row, else to 0. Targets
/// are less than the number of classes.
///
/// # Errors
/// Errors reported by the driver.
pub fn multilabel_margin_loss(inputs: &MarginInputs<'_>, is_target: &Tensor<'_>, output: &Tensor<'_>) -> Result<()> {
    let call = Call::new(inputs)?;
    let is_target = call.target.tensor(is_target)?;
    let args = entry::MultilabelMarginTargets { scores: call.scores()?, is_target };
    let items = call.geometry.items_for(inputs.input.numel());
    call.target.launch(&call.program, entry::MULTILABEL_MARGIN_TARGETS, &args, &items, None)?;
    let output = call.target.tensor(output)?;
    let args = entry::MultilabelMarginLoss { scores: call.scores()?, is_target, output };
    let (global, local) = call.geometry.groups_for(call.count());
    call.target.launch(&call.program, entry::MULTILABEL_MARGIN_LOSS, &args, &global, Some(&local))
}

/// The gradient of [`multilabel_margin_loss`] times `scale`; `grad` has no dimension, or one value for each row.
///
/// # Errors
/// Errors reported by the driver.
pub fn multilabel_margin_loss_backward(
    inputs: &MarginInputs<'_>,
    is_target: &Tensor<'_>,
    grad: &Tensor<'_>,
    scale: f64,
    grad_input: &Tensor<'_>,
) -> Result<()> {
    let call = Call::new(inputs)?;
    let args = entry::MultilabelMarginLossBackward {
        scores: call.scores()?,
        is_target: call.target.tensor(is_target)?,
        grad: call.target.tensor(grad)?,
        grad_step: call.grad_step(grad),
        scale: call.value(scale),
        grad_input: call.target.tensor(grad_input)?,
    };
    let items = call.geometry.items_for(inputs.input.numel());
    call.target.launch(&call.program, entry::MULTILABEL_MARGIN_LOSS_BACKWARD, &args, &items, None)
}
