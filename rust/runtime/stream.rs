//! Streams: in-order queues, of which each device has a fixed pool.

use std::any::Any;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use super::capture::Capture;
use super::faults::{BadIndexRecord, Faults, Launched};
use super::waits::before_wait;
use crate::cl::{Arg, Context, Event, Grid, Kernel, MemHandle, Queue, Read, Recording, Start};
use crate::error::Result;

/// Streams of the pool, without the default stream; they are handed out round robin.
pub const POOL_STREAMS: i64 = 32;

/// Longest time that a driver needs to complete a marker without commands before it.
const MARKER_TIME: Duration = Duration::from_micros(500);

static LAUNCHES: AtomicU64 = AtomicU64::new(0);

/// Kernels enqueued by this process.
pub fn launch_count() -> u64 {
    LAUNCHES.load(Ordering::Relaxed)
}

/// An in-order queue of a device; the queue is created on first use.
#[derive(Debug)]
pub struct Stream {
    device: i32,
    id: i64,
    queue: OnceLock<Result<Queue>>,
    /// The marker that was last queried.
    probe: Mutex<Option<Event>>,
    faults: Faults,
    /// The capture that records its commands.
    capture: Mutex<Option<Arc<Capture>>>,
    /// True if `capture` is set, so that launches need no lock.
    is_capturing: AtomicBool,
}

impl Stream {
    pub(super) fn new(device: i32, id: i64) -> Self {
        Self {
            device,
            id,
            queue: OnceLock::new(),
            probe: Mutex::new(None),
            faults: Faults::default(),
            capture: Mutex::new(None),
            is_capturing: AtomicBool::new(false),
        }
    }

    /// A stream of an existing queue.
    pub(super) fn of_queue(device: i32, id: i64, queue: Queue) -> Self {
        Self { queue: OnceLock::from(Ok(queue)), ..Self::new(device, id) }
    }

    /// Index of the stream's device.
    pub fn device(&self) -> i32 {
        self.device
    }

    /// 0 for the default stream.
    pub fn id(&self) -> i64 {
        self.id
    }

