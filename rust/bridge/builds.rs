//! A small part of the bridge: programs that are built in the background, and warnings about them.

use std::time::Duration;

use crate::kernels::{self, set_eager_builds};

#[cxx::bridge(namespace = "torch_opencl::bridge")]
pub mod ffi {
    extern "Rust" {
        fn wait_for_builds(seconds: f64) -> i64;
        fn set_eager_builds(on: bool);
    }

    unsafe extern "C++" {
        include!("warning.h");
        fn warn(message: &str);
    }
}

/// Waits for specialised programs that are being built; returns how many are left after `seconds`.
pub fn wait_for_builds(seconds: f64) -> i64 {
    let limit = Duration::try_from_secs_f64(seconds.max(0.0)).unwrap_or(Duration::MAX);
    kernels::wait_for_builds(limit) as i64
}
