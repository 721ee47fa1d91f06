//! Events with timing, which `torch.Event` records, waits for and measures.

use std::sync::{Arc, Weak};

use super::capture::Capture;
use super::device::device;
use crate::cl::{Event, Queue};
use crate::error::{Error, Result};

/// A marker recorded on a stream.
#[derive(Debug)]
pub struct TimedEvent {
    device: i32,
    mark: Mark,
}

#[derive(Debug)]
enum Mark {
    /// After commands of a queue.
    Enqueued { queue: &'static Queue, marker: Event },
    /// After commands that a capture has recorded.
    Recorded(Weak<Capture>),
}

impl TimedEvent {
    /// Records a marker after everything enqueued on the stream so far.
    pub fn record(index: i32, stream: i64) -> Result<Self> {
        let state = device(index)?.state()?;
        let stream = state.stream(stream)?;
        if let Some(capture) = stream.capture() {
            return Ok(Self { device: index, mark: Mark::Recorded(Arc::downgrade(&capture)) });
        }
        let queue = stream.queue(&state.context)?;
        let marker = queue.marker()?;
        queue.flush()?;
        Ok(Self { device: index, mark: Mark::Enqueued { queue, marker } })
    }

    /// The queue and the marker.
    ///
    /// # Errors
    /// [`Error::Invalid`] for an event that a capture has recorded: it has no time.
    fn enqueued(&self) -> Result<(&'static Queue, &Event)> {
        match &self.mark {
            Mark::Enqueued { queue, marker } => Ok((queue, marker)),
            Mark::Recorded(capture) => Err(match capture.upgrade() {
                Some(capture) => capture.refuse("an event of the capture was waited for or queried"),
                None => Error::Invalid(
                    "OpenCL: an event that was recorded while a graph was captured orders the work of that graph, and \
                     cannot be waited for or queried."
                        .to_owned(),
                ),
            }),
        }
    }

    /// Delays a stream's later work until the event has completed. A stream that waits for an event of a capture joins
    /// the capture.
    ///
    /// Two devices share no context in which to express this: the host waits instead.
    pub fn block(&self, index: i32, stream: i64) -> Result<()> {
        let state = device(index)?.state()?;
        let stream = state.stream(stream)?;
        let (queue, marker) = match &self.mark {
            Mark::Recorded(capture) => {
                let active = capture.upgrade().filter(|capture| capture.is_active());
                return active.map_or(Ok(()), |capture| capture.join(stream));
            }
            Mark::Enqueued { queue, marker } => (*queue, marker),
        };
        // A graph cannot wait for work outside it, and need not if that work has completed.
        if let Some(capture) = stream.capture() {
            let is_over = queue.is_complete(marker)?;
            let what = "a capturing stream was to wait for work that is not captured,";
            return if is_over { Ok(()) } else { Err(capture.refuse(what)) };
        }
        if index != self.device {
            return self.synchronize();
        }
        let target = stream.queue(&state.context)?;
        // A queue is in order, and a completed event needs no wait.
        if std::ptr::eq(target, queue) || queue.is_known_complete(marker) {
            return Ok(());
        }
        target.wait_for(marker)
    }

    /// Returns true if everything before the event has completed.
    pub fn is_complete(&self) -> Result<bool> {
        let (queue, marker) = self.enqueued()?;
        queue.is_complete(marker)
    }

    /// Blocks the host until the event has completed.
    pub fn synchronize(&self) -> Result<()> {
        let (queue, marker) = self.enqueued()?;
        queue.wait(marker)
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
        let (start, end) = (self.enqueued()?.1.end_time()?, end.enqueued()?.1.end_time()?);
        Ok((end as f64 - start as f64) / 1e6)
    }
}
