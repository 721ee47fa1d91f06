//! The keys of a row that say which calls ATen's CPU kernels compute on devices that are a CPU.

use super::check::Checker;
use super::dtypes::Dtypes;
use super::table::Row;

/// Calls that CPU devices leave to ATen's own function.
#[derive(Clone, Copy, Debug)]
pub struct OnCpu {
    pub calls: CpuCalls,
    /// Dtypes of their tensors.
    pub dtypes: Dtypes,
}

/// `Cost` of `cpu_policy.h`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cost {
    Elements,
    Matmul,
    Sizes,
}

/// The values of `on_cpu`. `CpuCalls` of `cpu_policy.h` has those for which a call may wait for the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CpuCalls {
    Always,
    Large,
    Small,
    Never,
}

impl CpuCalls {
    /// Returns true if the CPU computes such calls even if they have to wait for the device.
    pub fn may_wait(self) -> bool {
        matches!(self, Self::Always | Self::Large)
    }
}

impl Checker<'_> {
    pub(super) fn on_cpu(&mut self, row: &Row, dtypes: Dtypes) -> Option<OnCpu> {
        let cpu_dtypes = self.dtypes(&row.cpu_dtypes);
        let Some(choice) = &row.on_cpu else {
            if let Some(first) = row.cpu_dtypes.first() {
                self.report.error(first.line, "`cpu_dtypes` needs `on_cpu`");
            }
            return None;
        };
        let calls = match choice.value.as_str() {
            "always" => CpuCalls::Always,
            "large" => CpuCalls::Large,
            "small" => CpuCalls::Small,
            "never" => CpuCalls::Never,
            _ => return self.bad_value("on_cpu", choice, "`always`, `large`, `small`, `never`, or no such key"),
        };
        if let (false, Some(first)) = (calls.may_wait(), row.cpu_dtypes.first()) {
            self.report.error(first.line, format!("`on_cpu: {}` excludes `cpu_dtypes`", choice.value));
        }
        if calls == CpuCalls::Small && row.family.as_ref().is_some_and(|family| family.value == "random") {
            self.report.error(choice.line, "random numbers come from kernels: family `random` has no `on_cpu: small`");
        }
        Some(OnCpu { calls, dtypes: if cpu_dtypes.is_empty() { dtypes } else { cpu_dtypes } })
    }

    pub(super) fn cost(&mut self, row: &Row) -> Option<Cost> {
        let cost = row.cost.as_ref()?;
        match cost.value.as_str() {
            "elements" => Some(Cost::Elements),
            "matmul" => Some(Cost::Matmul),
            "sizes" => Some(Cost::Sizes),
            _ => self.bad_value("cost", cost, "`elements`, `matmul`, `sizes`, or no such key"),
        }
    }
}
