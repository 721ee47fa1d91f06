//! Streams: in-order queues from a fixed pool per device.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use super::faults::{BadPlace, Faults, Launched};
use crate::cl::{Arg, Context, Event, Grid, Kernel, MemHandle, Queue, Read, Start};
use crate::error::Result;

/// Streams of the pool, besides the default stream; the pool is handed out round robin.
pub const POOL_STREAMS: i64 = 32;

/// Longest time that a driver needs to complete a marker with nothing before it.
const MARKER_TIME: Duration = Duration::from_micros(500);

static LAUNCHES: AtomicU64 = AtomicU64::new(0);

/// Kernels enqueued by this process.
pub fn launch_count() -> u64 {
    LAUNCHES.load(Ordering::Relaxed)
}

/// One in-order queue of a device; the queue is made on first use.
#[derive(Debug)]
pub struct Stream {
    device: i32,
    id: i64,
    queue: OnceLock<Result<Queue>>,
    /// The marker that was last asked about.
    probe: Mutex<Option<Event>>,
    faults: Faults,
}

impl Stream {
    pub(super) fn new(device: i32, id: i64) -> Self {
        Self { device, id, queue: OnceLock::new(), probe: Mutex::new(None), faults: Faults::default() }
    }

    /// Index of the stream's device.
    pub fn device(&self) -> i32 {
        self.device
    }

    /// 0 for the default stream.
    pub fn id(&self) -> i64 {
        self.id
    }

    /// The queue, created on first use.
    pub fn queue(&self, context: &Context) -> Result<&Queue> {
        self.queue.get_or_init(|| Queue::new(context)).as_ref().map_err(Clone::clone)
    }

    /// The queue, if anything was ever enqueued.
    fn used_queue(&self) -> Option<&Queue> {
        self.queue.get().and_then(|queue| queue.as_ref().ok())
    }

    /// Enqueues a kernel.
    pub fn launch(
        &self,
        context: &Context,
        kernel: &Kernel,
        args: &[Arg<'_>],
        grid: &Grid<'_>,
        start: Start,
    ) -> Result<()> {
        self.queue(context)?.launch(kernel, args, grid, start)?;
        LAUNCHES.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    /// Blocks until the stream has nothing left to do.
    pub fn synchronize(&self) -> Result<()> {
        self.used_queue().map_or(Ok(()), Queue::finish)
    }

    /// The record in which the next kernel may report bad input; [`Self::raise_faults`] raises it.
    pub fn fault_record(&self, context: &Context) -> Result<MemHandle> {
        self.faults.arm(context, self.queue(context)?)
    }

    /// Copies from a buffer to the host, behind everything enqueued before, and raises the faults of the stream's
    /// kernels. Blocks, but once.
    ///
    /// # Safety
    /// The target is writable for as many bytes, and nothing else uses it during the call.
    pub unsafe fn read(&self, context: &Context, read: Read) -> Result<()> {
        // SAFETY: the caller's promise.
        unsafe { self.faults.read_with(self.queue(context)?, read) }
    }

    /// Raises the faults that kernels of the stream recorded since the last call. Waits for them if there were some:
    /// for callers that wait for the stream anyway.
    pub fn raise_faults(&self, launched: Launched) -> Result<()> {
        self.used_queue().map_or(Ok(()), |queue| self.faults.raise(queue, launched))
    }

    /// The record in which kernels report an index out of range; [`Self::take_place`] reads it.
    pub fn place_record(&self, context: &Context) -> Result<MemHandle> {
        self.faults.place(context, self.queue(context)?)
    }

    /// Waits for the stream, and returns the index out of range that the calling thread's kernels have reported.
    pub fn take_place(&self, context: &Context) -> Result<Option<BadPlace>> {
        self.faults.take_place(context, self.queue(context)?)
    }

    /// Returns true if the stream has nothing left to do.
    ///
    /// A marker completes a little later than the commands before it, so each stretch of work gets one marker,
    /// not each question.
    pub fn is_idle(&self) -> Result<bool> {
        let Some(queue) = self.used_queue() else { return Ok(true) };
        if queue.is_known_idle() {
            return Ok(true);
        }
        let mut probe = self.probe.lock().unwrap_or_else(PoisonError::into_inner);
        let marker = match probe.take() {
            Some(marker) if !queue.has_other_users() && queue.is_last(&marker) => marker,
            _ => {
                let marker = queue.marker()?;
                queue.flush()?;
                marker
            }
        };
        let mut complete = queue.is_complete(&marker)?;
        if queue.has_other_users() {
            // Commands of others since an earlier marker are not counted: only a new one tells, if it is given time.
            let asked = Instant::now();
            while !complete && asked.elapsed() < MARKER_TIME {
                std::thread::yield_now();
                complete = queue.is_complete(&marker)?;
            }
        }
        *probe = Some(marker);
        Ok(complete)
    }
}
