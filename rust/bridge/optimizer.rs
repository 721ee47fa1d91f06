//! Optimizers for C++.

use super::fused::ffi::{OptimizerOperands, OptimizerSettings};
use crate::error::Result;
use crate::ops::optimizer::{self, Operands, Rule, Settings};

pub fn optimizer_step(rule: i32, settings: &OptimizerSettings, operands: &OptimizerOperands<'_>) -> Result<()> {
    let settings = Settings {
        rate: settings.rate,
        maximize: settings.maximize,
        weight_decay: settings.weight_decay,
        epsilon: settings.epsilon,
        momentum: settings.momentum,
        damping: settings.damping,
        momentum2: settings.momentum2,
        rate_decay: settings.rate_decay,
        is_first: settings.is_first,
        nesterov: settings.nesterov,
    };
    let operands = Operands {
        parameter: operands.parameter.tensor()?,
        gradient: operands.gradient.tensor()?,
        states: [operands.state0.tensor()?, operands.state1.tensor()?, operands.state2.tensor()?],
        count: operands.count.tensor()?,
        rate: operands.rate.tensor()?,
        scale: operands.scale.tensor()?,
        found_inf: operands.found_inf.tensor()?,
    };
    optimizer::step(Rule::from_code(rule)?, &settings, &operands)
}
