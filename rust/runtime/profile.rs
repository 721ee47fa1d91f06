//! Traces for profilers: commands with their device, their stream, and the host's time.

use super::device::{devices, DeviceState};
use crate::cl::{self, Deferred, TracedCommand};
use crate::error::Result;

/// Markers that the clocks are compared by: the host is told late, and the earliest counts.
const CLOCK_READINGS: usize = 8;

/// A traced command; its times are nanoseconds since 1970, by the host's clock.
#[derive(Debug)]
pub struct ProfiledCommand {
    /// Index of the device.
    pub device: i32,
    /// Id of the stream.
    pub stream: i64,
    /// When the device began.
    pub start: i64,
    /// When it was done.
    pub end: i64,
    /// The command as it was traced.
    pub command: TracedCommand,
}

/// Traces the commands of all devices from now on.
pub fn start_profile() {
    cl::start_trace();
}

/// Ends the trace, waits for what it has, and returns that.
///
/// # Errors
/// As the driver reports.
pub fn stop_profile() -> Result<Vec<ProfiledCommand>> {
    // Its caller, PyTorch's profiler, takes no exception.
    let _deferred = Deferred::new();
    cl::stop_trace();
    let queues = queues_of_trace();
    // Also after an error: each command keeps memory of the driver's.
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

/// The queues as traces know them, each with its device, its stream and the difference of their clocks. Waits for them.
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
