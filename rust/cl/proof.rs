//! First launches of programs that a driver has loaded from its own cache.
//!
//! Such a program may be damaged, and a driver may end the process over it, as late as when a kernel is first launched
//! with groups of a new shape. The [`Witness`] is told here when that may happen, and when it has not.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::OnceLock;

/// Callbacks before and after such launches.
#[derive(Clone, Copy, Debug)]
pub struct Witness {
    /// Before a launch that may end the process; not called again until `proven` is.
    pub doubted: fn(),
    /// After a wait that shows that it has not.
    pub proven: fn(),
}

static WITNESS: OnceLock<Witness> = OnceLock::new();
static IN_DOUBT: AtomicBool = AtomicBool::new(false);

/// Sets the witness. Only the first call takes effect.
pub fn witness_with(witness: Witness) {
    let _ = WITNESS.set(witness);
}

/// Call before anything that may end the process.
pub fn doubt() {
    if let (false, Some(witness)) = (IN_DOUBT.swap(true, Ordering::Relaxed), WITNESS.get()) {
        (witness.doubted)();
    }
}

/// Call after waiting for the device.
pub(super) fn prove() {
    // Nearly always false: the load costs waits nothing.
    if IN_DOUBT.load(Ordering::Relaxed) && IN_DOUBT.swap(false, Ordering::Relaxed) {
        if let Some(witness) = WITNESS.get() {
            (witness.proven)();
        }
    }
}
