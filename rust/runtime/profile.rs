//! Traces for profilers: commands with their device, their stream, and times of the host's clock.

use super::device::{devices, DeviceState};
use crate::cl::{self, Deferred, TracedCommand};
use crate::error::Result;

/// Markers with which the clocks are compared: the host sees a completion late, so the smallest difference is used.
const CLOCK_READINGS: usize = 8;

/// A traced command; its times are nanoseconds since 1970, by the host's clock.
#[derive(Debug)]
pub struct ProfiledCommand {
    /// Index of the device.
    pub device: i32,
    /// Id of the stream.
    pub stream: i64,
    /// Start on the device.
    pub start: i64,
    /// End on the device.
    pub end: i64,
    /// The traced command.
    pub command: TracedCommand,
}

/// Traces the commands of all devices from now on.
pub fn start_profile() {
    cl::start_trace();
}

/// Ends the trace, waits for its commands, and returns them.
///
/// # Errors
/// Errors of the driver.
pub fn stop_profile() -> Result<Vec<ProfiledCommand>> {
    // Its caller, PyTorch's profiler, cannot handle an exception.
    let _deferred = Deferred::new();
    cl::stop_trace();
    let queues = queues_of_trace();
    // Also after an error: each traced command keeps memory of the driver.
    let commands = cl::take_trace();
    let queues = queues?;
    let located = |command: TracedCommand| {
        let (_, device, stream, offset) = *queues.iter().find(|(queue, ..)| *queue == command.queue)?;
        let (start, end) = command.times?;
        let at = |time: u64| offset.saturating_add_unsigned(time);
        Some(ProfiledCommand { device, stream, start: at(start), end: at(end), command })
    };
    Ok(commands.into_iter().filter_map(located).collect())
}

/// The queues of a trace, each with its device, its stream and the difference of the clocks. Waits for them.
fn queues_of_trace() -> Result<Vec<(usize, i32, i64, i64)>> {
    let mut queues = Vec::new();
    for device in devices()? {
        let Some(state) = device.initialised() else { continue };
        state.synchronize()?;
        let offset = clock_offset(state)?;
        queues.extend(state.trace_ids().map(|(queue, stream)| (queue, device.index, stream, offset)));
    }
    Ok(queues)
}

/// Nanoseconds by which the host's clock is ahead of the device's.
fn clock_offset(state: &DeviceState) -> Result<i64> {
    let queue = state.stream(0)?.queue(&state.context)?;
    let mut least = i64::MAX;
    for _ in 0..CLOCK_READINGS {
        let marker = queue.marker()?;
        queue.wait(&marker)?;
        least = least.min(cl::host_time().saturating_sub_unsigned(marker.end_time()?));
    }
    Ok(least)
}
