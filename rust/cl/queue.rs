//! In-order command queues.

use std::ffi::c_void;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use opencl3::command_queue as api;
use opencl3::command_queue::CL_QUEUE_PROFILING_ENABLE;
use opencl3::memory::{CL_MAP_READ, CL_MAP_WRITE};
use opencl3::types::{cl_command_queue, cl_event, CL_FALSE};

use super::enqueue::KernelCommand;
use super::launch_batch::{LaunchBatch, Start};
use super::queue_throttle::QueueThrottle;
use super::{cache_check, check, cuda, trace, Arg, Context, Event, Kernel, MemHandle, Status};
use crate::error::Result;

/// Time for which a wait polls the driver before its thread sleeps. Drivers of GPUs do the same in a wait that no
/// signal can end: with a callback and a sleeping thread, a wait returns some 20 us later.
const POLLED: Duration = Duration::from_micros(500);

/// An owning in-order `cl_command_queue` with timestamps.
///
/// Waits are for an event, never for the queue: another thread may enqueue a launch that a batch holds back.
#[derive(Debug)]
pub struct Queue {
    pub(super) handle: cl_command_queue,
    /// Commands and markers enqueued so far.
    enqueued: AtomicU64,
    /// Number of these known to have completed: the queue is in order.
    completed: AtomicU64,
    /// True if other code has the handle, and enqueues commands that are not counted.
    has_other_users: AtomicBool,
    /// True if the host accesses host-visible buffers without a command.
    pub(super) shares_memory: bool,
    /// True if the device and the host use the same cores.
    is_cpu: bool,
    /// Locked while a command is enqueued, never during a wait.
    batch: Mutex<LaunchBatch>,
    pub(super) throttle: QueueThrottle,
    /// Holds a failure of CUDA's commands that run between those of the queue.
    cuda: cuda::Failure,
}

// SAFETY: enqueueing on a queue is thread-safe (OpenCL 1.2, section A.2).
unsafe impl Send for Queue {}
// SAFETY: as above.
unsafe impl Sync for Queue {}

/// Access of the host to mapped memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MapAccess {
    /// The host only reads.
    Read,
    /// The host reads and writes.
    ReadWrite,
}

/// A copy from a buffer to `size` bytes of host memory at `target`.
#[derive(Clone, Copy, Debug)]
pub struct Read {
    /// The buffer; it is host-visible if memory is shared with the host.
    pub source: MemHandle,
    /// Offset in bytes at which the copy starts.
    pub offset: usize,
    /// Destination on the host.
    pub target: *mut u8,
    /// Number of bytes.
    pub size: usize,
}

/// The ND-range of a launch.
#[derive(Clone, Copy, Debug)]
pub struct Grid<'a> {
    /// Global offset, if it is not 0.
    pub first: Option<&'a [usize]>,
    /// Global size, in one to three dimensions.
    pub global: &'a [usize],
    /// Local size; `None`: the driver chooses.
    pub local: Option<&'a [usize]>,
}

impl Queue {
    /// Creates a queue on the context's device.
    pub fn new(context: &Context) -> Result<Self> {
        // SAFETY: the device belongs to the context.
        let result =
            unsafe { api::create_command_queue(context.handle, context.device().0, CL_QUEUE_PROFILING_ENABLE) };
        Ok(Self::of_handle(check("clCreateCommandQueue", result)?, context))
    }

    /// Takes ownership of a reference to a queue on the context's device.
    pub(super) fn of_handle(handle: cl_command_queue, context: &Context) -> Self {
        Self {
            handle,
            enqueued: AtomicU64::new(0),
            completed: AtomicU64::new(0),
            has_other_users: AtomicBool::new(false),
            shares_memory: context.shares_memory(),
            batch: Mutex::new(LaunchBatch::new(context)),
            is_cpu: context.is_cpu(),
            throttle: QueueThrottle::new(context.is_cpu()),
            cuda: context.cuda_failure(),
        }
    }

    /// Number of commands enqueued, including markers; a command counts when its call has returned.
    fn enqueued(&self) -> u64 {
        self.enqueued.load(Ordering::Acquire)
    }

    /// Returns true if everything enqueued so far is known to have completed, without a driver call.
    pub fn is_known_idle(&self) -> bool {
        // Read first: code that gets the handle later also enqueues later.
        !self.has_other_users() && self.completed.load(Ordering::Acquire) >= self.enqueued()
    }

    /// Returns true if an event of this queue is known to have completed, without a driver call.
    pub fn is_known_complete(&self, event: &Event) -> bool {
        self.completed.load(Ordering::Acquire) >= event.position
    }

    /// Returns true if we have enqueued nothing after an event of this queue.
    pub fn is_last(&self, event: &Event) -> bool {
        event.position >= self.enqueued()
    }

    /// Returns true if other code may enqueue commands through the queue's handle.
    pub fn has_other_users(&self) -> bool {
        self.has_other_users.load(Ordering::Acquire)
    }

    /// Records that an event of this queue has completed, and so everything before it.
    fn note_complete(&self, event: &Event) {
        self.completed.fetch_max(event.position, Ordering::AcqRel);
    }

