//! Completion of commands.

use std::ffi::c_void;
use std::sync::Arc;
use std::time::{Duration, Instant};

use opencl3::event::{
    create_user_event, get_event_info, get_event_profiling_info, release_event, set_event_callback,
    set_user_event_status, wait_for_events, CL_COMPLETE, CL_EVENT_COMMAND_EXECUTION_STATUS, CL_PROFILING_COMMAND_END,
    CL_PROFILING_COMMAND_START,
};
use opencl3::types::{cl_context, cl_event};

use super::check;
use super::interrupt::{is_possible, Latch};
use crate::error::{Error, Result};

/// An owning `cl_event`.
#[derive(Debug)]
pub struct Event {
    pub(super) handle: cl_event,
    /// Number of commands in its queue up to and including this one; 0 for an event without a queue.
    pub(super) position: u64,
}

// SAFETY: events are reference counted by the driver and may be waited for from any thread.
unsafe impl Send for Event {}
// SAFETY: as above.
unsafe impl Sync for Event {}

impl Event {
    /// An event that completes when [`Self::complete`] is called.
    pub(super) fn user(context: cl_context) -> Result<Self> {
        check("clCreateUserEvent", create_user_event(context)).map(|handle| Self { handle, position: 0 })
    }

    /// Completes a user event.
    pub(super) fn complete(&self) -> Result<()> {
        check("clSetUserEventStatus", set_user_event_status(self.handle, CL_COMPLETE))
    }

    /// Blocks until the command has completed; [`super::Queue::wait`] also records that.
    ///
    /// # Errors
    /// Errors of the driver; [`Error::Interrupted`] if a signal handler raised: the command continues to run then.
    pub fn wait(&self) -> Result<()> {
        if is_possible() && matches!(self.is_complete(), Ok(false)) {
            let latch = Arc::new(Latch::default());
            let opener = Arc::clone(&latch);
            if self.on_completion(move || opener.open()) {
                latch.wait(|| !matches!(self.is_complete(), Ok(false)))?;
            }
        }
        // The host may read what the command wrote only after this call.
        check("clWaitForEvents", wait_for_events(&[self.handle]))
    }

    /// Polls the driver for some time before [`Self::wait`] would sleep.
    pub(super) fn poll(&self, time: Duration) {
        if !is_possible() {
            return;
        }
        let start = Instant::now();
        while matches!(self.is_complete(), Ok(false)) && start.elapsed() < time {
            std::thread::yield_now();
        }
    }

    /// Calls a function, which must not call the driver, from a thread of the driver when the command has completed or
    /// failed. Returns false if the driver refuses; then it is never called.
    pub(super) fn on_completion<F: FnOnce() + Send + 'static>(&self, function: F) -> bool {
        let argument = Box::into_raw(Box::new(function));
        if set_event_callback(self.handle, CL_COMPLETE, completed::<F>, argument.cast()).is_ok() {
            return true;
        }
        // SAFETY: the driver has not taken it.
        drop(unsafe { Box::from_raw(argument) });
        false
    }

    /// Returns true if the command has completed.
    ///
    /// # Errors
    /// [`Error::OpenCl`] if the command itself failed.
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

/// # Safety
/// `argument` is a boxed `F`, and this is called once.
extern "C" fn completed<F: FnOnce()>(_: cl_event, _: i32, argument: *mut c_void) {
    // SAFETY: the driver calls it once with the argument of `on_completion`.
    let function = unsafe { Box::from_raw(argument.cast::<F>()) };
    function();
}

impl Drop for Event {
    fn drop(&mut self) {
        // SAFETY: the handle is owned and released once.
        let _ = unsafe { release_event(self.handle) };
    }
}
