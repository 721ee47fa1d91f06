//! Optimizers for C++.

use super::ffi::TensorArg;
use super::fused::ffi::{ListOperand, OptimizerSettings};
use crate::error::{Error, Result};
use crate::ops::optimizer::{self, Operands, Rule, Settings, LISTS};

pub fn optimizer_step(
    rule: i32,
    settings: &OptimizerSettings,
    counts: &[i64],
    lists: &[ListOperand<'_>],
    rate: &TensorArg<'_>,
    scale: &TensorArg<'_>,
    found_inf: &TensorArg<'_>,
) -> Result<()> {
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
    let lists = lists.iter().map(ListOperand::list).collect::<Result<Vec<_>>>()?;
    let lists = <[_; LISTS]>::try_from(lists)
        .map_err(|lists| Error::Invalid(format!("OpenCL: an optimizer takes {LISTS} lists, not {}", lists.len())))?;
    let operands = Operands { lists, rate: rate.tensor()?, scale: scale.tensor()?, found_inf: found_inf.tensor()? };
    optimizer::step(Rule::from_code(rule)?, &settings, counts, &operands)
}
