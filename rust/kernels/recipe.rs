//! Recipes of programs: sources and options.

use super::source::Switch;
use super::spec::{options, Constant, Tier};
use super::{Class, Family};
use crate::runtime::{Device, DeviceClass};

/// Everything that a program is made from.
#[derive(Debug)]
pub(super) struct Recipe {
    pub device: &'static Device,
    pub family: Family,
    pub class: Class,
    pub tier: Tier,
    pub constants: Vec<Constant>,
    /// Empty where the family has no switch over ops.
    pub switch: Switch,
}

impl Recipe {
    /// Family, class and constants, for messages.
    pub fn name(&self) -> String {
        format!("{} {}{}", self.family.name(), self.class.define(), options(&self.constants))
    }

    /// Returns true for kernels of `torch.compile` and of the user's own.
    pub fn is_written_at_run_time(&self) -> bool {
        matches!(self.family, Family::Generated | Family::User | Family::MatmulFused | Family::GemmLocalFused)
    }

    pub(super) fn source(&self) -> String {
        self.family.source(&self.switch)
    }

    pub(super) fn options(&self) -> String {
        let fp64 = self.device.info.fp64;
        // Drivers must not warn: PoCL would tell users how many warnings there were.
        let mut text = format!("-cl-std=CL1.2 -w -D {}", self.class.define());
        if self.device.class == DeviceClass::Cpu {
            text.push_str(" -D IS_CPU");
        }
        if fp64 {
            text.push_str(" -D HAS_FP64");
        }
        if self.device.info.has_clang_builtins() {
            text.push_str(" -D HAS_CLANG_BUILTINS");
        }
        // GPUs do not round division correctly by default, and a floor or a remainder is then off by one.
        if self.device.info.exact_quotients && self.device.class == DeviceClass::Gpu {
            text.push_str(" -cl-fp32-correctly-rounded-divide-sqrt");
        }
        text + &options(&self.constants)
    }
}
