//! Fused optimizers: one step of several parameters is one launch.

use super::geometry::Geometry;
use super::segments::{Batch, List, CHUNK};
use super::space::div_ceil;
use super::tier::tier;
use super::{Scalar, Target, Tensor};
use crate::cl::Arg;
use crate::error::{Error, Result};
use crate::kernels::{Class, Family};

/// Lists of a step; as in `cl/optimizer.cl`.
pub const LISTS: usize = 6;
/// Parameters of a launch, which has to fit the 1024 bytes of arguments that every device takes.
type Tensors = Batch<11, LISTS>;

/// How a gradient becomes a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rule {
    /// Stochastic gradient descent, with momentum where there is a state.
    Sgd,
    /// Adam, with weight decay as a part of the gradient.
    Adam,
    /// Adam, with weight decay apart from the gradient.
    AdamW,
    /// Adagrad.
    Adagrad,
}

impl Rule {
    /// From the bridge's number.
    ///
    /// # Errors
    /// [`Error::Invalid`] for any other number.
    pub fn from_code(code: i32) -> Result<Self> {
        match code {
            0 => Ok(Self::Sgd),
            1 => Ok(Self::Adam),
            2 => Ok(Self::AdamW),
            3 => Ok(Self::Adagrad),
            _ => Err(Error::Invalid(format!("OpenCL: {code} is not the rule of an optimizer"))),
        }
    }

    const fn kernel(self) -> &'static str {
        match self {
            Self::Sgd => "sgd_step",
            Self::Adam => "adam_step",
            Self::AdamW => "adamw_step",
            Self::Adagrad => "adagrad_step",
        }
    }
}

/// The numbers of an optimizer; those that its rule does not know are not read.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// Learning rate, where no tensor holds it.
    pub rate: f64,
    /// Whether to climb.
    pub maximize: bool,
    /// Factor of the parameter in its own gradient, or of its decay.
    pub weight_decay: f64,
    /// Added to what is divided by.
    pub epsilon: f64,
    /// What the first state keeps of itself; Adam's first beta.
    pub momentum: f64,
    /// What the first state does not take of the gradient.
    pub damping: f64,
    /// Adam's second beta.
    pub momentum2: f64,
    /// How the learning rate falls with the steps.
    pub rate_decay: f64,
    /// Whether the first state is to be initialised.
    pub is_first: bool,
    /// Nesterov's momentum.
    pub nesterov: bool,
}

/// What a step works on.
#[derive(Clone, Copy, Debug)]
pub struct Operands<'a> {
    /// Parameters; gradients; momenta, or sums of squares (Adagrad); squares; largest squares: dense, and those of one
    /// parameter lie alike. Then the numbers of steps taken, this one included, of one element each. All but the first two
    /// may be empty.
    pub lists: [List<'a>; LISTS],
    /// Learning rate, one number; may be absent.
    pub rate: Tensor<'a>,
    /// What gradients have been multiplied by, one number; may be absent.
    pub scale: Tensor<'a>,
    /// Not 0 where a gradient is infinite, and nothing is to be done; may be absent.
    pub found_inf: Tensor<'a>,
}

/// Takes one step of the parameters, of which the n-th has `counts[n]` elements.
///
/// # Errors
/// As the driver reports.
pub fn step(rule: Rule, settings: &Settings, counts: &[i64], operands: &Operands<'_>) -> Result<()> {
    let Operands { lists, rate, scale, found_inf } = operands;
    let [parameters, ..] = lists;
    let Some(present) = counts.iter().position(|count| *count > 0) else { return Ok(()) };
    let target = Target::of(parameters.address(present))?;
    let class = parameters.dtype.class();
    let geometry = Geometry::of(&target, class);
    let numbers = settings.numbers(class, operands);
    let same_dtype = lists.iter().take(LISTS - 1).all(|list| list.dtype == parameters.dtype);
    Tensors::for_each(&target, lists, counts.iter().copied().enumerate(), |batch| {
        let elements = batch.elements();
        let constants = [("SPEC_DTYPE0", parameters.dtype.code())];
        let spec = Tensors::define(tier(if same_dtype { elements } else { 0 }, &constants));
        let program = target.program(Family::Optimizer, class, &geometry.define(spec))?;
        // On CPUs a group for each 1024 elements of large tensors would be many.
        let share = if target.is_cpu() { div_ceil(elements, geometry.groups as i64) } else { 0 };
        let chunk = div_ceil(share, CHUNK).max(1) * CHUNK;
        let table = batch.table(chunk);
        let first = [
            Arg::Bytes(&table),
            Arg::Bytes(&numbers),
            target.tensor(rate)?,
            target.tensor(scale)?,
            target.tensor(found_inf)?,
        ];
        let args: Vec<_> = first.into_iter().chain(batch.arguments()).collect();
        let global = [batch.groups(chunk) * geometry.group];
        target.launch_elements(&program, rule.kernel(), &args, elements, &global, Some(&[geometry.group]))
    })
}

impl Settings {
    /// The struct `Step` of `cl/optimizer.cl`.
    fn numbers(&self, class: Class, operands: &Operands<'_>) -> Vec<u8> {
        let numbers = [
            self.rate,
            if self.maximize { -1.0 } else { 1.0 },
            self.weight_decay,
            self.epsilon,
            self.momentum,
            self.damping,
            self.momentum2,
            self.momentum.ln(),
            self.momentum2.ln(),
            self.rate_decay,
        ];
        let mut bytes = Vec::with_capacity(128);
        for number in numbers {
            Scalar { real: number, ..Scalar::default() }.write(class, &mut bytes);
        }
        let lists = &operands.lists;
        let present: i32 = lists.iter().zip(0..).map(|(list, bit)| i32::from(!list.addresses.is_empty()) << bit).sum();
        let single = [operands.rate.dtype, operands.scale.dtype, operands.found_inf.dtype];
        let dtypes = lists.iter().map(|list| list.dtype).chain(single).map(|dtype| dtype.code());
        let flags = [present, i32::from(self.is_first), i32::from(self.nesterov)];
        bytes.extend(dtypes.chain(flags).flat_map(i32::to_ne_bytes));
        bytes
    }
}
