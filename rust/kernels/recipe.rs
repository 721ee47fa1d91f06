//! Recipes of programs: sources and options.

use super::ahead_of_time::is_ahead_of_time;
use super::fma_or_mad::uses_mad;
use super::source::Switch;
use super::spec::{options, Constant, Tier, OPENCL_3};
use super::{Class, Family};
use crate::runtime::{Device, DeviceClass};

/// All inputs of a program.
#[derive(Clone, Debug)]
pub(super) struct Recipe {
    pub device: &'static Device,
    pub family: Family,
    pub class: Class,
    pub tier: Tier,
    pub constants: Vec<Constant>,
    /// Empty if the family has no switch over ops.
    pub switch: Switch,
    /// The program's only kernel; `None` for all kernels of the family.
    pub kernel: Option<&'static str>,
}

impl Recipe {
    /// Family, class, constants and the kernel, for messages.
    pub fn name(&self) -> String {
        let kernel = self.kernel.map_or_else(String::new, |kernel| format!(", {kernel} alone"));
        format!("{} {}{}{kernel}", self.family.name(), self.class.define(), options(&self.constants))
    }

    /// Returns true if each kernel is a separate program. Most compilers compile all kernels of a program when it is
    /// built, each with the functions that it calls: up to a second for a kernel, and ten for a family, for which a
    /// launch waits. Specialised programs are excluded, as no launch waits for them. On drivers that compile a kernel
    /// when it is first launched, reading the source of the others costs less than another program; and in some kernels
    /// that are alone in a program, functions with one call are inlined until PoCL 3.1's LLVM crashes. Bundles
    /// have whole programs, except for FPGAs.
    pub fn is_by_kernel(&self) -> bool {
        let is_generic = self.kernel.is_none() && self.tier == Tier::Generic;
        is_generic && !self.device.info.compiles_at_launch() && !is_ahead_of_time()
    }

    /// Returns true for a generic program of built-in kernels, which a bundle can contain.
    pub fn is_whole_and_generic(&self) -> bool {
        self.tier == Tier::Generic && self.kernel.is_none() && !self.is_written_at_run_time()
    }

    /// The recipe for one kernel.
    pub fn of_kernel(&self, kernel: &'static str) -> Self {
        Self { kernel: Some(kernel), ..self.clone() }
    }

    /// Returns true for kernels of `torch.compile` and of the user.
    pub fn is_written_at_run_time(&self) -> bool {
        matches!(
            self.family,
            Family::Generated | Family::User | Family::MatmulFused | Family::GemmLocalFused | Family::GemmTileFused
        )
    }

    pub(super) fn source(&self) -> String {
        self.family.source(&self.switch)
    }

    pub(super) fn options(&self) -> String {
        let mut text = self.bundle_options();
        if !is_ahead_of_time() && uses_mad(self.device) {
            text.push_str(" -D FMA_OR_MAD=mad");
        }
        text
    }

    /// The options of the program in a bundle, which do not depend on measurements.
    pub(super) fn bundle_options(&self) -> String {
        let fp64 = self.device.info.fp64;
        let standard = if self.constants.contains(&OPENCL_3) { "CL3.0" } else { "CL1.2" };
        // Without warnings: PoCL would print their number to users.
        let mut text = format!("-cl-std={standard} -w -D {}", self.class.define());
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
        // Without it Intel's compiler assumes 32-bit offsets into a buffer.
        if self.device.info.allows_large_buffers() && self.device.info.global_mem > 1 << 32 {
            text.push_str(" -cl-intel-greater-than-4GB-buffer-required");
        }
        if let Some(kernel) = self.kernel {
            // Directives around the kernels test these macros (rust/codegen/guards.rs).
            text.push_str(" -D ONE_KERNEL -D KERNEL_");
            text.push_str(kernel);
            text.push_str("=1");
        }
        text + &options(&self.constants)
    }
}
