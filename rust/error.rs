//! The one error type of the crate.
//!
//! Every variant knows which Python exception it becomes ([`Error::kind`]); `cpp/error.h` is the one place
//! that turns it into a `c10::Error`.

use std::fmt;

/// Result of every fallible function of the crate.
pub type Result<T> = std::result::Result<T, Error>;

/// What went wrong, with enough context for the message to stand on its own.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Error {
    /// An OpenCL call returned a status other than `CL_SUCCESS`.
    OpenCl {
        /// Name of the OpenCL function.
        call: &'static str,
        /// Status it returned.
        code: i32,
    },
    /// No OpenCL loader, driver or device, or none that `TORCH_OPENCL_DEVICES` lets through.
    NoDevice(String),
    /// A kernel program did not compile.
    Build {
        /// Kernel family and compute class.
        program: String,
        /// Name of the device it was built for.
        device: String,
        /// The compiler's own words.
        log: String,
    },
    /// Device memory is exhausted, or one allocation is over the device's limit.
    OutOfMemory(String),
    /// An index outside its dimension.
    Index(String),
    /// The device or the backend cannot do this for these dtypes or shapes.
    Unsupported(String),
    /// The arguments contradict each other or the state of the runtime.
    Invalid(String),
    /// The process was forked after OpenCL had been initialised.
    Forked,
}

impl Error {
    /// One letter that names the Python exception; `cpp/error.h` holds the other half of this table.
    pub const fn kind(&self) -> char {
        match self {
            Self::OutOfMemory(_) => 'M',
            Self::Index(_) => 'I',
            Self::Unsupported(_) => 'N',
            Self::OpenCl { .. } | Self::NoDevice(_) | Self::Build { .. } | Self::Invalid(_) | Self::Forked => 'R',
        }
    }

    /// The text that crosses the bridge: the kind, a colon, the message.
    pub fn tagged(&self) -> String {
        format!("{}:{self}", self.kind())
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::OpenCl { call, code } => {
                let name = opencl3::error_codes::error_text(*code);
                write!(f, "OpenCL: {call} failed with {name} ({code})")
            }
            Self::Build { program, device, log } => {
                write!(f, "OpenCL: the kernel program {program} does not compile for '{device}'. Compiler log:\n{log}")
            }
            Self::NoDevice(text)
            | Self::OutOfMemory(text)
            | Self::Index(text)
            | Self::Unsupported(text)
            | Self::Invalid(text) => f.write_str(text),
            Self::Forked => f.write_str(
                "Cannot use OpenCL in a forked subprocess: the driver's threads and queues stay in the parent. \
                 To use OpenCL with multiprocessing, use the 'spawn' start method.",
            ),
        }
    }
}

impl std::error::Error for Error {}
