//! Fused optimizers: one step of several parameters is one launch.

use crate::error::Result;
use crate::kernels::entry::{self, EntryPoint};
use crate::kernels::{Class, Family, Spec};
use crate::ops::core::forms::{Form, FLOATS};
use crate::ops::core::geometry::Geometry;
use crate::ops::core::multi_tensor::{ListedTensor, MultiTensorBatch, CHUNK};
use crate::ops::core::space::div_ceil;
use crate::ops::core::tier::tier;
use crate::ops::core::vectors::Vectors;
use crate::ops::{Scalar, Target, Tensor, TensorList};

#[cxx::bridge(namespace = "torch_opencl::bridge")]
mod ffi {
    /// Update rule.
    #[derive(Debug)]
    #[repr(i32)]
    pub enum OptimizerRule {
        /// Stochastic gradient descent, with momentum if there is a state.
        Sgd,
        /// Adam, with weight decay as a part of the gradient.
        Adam,
        /// Adam, with weight decay apart from the gradient.
        AdamW,
        /// Adagrad.
        Adagrad,
    }

    /// Hyperparameters of an optimizer; those that its rule does not use are not read.
    #[derive(Clone, Copy, Debug)]
    pub struct OptimizerSettings {
        /// Learning rate, if no tensor holds it.
        pub lr: f64,
        /// True to maximise.
        pub maximize: bool,
        /// Weight decay, in the gradient or apart from it.
        pub weight_decay: f64,
        /// Added to the denominator.
        pub eps: f64,
        /// Momentum; Adam's first beta.
        pub momentum: f64,
        /// Dampening of the momentum.
        pub dampening: f64,
        /// Adam's second beta.
        pub beta2: f64,
        /// Decay of the learning rate over the steps.
        pub lr_decay: f64,
        /// True if the first state must be initialised.
        pub is_first_step: bool,
        /// Nesterov's momentum.
        pub nesterov: bool,
    }

    /// Tensors of a step.
    #[derive(Clone, Copy, Debug)]
    pub struct OptimizerOperands<'a> {
        /// Parameters. They, gradients and states are dense, with the same layout for one parameter.
        pub params: TensorList<'a>,
        /// Their gradients.
        pub grads: TensorList<'a>,
        /// Momenta, or Adagrad's sums of squares; may be empty, as may all lists below.
        pub first_states: TensorList<'a>,
        /// Adam's averages of squares.
        pub second_states: TensorList<'a>,
        /// Running maxima of `second_states`.
        pub largest_second_states: TensorList<'a>,
        /// Step counts, this step included, of one element each.
        pub steps: TensorList<'a>,
        /// Learning rate, one element; may be absent.
        pub lr: Tensor<'a>,
        /// Scale that gradients have been multiplied by, one element; may be absent.
        pub grad_scale: Tensor<'a>,
        /// Not 0 if a gradient is infinite; the step is then skipped. May be absent.
        pub found_inf: Tensor<'a>,
    }

    unsafe extern "C++" {
        include!("torch_opencl/rust/abi.rs.h");
        type Tensor<'a> = crate::abi::Tensor<'a>;
        type TensorList<'a> = crate::abi::TensorList<'a>;
    }

    extern "Rust" {
        fn optimizer_step(
            rule: OptimizerRule,
            settings: &OptimizerSettings,
            counts: &[i64],
            operands: &OptimizerOperands,
        ) -> Result<()>;
    }
}

pub use ffi::{OptimizerOperands, OptimizerRule, OptimizerSettings};

/// Lists of a step; as in `optimizer.cl`.
const LISTS: usize = 6;
/// Parameters of a launch. Its arguments must fit the 1024 bytes that every device takes.
type Tensors = MultiTensorBatch<12, LISTS>;

/// The generic programs.
pub(in crate::ops) fn forms(target: &Target) -> Vec<Form> {
    FLOATS.map(|class| (class, Geometry::of(target, class).define(Tensors::define(Spec::generic())))).to_vec()
}

impl OptimizerRule {
    const fn kernel(self) -> EntryPoint<entry::SgdStep<'static>> {
        match self {
            Self::Sgd => entry::SGD_STEP,
            Self::Adam => entry::ADAM_STEP,
            Self::AdamW => entry::ADAMW_STEP,
            _ => entry::ADAGRAD_STEP,
        }
    }
}

