//! Each thread's current stream of a device.

use std::cell::RefCell;

use super::device::device;
use super::stream::Stream;
use crate::error::Result;

thread_local! {
    /// Current stream id per device index; missing entries mean the default stream.
    static CURRENT: RefCell<Vec<i64>> = const { RefCell::new(Vec::new()) };
}

/// This thread's current stream of a device.
pub fn current_stream(index: i32) -> Result<&'static Stream> {
    // A thread that is exiting, and no longer has the list, uses the default stream.
    let id = CURRENT.try_with(|ids| usize::try_from(index).ok().and_then(|index| ids.borrow().get(index).copied()));
    device(index)?.state()?.stream(id.ok().flatten().unwrap_or(0))
}

/// Makes a stream current for this thread.
pub fn set_current_stream(index: i32, id: i64) -> Result<()> {
    device(index)?.state()?.stream(id)?;
    let Ok(index) = usize::try_from(index) else { return Ok(()) };
    let _ = CURRENT.try_with(|ids| {
        let mut ids = ids.borrow_mut();
        if ids.len() <= index {
            ids.resize(index + 1, 0);
        }
        if let Some(current) = ids.get_mut(index) {
            *current = id;
        }
    });
    Ok(())
}
