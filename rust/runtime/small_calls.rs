//! Small calls: where a device is the CPU and has nothing to do, the host computes them sooner than a kernel is enqueued.

use std::sync::atomic::{AtomicUsize, Ordering};

use super::class::DeviceClass;
use super::current::current_stream;
use super::device::device_of_address;
use crate::error::{Error, Result};

/// The variable that gives the choice a process starts with.
const VARIABLE: &str = "TORCH_OPENCL_SMALL_CALLS";

/// Who computes small calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SmallCalls {
    /// ATen's functions for the CPU where the device is the CPU and has nothing to do, else kernels.
    Host,
    /// Kernels.
    Kernels,
}

impl SmallCalls {
    const ALL: [Self; 2] = [Self::Host, Self::Kernels];

    /// The name that users give it.
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

/// Index in [`SmallCalls::ALL`] plus one; 0 before the first question. Not a lock: every small call reads it.
static CHOSEN: AtomicUsize = AtomicUsize::new(0);

fn store(choice: SmallCalls) {
    let position = SmallCalls::ALL.iter().position(|known| *known == choice);
    CHOSEN.store(position.map_or(0, |position| position + 1), Ordering::Relaxed);
}

/// The choice: the last one of the user, else `TORCH_OPENCL_SMALL_CALLS`, else the host.
///
/// # Errors
/// [`Error::Invalid`] when the variable names none.
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

/// Makes a choice for this process.
///
/// # Errors
/// [`Error::Invalid`] for a name that is none.
pub fn set_small_calls(name: &str) -> Result<()> {
    let choice = SmallCalls::named(name).ok_or_else(|| {
        Error::Invalid(format!("OpenCL: small calls are computed by 'host' or by 'kernels', not by '{name}'"))
    })?;
    store(choice);
    Ok(())
}

/// Replaces addresses of one device by those that the host has the memory at, if the host may use it now: the device is
/// the CPU and shares memory without mapping it, and all that the current stream was given is known to have completed.
/// Returns false, and leaves the addresses in no particular state, otherwise.
///
/// Whether a stream is known to be idle is a matter of the program, not of time: a thread learns it by waiting. A program
/// of one thread therefore has its calls computed by the same functions each time.
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
    fn memory_of_no_device_is_not_the_hosts() {
        assert!(!to_host_if_idle(&mut [0x10]));
        assert!(!to_host_if_idle(&mut []));
    }
}
