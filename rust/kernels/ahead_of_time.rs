//! Processes whose programs are compiled ahead of time, into a bundle.

use std::env;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::OnceLock;

pub(super) const VARIABLE: &str = "TORCH_OPENCL_KERNEL_BUNDLE";

/// The bundle from which this process loads its programs, if it must not compile any.
pub fn bundle_path() -> Option<&'static Path> {
    // Cached, as each matmul needs it, while another thread may be changing the environment.
    static NAMED: OnceLock<Option<PathBuf>> = OnceLock::new();
    NAMED.get_or_init(|| env::var_os(VARIABLE).filter(|value| !value.is_empty()).map(PathBuf::from)).as_deref()
}

static IS_RECORDING: AtomicBool = AtomicBool::new(false);

pub(super) fn start_recording() {
    IS_RECORDING.store(true, Ordering::Relaxed);
}

/// Returns true in a process that records its programs, or loads them from a bundle: it requests only generic programs,
/// and always the same ones, regardless of speed.
pub fn is_ahead_of_time() -> bool {
    bundle_path().is_some() || IS_RECORDING.load(Ordering::Relaxed)
}
