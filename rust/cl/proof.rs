//! First launches of kernels for which a driver loads or compiles code.
//!
//! The files in a driver's own cache may be damaged, and a driver may then end the process, as late as when a kernel is
//! first launched with groups of a new shape. The [`Witness`] is called before this may happen, and after it has not;
//! also while the host waits for code that is compiled so late.

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
pub struct Witness {
    /// Before a launch that may end the process; not called again until `proven` is.
    pub doubted: fn(),
    /// After a wait which shows that the process survived it.
    pub proven: fn(),
    /// With true before a wait for a kernel that the driver compiles now, and with false after it.
    pub waits_for_compiler: fn(bool),
}

static WITNESS: OnceLock<Witness> = OnceLock::new();
static IN_DOUBT: AtomicBool = AtomicBool::new(false);
static COMPILES: AtomicBool = AtomicBool::new(false);

/// Sets the witness. Only the first call takes effect.
pub fn witness_with(witness: Witness) {
    let _ = WITNESS.set(witness);
}

/// Called before a first launch.
pub(super) fn expect(first: FirstLaunch) {
    if first == FirstLaunch::Compiles {
        COMPILES.store(true, Ordering::Relaxed);
    } else if let (false, Some(witness)) = (IN_DOUBT.swap(true, Ordering::Relaxed), WITNESS.get()) {
        (witness.doubted)();
    }
}

/// Called before waiting for the device; the result lives until the wait ends.
pub(super) fn wait() -> Option<WaitForCompiler> {
    // Nearly always false, so that a wait costs only this load.
    let witness = COMPILES.load(Ordering::Relaxed).then(|| WITNESS.get()).flatten()?;
    (witness.waits_for_compiler)(true);
    Some(WaitForCompiler(witness))
}

/// A wait during which the driver compiles.
pub(super) struct WaitForCompiler(&'static Witness);

impl Drop for WaitForCompiler {
    fn drop(&mut self) {
        (self.0.waits_for_compiler)(false);
    }
}

/// Called after waiting for the device.
pub(super) fn prove() {
    // Nearly always false, too.
    if COMPILES.load(Ordering::Relaxed) {
        COMPILES.store(false, Ordering::Relaxed);
    }
    if IN_DOUBT.load(Ordering::Relaxed) && IN_DOUBT.swap(false, Ordering::Relaxed) {
        if let Some(witness) = WITNESS.get() {
            (witness.proven)();
        }
    }
}