    /// The capture that records its commands, if there is one.
    pub fn capture(&self) -> Option<Arc<Capture>> {
        if !self.is_capturing.load(Ordering::Acquire) {
            return None;
        }
        self.capture.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(super) fn set_capture(&self, capture: Option<Arc<Capture>>) {
        let mut slot = self.capture.lock().unwrap_or_else(PoisonError::into_inner);
        self.is_capturing.store(capture.is_some(), Ordering::Release);
        *slot = capture;
    }

    /// Keeps a value alive as long as the graph that is being captured, if there is one, may use it.
    pub fn keep<T: Any + Send + Sync>(&self, value: &Arc<T>) {
        if let Some(capture) = self.capture() {
            capture.keep(Arc::clone(value) as Arc<dyn Any + Send + Sync>);
        }
    }

    /// The queue, for commands that no graph holds, and for waits.
    ///
    /// # Errors
    /// [`crate::error::Error::Invalid`] during a capture.
    pub fn queue(&self, context: &Context) -> Result<&Queue> {
        self.refuse_capture("the host cannot wait for the device, nor read or write its memory,")?;
        self.own_queue(context)
    }

    /// Refuses a call during a capture.
    ///
    /// # Errors
    /// [`crate::error::Error::Invalid`] during a capture, which it invalidates.
    pub fn refuse_capture(&self, what: &str) -> Result<()> {
        self.capture().map_or(Ok(()), |capture| Err(capture.refuse(what)))
    }

    /// The queue, created on first use.
    fn own_queue(&self, context: &Context) -> Result<&Queue> {
        self.queue.get_or_init(|| Queue::new(context)).as_ref().map_err(Clone::clone)
    }

    /// The queue, once it has room for a command.
    ///
    /// # Errors
    /// See [`Queue::make_room`].
    fn with_room(&self, context: &Context, start: Start) -> Result<&Queue> {
        let queue = self.own_queue(context)?;
        queue.make_room(start)?;
        Ok(queue)
    }

    /// The id of its queue in traces, if it has one.
    pub(super) fn trace_id(&self) -> Option<usize> {
        self.used_queue().map(Queue::trace_id)
    }

    /// The queue, if one was ever created.
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
        if let Some(capture) = self.capture() {
            return capture.launch(kernel, args, grid, start, |handle| self.faults.has(handle));
        }
        self.with_room(context, start)?.launch(kernel, args, grid, start)?;
        LAUNCHES.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    /// Copies between two buffers of the context, each given with the offset of its range in bytes.
    pub fn copy(
        &self,
        context: &Context,
        source: (MemHandle, usize),
        target: (MemHandle, usize),
        size: usize,
    ) -> Result<()> {
        match self.capture() {
            Some(capture) => capture.copy(source, target, size),
            None => self.with_room(context, Start::Now)?.copy(source.0, source.1, target.0, target.1, size),
        }
    }

    /// Fills a range with a pattern of 1, 2, 4, 8 or 16 bytes; offset and size must be multiples of the pattern's size.
    pub fn fill(&self, context: &Context, target: MemHandle, offset: usize, pattern: &[u8], size: usize) -> Result<()> {
        match self.capture() {
            Some(capture) => capture.fill(target, offset, pattern, size),
            None => self.with_room(context, Start::Now)?.fill(target, offset, pattern, size),
        }
    }

    /// Writes to a buffer once, even if the stream captures. Then it blocks, as other streams may replay the graph.
    pub fn write_outside(&self, context: &Context, memory: MemHandle, offset: usize, source: Vec<u8>) -> Result<()> {
        let queue = self.own_queue(context)?;
        if self.capture().is_none() {
            queue.make_room(Start::Now)?;
            return queue.write_later(memory, offset, source);
        }
        before_wait()?;
        // SAFETY: the vector is kept during the call.
        unsafe { queue.write_now(memory, offset, source.as_ptr(), source.len()) }
    }

    /// Enqueues the commands of a recording.
    pub(super) fn replay(&self, context: &Context, recording: &mut Recording) -> Result<()> {
        self.own_queue(context)?.replay(recording)?;
        LAUNCHES.fetch_add(recording.launches(), Ordering::Relaxed);
        Ok(())
    }

    /// Sends everything enqueued to the device.
    pub(super) fn flush(&self) -> Result<()> {
        self.used_queue().map_or(Ok(()), Queue::flush)
    }

    /// Blocks until the stream is idle; commands that a capture records do not count.
    pub fn synchronize(&self) -> Result<()> {
        self.used_queue().map_or(Ok(()), Queue::finish)
    }

    /// The record in which the next kernel may report bad input; [`Self::raise_faults`] raises the error.
    pub fn fault_record(&self, context: &Context) -> Result<MemHandle> {
        self.faults.arm(context, self.own_queue(context)?)
    }

    /// Copies from a buffer to the host, after everything enqueued before, and raises the faults of the stream's
    /// kernels. Blocks once for both.
    ///
    /// # Safety
    /// The target is writable for as many bytes, and nothing else uses it during the call.
    pub unsafe fn read(&self, context: &Context, read: Read) -> Result<()> {
        // SAFETY: the caller's promise.
        unsafe { self.faults.read_with(self.queue(context)?, read) }
    }

    /// Raises the faults that kernels of the stream recorded since the last call. Waits for the kernels that may have
    /// recorded some: for callers that wait for the stream anyway.
    pub fn raise_faults(&self, launched: Launched) -> Result<()> {
        self.used_queue().map_or(Ok(()), |queue| self.faults.raise(queue, launched))
    }

    /// The record in which kernels report an index out of range; [`Self::take_index_record`] reads it.
    pub fn index_record(&self, context: &Context) -> Result<MemHandle> {
        self.faults.index_record(context, self.queue(context)?)
    }

    /// Waits for the stream, and returns the index out of range that the calling thread's kernels have reported.
    pub fn take_index_record(&self, context: &Context) -> Result<Option<BadIndexRecord>> {
        self.faults.take_index_record(context, self.queue(context)?)
    }

    /// Returns true if the host may use memory of the stream's tensors now, without a command: it is shared, no graph
    /// is captured, and everything enqueued is known to have completed.
    pub fn is_open_to_host(&self, context: &Context) -> bool {
        context.shares_memory()
            && !self.is_capturing.load(Ordering::Acquire)
            && self.own_queue(context).is_ok_and(Queue::is_known_idle)
    }

    /// Returns true if the stream is idle.
    ///
    /// A marker completes a little later than the commands before it, so each batch of work gets one marker, not each
    /// query.
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
            // Other users of the queue may have enqueued commands after the marker: a new marker is needed, and time
            // for it to complete.
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