/// Takes one step of the parameters. The n-th has `counts[n]` elements.
///
/// # Errors
/// Errors reported by the driver.
pub fn optimizer_step(
    rule: OptimizerRule,
    settings: &OptimizerSettings,
    counts: &[i64],
    operands: &OptimizerOperands<'_>,
) -> Result<()> {
    let (params, lists) = (&operands.params, &operands.lists());
    let Some(present) = counts.iter().position(|count| *count > 0) else { return Ok(()) };
    let target = Target::of(params.address(present))?;
    let class = params.dtype.class();
    let geometry = Geometry::of(&target, class);
    let step = settings.step_struct(rule, class, operands);
    let same_dtype = lists.iter().take(LISTS - 1).all(|list| list.dtype == params.dtype);
    let (shared, found_inf) = (ListedTensor::shared(&target, &operands.shared())?, target.tensor(&operands.found_inf)?);
    Tensors::for_each_with_shared(shared.as_ref(), &target, lists, counts.iter().copied().enumerate(), |batch| {
        let elements = batch.elements();
        let vectors = batch.add_to(Vectors::of(geometry), params.dtype);
        let constants = [("SPEC_DTYPE0", params.dtype.code())].into_iter().chain(vectors.constants());
        let spec = Tensors::define(tier(if same_dtype { elements } else { 0 }, constants));
        let program = target.program(Family::Optimizer, class, &geometry.define(spec))?;
        // On CPUs, one group per 1024 elements would be too many for large tensors.
        let share = if target.is_cpu() { div_ceil(elements, geometry.groups as i64) } else { 0 };
        let chunk = div_ceil(share, CHUNK).max(1) * CHUNK;
        let table = batch.table(chunk);
        let args = entry::SgdStep {
            step: entry::StepArguments { step: &step, found_inf, multi_tensor: batch.arguments(&table) },
        };
        let global = [batch.groups(chunk) * geometry.group];
        target.launch_elements(&program, rule.kernel(), &args, elements, &global, Some(&[geometry.group]))
    })
}

impl<'a> OptimizerOperands<'a> {
    fn lists(&self) -> [TensorList<'a>; LISTS] {
        [self.params, self.grads, self.first_states, self.second_states, self.largest_second_states, self.steps]
    }

    /// Shared by all parameters; as in `optimizer.cl`. More than two would not always fit in a launch with the lists.
    const fn shared(&self) -> [Tensor<'a>; 2] {
        [self.lr, self.grad_scale]
    }
}

impl OptimizerSettings {
    /// The struct `Step` of `optimizer.cl`.
    fn step_struct(&self, rule: OptimizerRule, class: Class, operands: &OptimizerOperands<'_>) -> Vec<u8> {
        let weight1 = 1.0 - if rule == OptimizerRule::Sgd { self.dampening } else { self.momentum };
        let hyperparameters = [
            self.lr,
            if self.maximize { -1.0 } else { 1.0 },
            self.weight_decay,
            self.eps,
            self.momentum,
            self.beta2,
            weight1,
            1.0 - self.beta2,
            self.momentum.ln(),
            self.beta2.ln(),
            self.lr_decay,
        ];
        let mut bytes = Vec::with_capacity(128);
        for value in hyperparameters {
            Scalar { real: value, ..Scalar::default() }.write(class, &mut bytes);
        }
        let (lists, shared) = (operands.lists(), operands.shared());
        let is_present = lists.map(|list| !list.addresses.is_empty()).into_iter().chain(shared.map(|t| t.address != 0));
        let present: i32 = is_present.zip(0..).map(|(is_present, bit)| i32::from(is_present) << bit).sum();
        let single = shared.map(|t| t.dtype).into_iter().chain([operands.found_inf.dtype]);
        let dtypes = lists.map(|list| list.dtype).into_iter().chain(single).map(|dtype| dtype.code());
        let flags = [present, i32::from(self.is_first_step), i32::from(self.nesterov)];
        bytes.extend(dtypes.chain(flags).flat_map(i32::to_ne_bytes));
        bytes
    }
}
