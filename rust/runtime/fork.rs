//! A forked child does not have its parent's driver threads: every use of the device in it is refused.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Once;

static IN_BAD_FORK: AtomicBool = AtomicBool::new(false);
static INSTALL: Once = Once::new();

extern "C" fn mark_child() {
    IN_BAD_FORK.store(true, Ordering::Relaxed);
}

/// Installs the check; called before the drivers are loaded.
pub fn install() {
    INSTALL.call_once(|| {
        // SAFETY: the handler only stores to an atomic, which is async-signal-safe.
        let _ = unsafe { libc::pthread_atfork(None, None, Some(mark_child)) };
    });
}

/// Returns true if this process was forked from one that had loaded the drivers.
pub fn in_bad_fork() -> bool {
    IN_BAD_FORK.load(Ordering::Relaxed)
}
