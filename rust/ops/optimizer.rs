//! Fused optimizers: one step of one parameter is one launch.

use super::geometry::Geometry;
use super::space::div_ceil;
use super::tier::tier;
use super::{Scalar, Target, Tensor};
use crate::cl::Arg;
use crate::error::{Error, Result};
use crate::kernels::Family;

/// Buffers of a step: `OPERANDS` of `cl/optimizer.cl`.
const OPERANDS: usize = 9;

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

/// What a step works on; all but the first two may be absent. The first five are dense and lie alike, the others hold one
/// number each.
#[derive(Clone, Copy, Debug)]
pub struct Operands<'a> {
    /// The parameter.
    pub parameter: Tensor<'a>,
    /// Its gradient.
    pub gradient: Tensor<'a>,
    /// Momentum, or sums of squares (Adagrad); squares; largest squares.
    pub states: [Tensor<'a>; 3],
    /// Steps taken, this one included.
    pub count: Tensor<'a>,
    /// Learning rate.
    pub rate: Tensor<'a>,
    /// What gradients have been multiplied by.
    pub scale: Tensor<'a>,
    /// Not 0 where a gradient is infinite, and nothing is to be done.
    pub found_inf: Tensor<'a>,
}

/// Takes one step.
///
/// # Errors
/// As the driver reports.
pub fn step(rule: Rule, settings: &Settings, operands: &Operands<'_>) -> Result<()> {
    let parameter = &operands.parameter;
    let count = parameter.numel();
    if count == 0 {
        return Ok(());
    }
    let target = Target::of(parameter.address)?;
    let class = parameter.class();
    let geometry = Geometry::of(&target, class);
    let [state0, state1, state2] = operands.states;
    let all = [
        operands.parameter,
        operands.gradient,
        state0,
        state1,
        state2,
        operands.count,
        operands.rate,
        operands.scale,
        operands.found_inf,
    ];
    let alike = all.iter().take(5).all(|tensor| !tensor.is_present() || tensor.dtype == parameter.dtype);
    let constants = [("SPEC_DTYPE0", parameter.dtype.code())];
    let spec = geometry.define(tier(if alike { count } else { 0 }, &constants));
    let program = target.program(Family::Optimizer, class, &spec)?;

    let numbers = [
        settings.rate,
        if settings.maximize { -1.0 } else { 1.0 },
        settings.weight_decay,
        settings.epsilon,
        settings.momentum,
        settings.damping,
        settings.momentum2,
        settings.momentum.ln(),
        settings.momentum2.ln(),
        settings.rate_decay,
    ];
    let mut bytes = Vec::with_capacity(256);
    for number in numbers {
        Scalar { real: number, ..Scalar::default() }.write(class, &mut bytes);
    }
    bytes.extend(count.to_ne_bytes());
    let locations = all.iter().map(|tensor| target.location(tensor.address)).collect::<Result<Vec<_>>>()?;
    bytes.extend(locations.iter().flat_map(|(_, offset)| offset.to_ne_bytes()));
    let dtypes = all.iter().map(|tensor| tensor.dtype.code());
    let pad = 0;
    let tail = [i32::from(settings.is_first), i32::from(settings.nesterov), pad];
    bytes.extend(dtypes.chain(tail).flat_map(i32::to_ne_bytes));

    let mut args = Vec::with_capacity(1 + OPERANDS);
    args.push(Arg::Bytes(&bytes));
    args.extend(locations.iter().map(|(memory, _)| Arg::Buffer(*memory)));
    let items = geometry.items_for(div_ceil(count, geometry.lanes as i64));
    target.launch_elements(&program, rule.kernel(), &args, count, &items, None)
}