    pub(super) fn batch(&self) -> MutexGuard<'_, LaunchBatch> {
        self.batch.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The queue's id in traces.
    pub fn trace_id(&self) -> usize {
        self.handle as usize
    }

    /// Enqueues a command that starts immediately, and moves `bytes` bytes.
    pub(super) fn submit<S: Status>(
        &self,
        call: &'static str,
        bytes: usize,
        enqueue: impl FnOnce() -> std::result::Result<cl_event, S>,
    ) -> Result<Event> {
        let mut batch = self.batch();
        let called = trace::about_to_call();
        let handle = check(call, enqueue())?;
        let event = Event { handle, position: self.advance() };
        if let Some(called) = called {
            trace::note_transfer(called, self.trace_id(), &event, call, bytes);
        }
        batch.count();
        batch.submit().map(|()| event)
    }

    /// Counts the command just enqueued and returns its position; the batch must be locked.
    pub(super) fn advance(&self) -> u64 {
        self.enqueued.fetch_add(1, Ordering::Release) + 1
    }

    /// Waits if the host is too far ahead of the device. Must be called before a command is enqueued, without a lock: a
    /// signal may end the wait.
    ///
    /// # Errors
    /// See [`Self::wait`].
    pub fn make_room(&self, start: Start) -> Result<()> {
        if start == Start::Now && self.is_known_idle() {
            self.throttle.reset();
        }
        if self.throttle.is_due(start) {
            self.wait_for_room()
        } else {
            Ok(())
        }
    }

    /// [`Self::make_room`] when a marker is due.
    pub(super) fn wait_for_room(&self) -> Result<()> {
        if self.is_known_idle() {
            return Ok(());
        }
        self.throttle.push(self.marker()?);
        while let Some(marker) = self.throttle.awaited() {
            let is_reached = self.is_complete(&marker)?;
            if !is_reached {
                self.wait(&marker)?;
            }
            self.throttle.pop(&marker, !is_reached);
        }
        Ok(())
    }

