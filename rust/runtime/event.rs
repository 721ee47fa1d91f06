//! Events with timing, as `torch.Event` records, waits for and measures them.

use super::device::device;
use crate::cl::{Event, Queue};
use crate::error::{Error, Result};

/// A marker recorded on a stream.
#[derive(Debug)]
pub struct TimedEvent {
    device: i32,
    queue: &'static Queue,
    marker: Event,
}

impl TimedEvent {
    /// Records a marker behind everything enqueued on the stream so far.
    pub fn record(index: i32, stream: i64) -> Result<Self> {
        let state = device(index)?.state()?;
        let queue = state.stream(stream)?.queue(&state.context)?;
        let marker = queue.marker()?;
        queue.flush()?;
        Ok(Self { device: index, queue, marker })
    }

    /// Holds back a stream's later work until the event has completed.
    ///
    /// Between two devices there is no shared context to express this in: the host waits instead.
    pub fn block(&self, index: i32, stream: i64) -> Result<()> {
        if index != self.device {
            return self.synchronize();
        }
        let state = device(index)?.state()?;
        let queue = state.stream(stream)?.queue(&state.context)?;
        // A queue is in order, and nothing needs to wait for a completed event.
        if std::ptr::eq(queue, self.queue) || self.queue.is_known_complete(&self.marker) {
            return Ok(());
        }
        queue.wait_for(&self.marker)
    }

    /// Returns true if everything before the event has completed.
    pub fn is_complete(&self) -> Result<bool> {
        self.queue.is_complete(&self.marker)
    }

    /// Blocks the host until the event has completed.
    pub fn synchronize(&self) -> Result<()> {
        self.queue.wait(&self.marker)
    }

    /// Milliseconds of device time from this event to `end`.
    ///
    /// # Errors
    /// [`Error::Invalid`] when either has not completed or they belong to different devices.
    pub fn elapsed_ms(&self, end: &Self) -> Result<f64> {
        if self.device != end.device {
            return Err(Error::Invalid("OpenCL: both events must belong to the same device".to_owned()));
        }
        if !self.is_complete()? || !end.is_complete()? {
            return Err(Error::Invalid(
                "OpenCL: both events must be completed before calculating elapsed time: synchronize first".to_owned(),
            ));
        }
        let (start, end) = (self.marker.end_time()?, end.marker.end_time()?);
        Ok((end as f64 - start as f64) / 1e6)
    }
}
