//! A thin safe layer over OpenCL 1.2: every handle is an owning type, every status a [`Result`].
//!
//! Only this module and the bridge call the driver. It does not know tensors. [`cuda`] connects it to CUDA.

mod buffer;
mod cache_check;
mod context;
#[cfg_attr(not(feature = "cublas"), path = "cuda/absent.rs")]
pub mod cuda;
mod device;
mod enqueue;
mod event;
mod external;
mod interrupt;
mod kernel;
mod launch_batch;
mod program;
mod queue;
mod queue_throttle;
mod recording;
mod shared;
mod trace;

pub use buffer::{Buffer, MemHandle};
pub use cache_check::{set_cache_check, CacheCheck, FirstLaunch};
pub use context::Context;
pub use device::{platforms, DeviceId, DeviceInfo, DeviceType, PlatformInfo};
pub use event::Event;
pub use interrupt::{is_possible as is_interruptible, watch_signals, Deferred, Latch, RunHandlers};
pub use kernel::{Arg, Kernel, Memory};
pub use launch_batch::Start;
pub use program::{Program, INVALID_KERNEL_NAME};
pub use queue::{Grid, MapAccess, Queue, Read};
pub use recording::Recording;
pub use trace::{
    host_time, pop_correlation, push_correlation, start_trace, stop_trace, take_trace, TracedCommand, TracedKind,
    Untraced,
};

use opencl3::error_codes::ClError;

use crate::error::{Error, Result};

/// A failure as reported by either layer of the OpenCL crates.
pub(crate) trait Status {
    fn code(&self) -> i32;
}

impl Status for i32 {
    fn code(&self) -> i32 {
        *self
    }
}

impl Status for ClError {
    fn code(&self) -> i32 {
        self.0
    }
}

/// Converts a driver status to an [`Error`] that names the call.
pub(crate) fn check<T, S: Status>(call: &'static str, result: std::result::Result<T, S>) -> Result<T> {
    result.map_err(|status| Error::OpenCl { call, code: status.code() })
}
