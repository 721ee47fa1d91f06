//! First launches of kernels for which a driver loads or compiles code.
//!
//! The files in a driver's own cache may be damaged, and a driver may then end the process, as late as when a kernel is
//! first launched with groups of a new shape. The [`CacheCheck`] is called before this may happen, and after it has
//! not; also while the host waits for code that is compiled so late.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::OnceLock;

/// The driver's action when a kernel is first launched with groups of some shape.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FirstLaunch {
    /// It loads code from its own cache, without checking it.
    Loads,
    /// It compiles the kernel.
    Compiles,
}

/// Callbacks around such launches.
#[derive(Clone, Copy, Debug)]
pub struct CacheCheck {
    /// Before a launch that may end the process; not called again until `verified` is.
    pub suspect: fn(),
    /// After a wait which shows that the process survived it.
    pub verified: fn(),
    /// With true before a wait for a kernel that the driver compiles now, and with false after it.
    pub waits_for_compiler: fn(bool),
}

static CACHE_CHECK: OnceLock<CacheCheck> = OnceLock::new();
static SUSPECT: AtomicBool = AtomicBool::new(false);
static COMPILES: AtomicBool = AtomicBool::new(false);

/// Sets the check of the driver's cache. Only the first call takes effect.
pub fn set_cache_check(check: CacheCheck) {
    let _ = CACHE_CHECK.set(check);
}

/// Called before a first launch.
pub(super) fn expect(first: FirstLaunch) {
    if first == FirstLaunch::Compiles {
        COMPILES.store(true, Ordering::Relaxed);
    } else if let (false, Some(check)) = (SUSPECT.swap(true, Ordering::Relaxed), CACHE_CHECK.get()) {
        (check.suspect)();
    }
}

/// Called before waiting for the device; the result lives until the wait ends.
pub(super) fn wait() -> Option<WaitForCompiler> {
    // Nearly always false, so that a wait costs only this load.
    let check = COMPILES.load(Ordering::Relaxed).then(|| CACHE_CHECK.get()).flatten()?;
    (check.waits_for_compiler)(true);
    Some(WaitForCompiler(check))
}

/// A wait during which the driver compiles.
pub(super) struct WaitForCompiler(&'static CacheCheck);

impl Drop for WaitForCompiler {
    fn drop(&mut self) {
        (self.0.waits_for_compiler)(false);
    }
}

/// Called after waiting for the device.
pub(super) fn verify() {
    // Nearly always false, too.
    if COMPILES.load(Ordering::Relaxed) {
        COMPILES.store(false, Ordering::Relaxed);
    }
    if SUSPECT.load(Ordering::Relaxed) && SUSPECT.swap(false, Ordering::Relaxed) {
        if let Some(check) = CACHE_CHECK.get() {
            (check.verified)();
        }
    }
}
