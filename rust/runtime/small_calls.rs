//! Small calls: on CPU devices, ATen's CPU function on idle memory takes less time than enqueueing a kernel.

use std::sync::atomic::{AtomicUsize, Ordering};

use super::class::DeviceClass;
use super::current::current_stream;
use super::device::device_of_address;
use crate::error::{Error, Result};

/// The variable with the initial choice of a process.
const VARIABLE: &str = "TORCH_OPENCL_SMALL_CALLS";

/// The implementation of small calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SmallCalls {
    /// ATen's CPU functions if the device is a CPU and idle, otherwise kernels.
    Host,
    /// Kernels.
    Kernels,
}

impl SmallCalls {
    const ALL: [Self; 2] = [Self::Host, Self::Kernels];

    /// Its name in the user's interface.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Host => "host",
            Self::Kernels => "kernels",
        }
    }

    fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|choice| choice.name() == name)
    }
}

/// Index in [`SmallCalls::ALL`] plus one; 0 before the first use. Not a lock, as every small call reads it.
static CHOSEN: AtomicUsize = AtomicUsize::new(0);

fn store(choice: SmallCalls) {
    let position = SmallCalls::ALL.iter().position(|known| *known == choice);
    CHOSEN.store(position.map_or(0, |position| position + 1), Ordering::Relaxed);
}

/// The choice: the user's last one, otherwise `TORCH_OPENCL_SMALL_CALLS`, otherwise the host.
///
/// # Errors
/// [`Error::Invalid`] if the variable has another value.
pub fn small_calls() -> Result<SmallCalls> {
    let chosen = CHOSEN.load(Ordering::Relaxed).checked_sub(1).and_then(|position| SmallCalls::ALL.get(position));
    if let Some(choice) = chosen {
        return Ok(*choice);
    }
    let choice = match std::env::var(VARIABLE) {
        Ok(name) => SmallCalls::named(&name)
            .ok_or_else(|| Error::Invalid(format!("{VARIABLE}={name}: expected 'host' or 'kernels'")))?,
        Err(_) => SmallCalls::Host,
    };
    store(choice);
    Ok(choice)
}

/// Sets the choice for this process.
///
/// # Errors
/// [`Error::Invalid`] for an unknown name.
pub fn set_small_calls(name: &str) -> Result<()> {
    let choice = SmallCalls::named(name).ok_or_else(|| {
        Error::Invalid(format!("OpenCL: small calls are computed by 'host' or by 'kernels', not by '{name}'"))
    })?;
    store(choice);
    Ok(())
}

/// Replaces addresses of one device by host addresses of the same memory, if the host may use it now: the device is a
/// CPU and shares memory without mapping, and all work of the current stream is known to have completed. Otherwise
/// returns false, with the addresses in an unspecified state.
///
/// A stream is known to be idle only after a thread has waited for it, which depends on the program and not on timing.
/// A single-threaded program therefore has its calls computed by the same functions in each run.
pub fn to_host_if_idle(addresses: &mut [usize]) -> bool {
    let Some(first) = addresses.first() else { return false };
    if small_calls() != Ok(SmallCalls::Host) {
        return false;
    }
    let Ok(device) = device_of_address(*first) else { return false };
    let (DeviceClass::Cpu, Ok(state)) = (device.class, device.state()) else { return false };
    if !current_stream(device.index).is_ok_and(|stream| stream.is_open_to_host(&state.context)) {
        return false;
    }
    addresses.iter_mut().all(|address| {
        let host = state.host_address(*address);
        *address = host.unwrap_or(0);
        host.is_some()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_choice_has_one_of_two_names() {
        assert_eq!(SmallCalls::named(SmallCalls::Kernels.name()), Some(SmallCalls::Kernels));
        assert!(set_small_calls("gpu").is_err_and(|error| error.message().contains("'host' or by 'kernels'")));
    }

    #[test]
    fn memory_outside_devices_is_not_replaced() {
        assert!(!to_host_if_idle(&mut [0x10]));
        assert!(!to_host_if_idle(&mut []));
    }
}
