//! Traces for profilers: commands with their device, their stream, and the host's time.

use std::time::{SystemTime, UNIX_EPOCH};

use super::device::{devices, DeviceState};
use crate::cl::{self, TracedCommand};
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
    /// What was done.
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
    cl::stop_trace();
    let mut queues = Vec::new();
    for device in devices()? {
        let Some(state) = device.initialised() else { continue };
        state.synchronize()?;
        let offset = clock_offset(state)?;
        queues.extend(state.trace_ids().map(|(queue, stream)| (queue, device.index, stream, offset)));
    }
    let located = |command: TracedCommand| {
        let (_, device, stream, offset) = *queues.iter().find(|(queue, ..)| *queue == command.queue)?;
        let (start, end) = command.times?;
        let at = |time: u64| offset.saturating_add_unsigned(time);
        Some(ProfiledCommand { device, stream, start: at(start), end: at(end), command })
    };
    Ok(cl::take_trace().into_iter().filter_map(located).collect())
}

fn now() -> i64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_nanos() as i64)
}

/// What the host's clock shows more than the device's, in nanoseconds.
fn clock_offset(state: &DeviceState) -> Result<i64> {
    let queue = state.stream(0)?.queue(&state.context)?;
    let mut least = i64::MAX;
    for _ in 0..CLOCK_READINGS {
        let marker = queue.marker()?;
        queue.wait(&marker)?;
        least = least.min(now().saturating_sub_unsigned(marker.end_time()?));
    }
    Ok(least)
}
