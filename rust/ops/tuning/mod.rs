//! Tuning of matmuls and convolutions on a device: parameters whose best values depend on its caches and registers.
//!
//! Each class of devices has its defaults; `python -m torch_opencl.tune` measures better values, and keeps them in a
//! file (`file.rs`). Bad values make a matmul slow, never wrong: values that a kernel does not support are refused.

mod cpu;
mod field;
mod file;
mod gpu;

use std::collections::BTreeMap;
use std::sync::{PoisonError, RwLock};

use serde_json::{Map, Value};

use crate::cl::DeviceInfo;
use crate::error::{Error, Result};
use crate::kernels::warn;
use crate::runtime::{Device, DeviceClass};

pub use cpu::CpuTuning;
pub use file::{header, path, text};
pub use gpu::GpuTuning;

/// The parameters of a device, by its class.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tuning {
    /// Parameters of CPUs.
    Cpu(CpuTuning),
    /// Parameters of GPUs.
    Gpu(GpuTuning),
}

/// Tunings by index of the device. A matmul reads its tuning once, so a later change does not affect it.
static TUNINGS: RwLock<BTreeMap<i32, Tuning>> = RwLock::new(BTreeMap::new());

impl Tuning {
    /// Defaults of devices like this one.
    pub fn default_of(class: DeviceClass, info: &DeviceInfo) -> Self {
        match class {
            DeviceClass::Cpu => Self::Cpu(CpuTuning::of(info)),
            DeviceClass::Gpu => Self::Gpu(GpuTuning::of(info)),
        }
    }

    /// The parameters in use on a device: values that were set, else those of its file, else the defaults.
    pub fn of(device: &Device) -> Self {
        let known = TUNINGS.read().unwrap_or_else(PoisonError::into_inner).get(&device.index).copied();
        known.unwrap_or_else(|| {
            let loaded = Self::load(device);
            *TUNINGS.write().unwrap_or_else(PoisonError::into_inner).entry(device.index).or_insert(loaded)
        })
    }

    /// Uses these parameters on a device from now on, in this process.
    pub fn set(self, device: &Device) {
        TUNINGS.write().unwrap_or_else(PoisonError::into_inner).insert(device.index, self);
    }

    /// The parameters that a process starts with. A file that cannot be used costs only speed.
    pub fn load(device: &Device) -> Self {
        let default = Self::default_of(device.class, &device.info);
        let values = match file::values(device) {
            Ok(None) => return default,
            Ok(Some(values)) => default.with(&values, &device.info).map_err(|error| error.message()),
            Err(reason) => Err(reason),
        };
        values.unwrap_or_else(|reason| {
            let path = path(device).unwrap_or_default();
            warn(&format!(
                "OpenCL: the tuning in {} is not used: {reason}. Run `python -m torch_opencl.tune` to measure again.",
                path.display()
            ));
            default
        })
    }

    /// With some values replaced.
    ///
    /// # Errors
    /// [`Error::Invalid`] for unknown parameters, and for values that kernels do not support or that do not fit the
    /// device.
    pub fn with(mut self, values: &Map<String, Value>, info: &DeviceInfo) -> Result<Self> {
        match &mut self {
            Self::Cpu(tuning) => field::read(&mut tuning.fields(), values)?,
            Self::Gpu(tuning) => {
                field::read(&mut tuning.fields(), values)?;
                tuning.check(info)?;
            }
        }
        Ok(self)
    }

    /// [`Self::with`] for the values of a JSON object.
    ///
    /// # Errors
    /// See [`Self::with`]; [`Error::Invalid`] for text that is not a JSON object.
    pub fn with_text(self, text: &str, info: &DeviceInfo) -> Result<Self> {
        match serde_json::from_str(text) {
            Ok(Value::Object(values)) => self.with(&values, info),
            _ => Err(Error::Invalid(format!("OpenCL: a tuning is a JSON object of whole numbers, not {text}"))),
        }
    }

    /// The values, by name.
    pub fn values(mut self) -> Map<String, Value> {
        match &mut self {
            Self::Cpu(tuning) => field::write(&tuning.fields()),
            Self::Gpu(tuning) => field::write(&tuning.fields()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cl::DeviceType;

    fn device() -> DeviceInfo {
        DeviceInfo::imagined(1, "device", "platform", DeviceType::Gpu)
    }

    #[test]
    fn defaults_are_allowed_and_come_back() {
        for class in [DeviceClass::Cpu, DeviceClass::Gpu] {
            let default = Tuning::default_of(class, &device());
            assert_eq!(default.with(&default.values(), &device()), Ok(default));
        }
    }

    #[test]
    fn unsupported_values_are_refused_with_the_reason() {
        let info = device();
        let cpu = Tuning::default_of(DeviceClass::Cpu, &info);
        for (text, reason) in [
            ("", "JSON object"),
            ("[1]", "JSON object"),
            (r#"{"side": 8}"#, "has no parameter side: expected some of vector_bytes, tile_rows"),
            // The name that earlier versions gave block_k.
            (r#"{"depth": 64}"#, "has no parameter depth: expected some of vector_bytes"),
            (r#"{"block_k": 0}"#, "block_k = 0: expected a multiple of 1 from 16 to 4096"),
            (r#"{"block_k": 2.5}"#, "block_k = 2.5: expected a whole number"),
            (r#"{"block_k": "384"}"#, "expected a whole number"),
            (r#"{"tile_rows": 6}"#, "tile_rows = 6: expected a multiple of 4"),
            (r#"{"vector_bytes": 128}"#, "vector_bytes = 128"),
            (r#"{"block_bytes": 1e300}"#, "expected a whole number"),
            (r#"{"kept_bytes": -9223372036854775808}"#, "kept_bytes"),
        ] {
            assert!(cpu.with_text(text, &info).is_err_and(|error| error.message().contains(reason)), "{text}");
        }
        let gpu = Tuning::default_of(DeviceClass::Gpu, &info);
        assert!(gpu.with_text(r#"{"side": 32}"#, &info).is_err_and(|error| error.message().contains("1024 items")));
        assert!(gpu.with_text(r#"{"band": 4}"#, &info).is_ok_and(|tuning| tuning != gpu));
    }
}
