//! Launch batching: short launches are held back until there are several.
//!
//! PoCL starts a command when it is enqueued: its threads fall asleep after each short kernel, and waking them for the
//! next costs the host more than the kernel takes. So the first of several short launches waits for a user event, and
//! the following launches, in the in-order queue, wait for the first. Other drivers have the same effect already: they
//! submit commands when they are flushed.

use opencl3::device::Device;
use opencl3::types::{cl_context, cl_event};

use super::{Context, Event};
use crate::error::Result;

/// Maximum number of launches of a batch. For 1000 additions of 4 elements on PoCL with two cores, the time of each
/// until all are enqueued, and until all have completed, is 13 and 14 us without batching, 8.4 and 10 in batches of 64,
/// 7.7 and 9.1 of 256, 5.5 and 7.6 in one batch (`make bench CASES="enqueue round-trip"`): PoCL's threads and the host
/// compete for the queue's lock.
const LARGEST_BATCH: u64 = measured!("LAUNCH_BATCH", 1024);
/// Launches between two flushes if the driver batches them itself, so that the device does not idle for long.
const FLUSH_EVERY: u64 = 64;

/// When a launch has to start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Start {
    /// Immediately, together with all launches held back.
    Now,
    /// With the next command that is not short, or when the host waits or flushes: for kernels that take no longer than
    /// waking a thread.
    Batched,
}

/// The short launches of one queue that are held back.
#[derive(Debug)]
pub(super) struct LaunchBatch {
    context: cl_context,
    /// True if launches are batched at all.
    is_enabled: bool,
    /// The user event that the first launch of the batch waits for.
    event: Option<Event>,
    /// Commands so far, without markers.
    commands: u64,
}

// SAFETY: contexts may be used from any thread (OpenCL 1.2, section A.2).
unsafe impl Send for LaunchBatch {}

impl LaunchBatch {
    /// An empty batch for a queue of the context.
    pub fn new(context: &Context) -> Self {
        Self {
            context: context.handle,
            is_enabled: runs_at_once(&Device::new(context.device().0)),
            event: None,
            commands: 0,
        }
    }

    /// The event that the next launch must wait for, if any.
    pub fn wait_list(&mut self, start: Start) -> Result<Option<cl_event>> {
        if start == Start::Now || !self.is_enabled || self.event.is_some() {
            return Ok(None);
        }
        Ok(Some(self.event.insert(Event::user(self.context)?).handle))
    }

    /// Counts a command other than a marker; returns the new count.
    pub fn count(&mut self) -> u64 {
        self.commands += 1;
        self.commands
    }

    /// Launches after which the queue is flushed.
    pub fn flush_period(&self) -> u64 {
        if self.is_enabled {
            LARGEST_BATCH
        } else {
            FLUSH_EVERY
        }
    }

    /// Starts all launches held back.
    pub fn submit(&mut self) -> Result<()> {
        self.event.take().map_or(Ok(()), |event| event.complete())
    }

    /// Starts all launches held back, and stops batching: other code enqueues commands too, and may wait for them.
    pub fn disable(&mut self) -> Result<()> {
        self.is_enabled = false;
        self.submit()
    }
}

/// Returns true if the device has threads that start commands as they are enqueued. PoCL's device without threads,
/// `basic` or `cpu-minimal`, never returns from completing an event that a command waits for.
fn runs_at_once(device: &Device) -> bool {
    let is_pocl = device.version().is_ok_and(|version| version.contains("PoCL"));
    let has_threads =
        |name: &str| name.starts_with("pthread-") || (name.starts_with("cpu-") && !name.starts_with("cpu-minimal"));
    is_pocl && device.name().is_ok_and(|name| has_threads(&name))
}

impl Drop for LaunchBatch {
    fn drop(&mut self) {
        // Launches held back keep the queue and its buffers alive. A failure cannot be reported here.
        let _ = self.submit();
    }
}