    /// Enqueues a kernel over a grid of work-items.
    pub fn launch(&self, kernel: &Kernel, args: &[Arg<'_>], grid: &Grid<'_>, start: Start) -> Result<()> {
        let Grid { first, global, local } = *grid;
        kernel.check_grid(grid)?;
        if let Some(first) = kernel.first_launch(grid) {
            cache_check::expect(first);
        }
        kernel.with_args(args, |handle| {
            let mut batch = self.batch();
            let batch_event = batch.wait_list(start)?;
            let called = trace::about_to_call();
            let command = KernelCommand { kernel: handle, dimensions: global.len() as u32, first, global, local };
            // SAFETY: `check_grid` has compared the sizes; the arguments were set under the kernel's lock, which is
            // still held.
            let event = check("clEnqueueNDRangeKernel", unsafe { command.enqueue(self.handle, batch_event.as_ref()) })?;
            let position = self.advance();
            let event = event.map(|handle| Event { handle, position });
            if let (Some(called), Some(event)) = (called, &event) {
                trace::note_launch(called, self.trace_id(), event, kernel.name(), grid);
            }
            drop(event);
            let commands = batch.count();
            let is_last = commands.is_multiple_of(batch.flush_period());
            if start == Start::Now || is_last {
                batch.submit()?;
            }
            if is_last {
                check("clFlush", api::flush(self.handle))?;
            }
            Ok(())
        })
    }

    /// Copies from host memory into a buffer.
    ///
    /// # Safety
    /// `source` holds `size` readable bytes, and keeps them unchanged until the event completes.
    pub unsafe fn write(&self, target: MemHandle, offset: usize, source: *const u8, size: usize) -> Result<Event> {
        // SAFETY: promised by the caller.
        self.submit("clEnqueueWriteBuffer", size, || unsafe {
            api::enqueue_write_buffer(self.handle, target.0, CL_FALSE, offset, size, source.cast(), 0, std::ptr::null())
        })
    }

    /// Copies from a buffer into host memory.
    ///
    /// # Safety
    /// `target` holds `size` writable bytes that nothing else uses until the event completes.
    pub unsafe fn read(&self, source: MemHandle, offset: usize, target: *mut u8, size: usize) -> Result<Event> {
        // SAFETY: promised by the caller.
        self.submit("clEnqueueReadBuffer", size, || unsafe {
            api::enqueue_read_buffer(self.handle, source.0, CL_FALSE, offset, size, target.cast(), 0, std::ptr::null())
        })
    }

    /// Copies between two buffers of one context; the ranges must not overlap.
    pub fn copy(
        &self,
        source: MemHandle,
        source_offset: usize,
        target: MemHandle,
        target_offset: usize,
        size: usize,
    ) -> Result<()> {
        let (queue, none) = (self.handle, std::ptr::null());
        // SAFETY: the driver checks the ranges against the buffers' sizes.
        let copied = self.submit("clEnqueueCopyBuffer", size, || unsafe {
            api::enqueue_copy_buffer(queue, source.0, target.0, source_offset, target_offset, size, 0, none)
        });
        copied.map(drop)
    }

    /// Fills a range with a pattern of 1, 2, 4, 8 or 16 bytes; offset and size must be multiples of the pattern's size.
    pub fn fill(&self, target: MemHandle, offset: usize, pattern: &[u8], size: usize) -> Result<()> {
        let (queue, bytes, none) = (self.handle, pattern.as_ptr().cast(), std::ptr::null());
        // SAFETY: the pattern is read before the call returns.
        let filled = self.submit("clEnqueueFillBuffer", size, || unsafe {
            api::enqueue_fill_buffer(queue, target.0, bytes, pattern.len(), offset, size, 0, none)
        });
        filled.map(drop)
    }

    /// Maps a range for the host. The memory is valid from the completion of the event, which comes after everything
    /// enqueued before, until [`Self::unmap`].
    pub fn map(&self, buffer: MemHandle, offset: usize, size: usize, access: MapAccess) -> Result<(*mut u8, Event)> {
        let flags = match access {
            MapAccess::Read => CL_MAP_READ,
            MapAccess::ReadWrite => CL_MAP_READ | CL_MAP_WRITE,
        };
        let mut pointer: *mut c_void = std::ptr::null_mut();
        let (queue, out, none) = (self.handle, &raw mut pointer, std::ptr::null());
        // SAFETY: the driver checks the range against the buffer's size; `out` points to a local.
        let mapped = self.submit("clEnqueueMapBuffer", size, || unsafe {
            api::enqueue_map_buffer(queue, buffer.0, CL_FALSE, flags, offset, size, &mut *out, 0, none)
        });
        mapped.map(|event| (pointer.cast(), event))
    }

    /// Unmaps a range; the device may use it when the event completes.
    ///
    /// # Safety
    /// `pointer` came from [`Self::map`] of this buffer and is not used afterwards.
    pub unsafe fn unmap(&self, buffer: MemHandle, pointer: *mut u8) -> Result<Event> {
        // SAFETY: promised by the caller.
        self.submit("clEnqueueUnmapMemObject", 0, || unsafe {
            api::enqueue_unmap_mem_object(self.handle, buffer.0, pointer.cast(), 0, std::ptr::null())
        })
    }

    /// An event that completes when everything enqueued before it has.
    pub fn marker(&self) -> Result<Event> {
        let mut batch = self.batch();
        // SAFETY: an empty wait list means all commands before.
        let marker = unsafe { api::enqueue_marker_with_wait_list(self.handle, 0, std::ptr::null()) };
        let handle = check("clEnqueueMarkerWithWaitList", marker)?;
        let event = Event { handle, position: self.advance() };
        batch.submit().map(|()| event)
    }

    /// Delays later commands until `event` has completed.
    pub fn wait_for(&self, event: &Event) -> Result<()> {
        let events: [cl_event; 1] = [event.handle];
        // SAFETY: the list holds one live event.
        let barrier = self.submit("clEnqueueBarrierWithWaitList", 0, || unsafe {
            api::enqueue_barrier_with_wait_list(self.handle, 1, events.as_ptr())
        });
        barrier.map(drop)
    }

    /// Sends everything enqueued to the device.
    pub fn flush(&self) -> Result<()> {
        self.batch().submit()?;
        check("clFlush", api::flush(self.handle))
    }

    /// Blocks until everything enqueued so far has completed; returns immediately if that is known.
    ///
    /// # Errors
    /// See [`Self::wait`].
    pub fn finish(&self) -> Result<()> {
        if self.is_known_idle() {
            return self.cuda.check();
        }
        self.wait(&self.marker()?)
    }

    /// Blocks until a command of this queue has completed; returns immediately if that is known.
    ///
    /// # Errors
    /// See [`Event::wait`] and [`cuda::Failure::check`].
    pub fn wait(&self, event: &Event) -> Result<()> {
        if self.is_known_complete(event) {
            return self.cuda.check();
        }
        // Some drivers (PoCL's `basic` device) do nothing before a flush, and would wait forever.
        self.flush()?;
        let compiler = cache_check::wait();
        if !self.is_cpu {
            event.poll(POLLED);
        }
        event.wait()?;
        drop(compiler);
        self.note_complete(event);
        cache_check::verify();
        self.cuda.check()
    }

    /// Returns true if a command of this queue has completed.
    ///
    /// # Errors
    /// See [`Event::is_complete`] and [`cuda::Failure::check`].
    pub fn is_complete(&self, event: &Event) -> Result<bool> {
        let complete = self.is_known_complete(event) || event.is_complete()?;
        if complete {
            self.note_complete(event);
            self.cuda.check()?;
        }
        Ok(complete)
    }

    /// The `cl_command_queue`, for interoperation with other OpenCL code.
    pub fn native_handle(&self) -> Result<usize> {
        self.has_other_users.store(true, Ordering::Release);
        self.throttle.leave_work_unbounded();
        // The caller may wait for the whole queue.
        self.batch().disable()?;
        Ok(self.handle as usize)
    }
}

impl Drop for Queue {
    fn drop(&mut self) {
        // SAFETY: the handle is owned and released once.
        let _ = unsafe { api::release_command_queue(self.handle) };
    }
}
