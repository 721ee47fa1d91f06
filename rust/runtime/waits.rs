//! Waiting for the device in the middle of a program, which empties its queue: reported, or refused, where the user
//! asks for that (`torch.opencl.set_sync_debug_mode`).

use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};

use crate::error::{Error, Result};

/// The action when an operation waits; the values are those of `torch.cuda`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(i32)]
pub enum SyncDebugMode {
    /// It waits.
    Default = 0,
    /// It waits, and the user is warned.
    Warn = 1,
    /// It raises.
    Error = 2,
}

static MODE: AtomicI32 = AtomicI32::new(SyncDebugMode::Default as i32);
static UNREPORTED: AtomicBool = AtomicBool::new(false);

/// Sets the mode.
///
/// # Errors
/// [`Error::Invalid`] for a value that is no mode.
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

/// Call before the host waits for enqueued work, unless the user asks for just that.
///
/// # Errors
/// [`Error::Invalid`] where waiting is refused.
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

/// Returns true, once, if a wait is to be reported.
pub fn take_sync_warning() -> bool {
    UNREPORTED.load(Ordering::Relaxed) && UNREPORTED.swap(false, Ordering::Relaxed)
}
