//! The one error type of the crate.
//!
//! Every variant has a Python exception ([`Error::kind`]); `cpp/runtime/error.h` is the only place that converts it to
//! a `c10::Error`.

use std::fmt;
use std::panic::{catch_unwind, AssertUnwindSafe};

/// Result of every fallible function of the crate.
pub type Result<T> = std::result::Result<T, Error>;

/// An error, with enough context for a self-contained message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Error {
    /// An OpenCL call returned a status other than `CL_SUCCESS`.
    OpenCl {
        /// Name of the OpenCL function.
        call: &'static str,
        /// Status it returned.
        code: i32,
    },
    /// No OpenCL loader, driver or device, or none that `TORCH_OPENCL_DEVICES` selects.
    NoDevice(String),
    /// A kernel program did not compile.
    Build {
        /// Kernel family and compute class.
        program: String,
        /// Name of the device it was built for.
        device: String,
        /// The compiler's log.
        log: String,
    },
    /// Device memory is exhausted, or one allocation is over the device's limit.
    OutOfMemory(String),
    /// An index outside its dimension.
    Index(String),
    /// The device or the backend cannot do this for these dtypes or shapes.
    Unsupported(String),
    /// The device has no `cl_khr_fp64`. Only the C++ side knows which operator needs it, and adds its name.
    NoFloat64 {
        /// `torch.float64` or `torch.complex128`.
        dtype: &'static str,
        /// Name of the device.
        device: String,
    },
    /// The arguments contradict each other or the state of the runtime.
    Invalid(String),
    /// The process was forked after OpenCL had been initialised.
    Forked,
    /// A signal handler raised while the host waited: Python has the exception.
    Interrupted,
}

impl Error {
    /// One letter for the Python exception; `cpp/runtime/error.h` has the other half of this table.
    pub const fn kind(&self) -> char {
        match self {
            Self::OutOfMemory(_) => 'M',
            Self::Index(_) => 'I',
            Self::Unsupported(_) => 'N',
            Self::NoFloat64 { .. } => 'D',
            Self::Interrupted => 'S',
            Self::OpenCl { .. } | Self::NoDevice(_) | Self::Build { .. } | Self::Invalid(_) | Self::Forked => 'R',
        }
    }

    /// Message for the user.
    pub fn message(&self) -> String {
        match self {
            Self::OpenCl { call, code } => {
                let name = opencl3::error_codes::error_text(*code);
                format!("OpenCL: {call} failed with {name} ({code})")
            }
            Self::Build { program, device, log } => {
                format!("OpenCL: the kernel program {program} does not compile for '{device}'. Compiler log:\n{log}")
            }
            Self::NoFloat64 { dtype, device } => {
                let instead = if *dtype == "torch.complex128" { "torch.complex64" } else { "torch.float32" };
                format!("OpenCL: '{device}' does not compute in {dtype}. Use {instead} instead.")
            }
            Self::NoDevice(text)
            | Self::OutOfMemory(text)
            | Self::Index(text)
            | Self::Unsupported(text)
            | Self::Invalid(text) => text.clone(),
            Self::Interrupted => "OpenCL: a signal handler raised while the host waited".to_owned(),
            Self::Forked => {
                "Cannot use OpenCL in a forked subprocess: the driver's threads and queues stay in the parent. \
                             To use OpenCL with multiprocessing, use the 'spawn' start method."
                    .to_owned()
            }
        }
    }
}

/// The string that crosses the bridge: the kind, a colon, the message. (cxx passes the output of `Display`.)
impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.kind(), self.message())
    }
}

impl std::error::Error for Error {}

/// Runs code of a crate that panics on errors which it considers impossible: a panic must not cross the bridge.
///
/// # Errors
/// Returns the errors of `run`, and [`Error::Invalid`] after a panic; `what` names the code that failed.
pub fn catch_panic<T>(what: &str, run: impl FnOnce() -> Result<T>) -> Result<T> {
    catch_unwind(AssertUnwindSafe(run)).unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<String>().map(String::as_str).or_else(|| panic.downcast_ref::<&str>().copied());
        Err(Error::Invalid(format!("OpenCL: {what} failed: {}", text.unwrap_or("?"))))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_text_that_crosses_the_bridge_starts_with_the_kind() {
        assert_eq!(Error::Index("index 9 is out of range".to_owned()).to_string(), "I:index 9 is out of range");
        assert_eq!(Error::OutOfMemory("full".to_owned()).to_string(), "M:full");
    }

    #[test]
    fn a_failed_call_is_named_with_its_status() {
        let error = Error::OpenCl { call: "clFinish", code: -5 };
        assert_eq!(error.message(), "OpenCL: clFinish failed with CL_OUT_OF_RESOURCES (-5)");
    }

    #[test]
    fn the_error_for_float64_names_an_alternative() {
        let error = |dtype| Error::NoFloat64 { dtype, device: "Radeon".into() };
        let double = "D:OpenCL: 'Radeon' does not compute in torch.float64. Use torch.float32 instead.";
        assert_eq!(error("torch.float64").to_string(), double);
        assert!(error("torch.complex128").message().ends_with("Use torch.complex64 instead."));
    }

    #[test]
    fn a_program_that_does_not_compile_carries_the_log() {
        let error = Error::Build { program: "scan -D A".into(), device: "GPU".into(), log: "line 3: what?".into() };
        assert!(error.message().contains("scan -D A"));
        assert!(error.message().ends_with("Compiler log:\nline 3: what?"));
    }

    #[test]
    fn a_panic_becomes_an_error() {
        let result: Result<()> = catch_panic("the library", || panic!("no symbol {}", "x"));
        assert_eq!(result.unwrap_err().message(), "OpenCL: the library failed: no symbol x");
    }
}
