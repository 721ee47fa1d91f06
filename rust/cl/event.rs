//! Completion of commands.

use opencl3::event::{
    get_event_info, get_event_profiling_info, release_event, wait_for_events, CL_COMPLETE,
    CL_EVENT_COMMAND_EXECUTION_STATUS, CL_PROFILING_COMMAND_END, CL_PROFILING_COMMAND_START,
};
use opencl3::types::cl_event;

use super::check;
use crate::error::{Error, Result};

/// An owning `cl_event`.
#[derive(Debug)]
pub struct Event {
    pub(super) handle: cl_event,
    /// Commands that its queue had taken up to and including this one; 0 for an event of no queue.
    pub(super) position: u64,
}

// SAFETY: events are reference counted by the driver and may be waited for from any thread.
unsafe impl Send for Event {}
// SAFETY: as above.
unsafe impl Sync for Event {}

impl Event {
    /// Blocks until the command has completed; [`super::Queue::wait`] also records that.
    pub fn wait(&self) -> Result<()> {
        check("clWaitForEvents", wait_for_events(&[self.handle]))
    }

    /// Returns true if the command has completed.
    ///
    /// # Errors
    /// [`Error::OpenCl`] when the command itself failed.
    pub fn is_complete(&self) -> Result<bool> {
        let info = check("clGetEventInfo", get_event_info(self.handle, CL_EVENT_COMMAND_EXECUTION_STATUS))?;
        match info.to_int() {
            status if status < 0 => Err(Error::OpenCl { call: "an enqueued command", code: status }),
            status => Ok(status == CL_COMPLETE),
        }
    }

    /// Device time at which the command began, in nanoseconds.
    pub fn start_time(&self) -> Result<u64> {
        let info = get_event_profiling_info(self.handle, CL_PROFILING_COMMAND_START);
        Ok(check("clGetEventProfilingInfo", info)?.to_ulong())
    }

    /// Device time at which the command ended, in nanoseconds.
    pub fn end_time(&self) -> Result<u64> {
        let info = get_event_profiling_info(self.handle, CL_PROFILING_COMMAND_END);
        Ok(check("clGetEventProfilingInfo", info)?.to_ulong())
    }
}

impl Drop for Event {
    fn drop(&mut self) {
        // SAFETY: the handle is owned and released once.
        let _ = unsafe { release_event(self.handle) };
    }
}
