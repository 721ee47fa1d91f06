//! Connectionist temporal classification.

use std::sync::Arc;

use crate::error::Result;
use crate::kernels::{entry, CachedProgram, Family};
use crate::ops::core::geometry::Geometry;
use crate::ops::core::tier::tier;
use crate::ops::{Target, Tensor};

#[cxx::bridge(namespace = "torch_opencl::bridge")]
mod ffi {
    /// Samples of a batch and their targets.
    #[derive(Clone, Copy, Debug)]
    pub struct CtcInputs<'a> {
        /// [times, batch, classes], contiguous, float32 or float64.
        pub log_probs: Tensor<'a>,
        /// int32 or int64 labels, in one dimension.
        pub targets: Tensor<'a>,
        /// int64 [batch, 3]: the length of each sample, the length of its target and the index of its first label.
        pub samples: Tensor<'a>,
        /// The class of the blank.
        pub blank: i64,
    }

    unsafe extern "C++" {
        include!("torch_opencl/rust/abi.rs.h");
        type Tensor<'a> = crate::abi::Tensor<'a>;
    }

    extern "Rust" {
        fn ctc_loss(inputs: &CtcInputs, losses: &Tensor, log_alpha: &Tensor) -> Result<()>;
        fn ctc_loss_backward(
            inputs: &CtcInputs,
            grad: &Tensor,
            losses: &Tensor,
            log_alpha: &Tensor,
            grad_input: &Tensor,
            zero_infinity: bool,
        ) -> Result<()>;
    }
}

pub use ffi::CtcInputs;

/// Device, program and geometry of one call.
struct Call<'a> {
    inputs: &'a CtcInputs<'a>,
    states: i64,
    target: Target,
    geometry: Geometry,
    program: Arc<CachedProgram>,
}

impl<'a> Call<'a> {
    fn new(inputs: &'a CtcInputs<'a>, log_alpha: &Tensor<'_>) -> Result<Self> {
        let log_probs = &inputs.log_probs;
        let (target, class) = (Target::of(log_probs.address)?, log_probs.class());
        let geometry = Geometry::of(&target, class);
        let spec = geometry.define(tier(log_alpha.numel(), &[("SPEC_DTYPE0", log_probs.dtype.code())]));
        let program = target.program(Family::Ctc, class, &spec)?;
        Ok(Self { inputs, states: log_alpha.size(2), target, geometry, program })
    }

    fn batch(&self) -> i64 {
        self.inputs.log_probs.size(1)
    }

    fn sample(&self) -> Result<entry::SampleArguments> {
        let CtcInputs { log_probs, targets, samples, blank } = self.inputs;
        Ok(entry::SampleArguments {
            samples: self.target.tensor(samples)?,
            targets: self.target.tensor(targets)?,
            target_dtype: targets.dtype,
            target_step: targets.stride(0),
            log_probs: self.target.tensor(log_probs)?,
            batch: self.batch(),
            times: log_probs.size(0),
            classes: log_probs.size(2),
            states: self.states,
            blank: *blank,
            faults: self.target.faults()?,
        })
    }

    /// (global, local) size of kernels with one group per sample.
    fn samples(&self) -> ([usize; 1], [usize; 1]) {
        ([self.batch() as usize * self.geometry.group], [self.geometry.group])
    }
}

/// Writes the loss of each sample, and `log_alpha` [batch, times, states], which the gradient needs.
///
/// # Errors
/// Errors reported by the driver; a label that is out of range is a fault of the stream.
pub fn ctc_loss(inputs: &CtcInputs<'_>, losses: &Tensor<'_>, log_alpha: &Tensor<'_>) -> Result<()> {
    let call = Call::new(inputs, log_alpha)?;
    let args = entry::CtcAlpha {
        sample: call.sample()?,
        log_alpha: call.target.tensor(log_alpha)?,
        losses: call.target.tensor(losses)?,
    };
    let (global, local) = call.samples();
    call.target.launch(&call.program, entry::CTC_ALPHA, &args, &global, Some(&local))
}

/// The gradient of [`ctc_loss`] with respect to `log_probs`; `grad` has one value per sample.
///
/// # Errors
/// Errors reported by the driver.
pub fn ctc_loss_backward(
    inputs: &CtcInputs<'_>,
    grad: &Tensor<'_>,
    losses: &Tensor<'_>,
    log_alpha: &Tensor<'_>,
    grad_input: &Tensor<'_>,
    zero_infinity: bool,
) -> Result<()> {
    let call = Call::new(inputs, log_alpha)?;
    let Call { target, program, .. } = &call;
    let workspace = target.workspace(log_alpha.numel() as usize * log_alpha.dtype.size())?;
    let log_beta = target.memory(workspace.address)?;
    let (global, local) = call.samples();
    let args = entry::CtcBeta { sample: call.sample()?, log_beta };
    target.launch(program, entry::CTC_BETA, &args, &global, Some(&local))?;
    let (grad, losses) = (target.tensor(grad)?, target.tensor(losses)?);
    let grad_input = target.tensor(grad_input)?;
    let items = call.geometry.items_for(inputs.log_probs.size(0) * call.batch());
    let zero_infinity = i32::from(zero_infinity);
    let args = entry::CtcGradient { sample: call.sample()?, grad, losses, grad_input, zero_infinity };
    target.launch(program, entry::CTC_GRADIENT, &args, &items, None)?;
    let log_alpha = target.tensor(log_alpha)?;
    let args = entry::CtcGradientStates { sample: call.sample()?, grad, losses, log_alpha, log_beta, grad_input };
    target.launch(program, entry::CTC_GRADIENT_STATES, &args, &items, None)
}
