//! Waits for the device in the middle of a program, which empty its queue. They warn or raise if the user requests it
//! (`torch.opencl.set_sync_debug_mode`).

use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};

use crate::error::{Error, Result};

/// The reaction to an operation that waits for the device; values as in `torch.cuda.set_sync_debug_mode`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(i32)]
pub enum SyncDebugMode {
    /// No action.
    Default = 0,
    /// The user is warned.
    Warn = 1,
    /// An error is raised.
    Error = 2,
}

static MODE: AtomicI32 = AtomicI32::new(SyncDebugMode::Default as i32);
static UNREPORTED: AtomicBool = AtomicBool::new(false);

/// Sets the mode.
///
/// # Errors
/// [`Error::Invalid`] for an invalid value.
pub fn set_sync_debug_mode(mode: i32) -> Result<()> {
    if !(SyncDebugMode::Default as i32..=SyncDebugMode::Error as i32).contains(&mode) {
        return Err(Error::Invalid(format!("OpenCL: {mode} is not a sync debug mode: expected 0, 1 or 2")));
    }
    MODE.store(mode, Ordering::Relaxed);
    Ok(())
}

/// The mode.
pub fn sync_debug_mode() -> i32 {
    MODE.load(Ordering::Relaxed)
}

/// Called before the host waits for enqueued work, unless the user explicitly requested the wait.
///
/// # Errors
/// [`Error::Invalid`] if waits are refused.
pub fn before_wait() -> Result<()> {
    match MODE.load(Ordering::Relaxed) {
        mode if mode == SyncDebugMode::Warn as i32 => UNREPORTED.store(true, Ordering::Relaxed),
        mode if mode == SyncDebugMode::Error as i32 => {
            return Err(Error::Invalid("called a synchronizing OpenCL operation".to_owned()));
        }
        _ => {}
    }
    Ok(())
}

/// Returns true, once, if a wait must be reported.
pub fn take_sync_warning() -> bool {
    UNREPORTED.load(Ordering::Relaxed) && UNREPORTED.swap(false, Ordering::Relaxed)
}
