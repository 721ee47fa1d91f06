//! The class of a device, CPU or GPU, which selects its kernels.

use std::env::{self, VarError};

use crate::cl::DeviceType;
use crate::error::{Error, Result};

const VARIABLE: &str = "TORCH_OPENCL_DEVICE_CLASS";

/// The kind of device that kernels are tuned for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeviceClass {
    /// CPUs: wide vectors, large caches, independent work-items.
    Cpu,
    /// GPUs: work-groups that share local memory, neighbouring work-items that read neighbouring addresses.
    Gpu,
}

impl DeviceClass {
    /// The class that `TORCH_OPENCL_DEVICE_CLASS` forces on every device, if it is set.
    ///
    /// # Errors
    /// [`Error::Invalid`] for values other than `cpu` and `gpu`.
    pub fn forced() -> Result<Option<Self>> {
        match env::var(VARIABLE) {
            Ok(text) => Self::parse(&text).map(Some),
            Err(VarError::NotPresent) => Ok(None),
            Err(VarError::NotUnicode(raw)) => Self::parse(&raw.to_string_lossy()).map(Some),
        }
    }

    fn parse(text: &str) -> Result<Self> {
        match text {
            "cpu" => Ok(Self::Cpu),
            "gpu" => Ok(Self::Gpu),
            _ => Err(Error::Invalid(format!("{VARIABLE}={text}: expected cpu or gpu."))),
        }
    }

    /// Its name, a value of `TORCH_OPENCL_DEVICE_CLASS`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Cpu => "cpu",
            Self::Gpu => "gpu",
        }
    }

    /// The class of a device by its type.
    pub const fn of(device_type: DeviceType) -> Self {
        match device_type {
            DeviceType::Cpu => Self::Cpu,
            DeviceType::Gpu | DeviceType::Accelerator => Self::Gpu,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_type_decides_if_no_class_is_forced() {
        assert_eq!(DeviceClass::of(DeviceType::Cpu), DeviceClass::Cpu);
        assert_eq!(DeviceClass::of(DeviceType::Accelerator), DeviceClass::Gpu);
    }

    #[test]
    fn other_values_are_refused() {
        assert_eq!(DeviceClass::parse("gpu"), Ok(DeviceClass::Gpu));
        assert!(DeviceClass::parse("tpu").is_err_and(|error| error.message().contains("expected cpu or gpu")));
    }
}
