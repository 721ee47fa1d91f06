//! Part of the bridge: programs that are built in the background, warnings about them, and signals.

use std::time::Duration;

use crate::cl;
use crate::kernels::{self, set_eager_builds, show_progress};

#[cxx::bridge(namespace = "torch_opencl::bridge")]
pub mod ffi {
    extern "Rust" {
        fn wait_for_builds(seconds: f64) -> i64;
        fn set_eager_builds(on: bool);
        fn watch_signals(on: bool);
        fn show_progress(on: bool);
    }

    unsafe extern "C++" {
        include!("runtime/warning.h");
        fn warn(message: &str);
        include!("runtime/interrupt.h");
        fn run_signal_handlers() -> bool;
    }
}

/// Lets Python run signal handlers while its main thread waits, or stops that.
pub fn watch_signals(on: bool) {
    cl::watch_signals(on.then_some(ffi::run_signal_handlers as cl::RunHandlers));
}

/// Waits for specialised programs that are being built; returns the number that remain after `seconds`.
pub fn wait_for_builds(seconds: f64) -> i64 {
    let limit = Duration::try_from_secs_f64(seconds.max(0.0)).unwrap_or(Duration::MAX);
    kernels::wait_for_builds(limit) as i64
}
