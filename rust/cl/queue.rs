//! In-order command queues.

use std::ffi::c_void;
use std::sync::atomic::{AtomicU64, Ordering};

use opencl3::command_queue as api;
use opencl3::command_queue::CL_QUEUE_PROFILING_ENABLE;
use opencl3::memory::{CL_MAP_READ, CL_MAP_WRITE};
use opencl3::types::{cl_command_queue, cl_event, CL_FALSE, CL_TRUE};

use super::{check, Arg, Context, Event, Kernel, MemHandle, Status};
use crate::error::{Error, Result};

/// An owning in-order `cl_command_queue` with timestamps.
#[derive(Debug)]
pub struct Queue {
    handle: cl_command_queue,
    /// Commands enqueued so far.
    enqueued: AtomicU64,
}

// SAFETY: enqueueing on a queue is thread-safe (OpenCL 1.2, section A.2).
unsafe impl Send for Queue {}
// SAFETY: as above.
unsafe impl Sync for Queue {}

/// What the host does with mapped memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MapAccess {
    /// The host only reads.
    Read,
    /// The host reads and writes.
    ReadWrite,
}

impl Queue {
    /// Creates a queue on the context's device.
    pub fn new(context: &Context) -> Result<Self> {
        // SAFETY: the device belongs to the context.
        let result =
            unsafe { api::create_command_queue(context.handle, context.device().0, CL_QUEUE_PROFILING_ENABLE) };
        Ok(Self { handle: check("clCreateCommandQueue", result)?, enqueued: AtomicU64::new(0) })
    }

    /// How many commands have been enqueued; a command is counted once its call has returned.
    pub fn enqueued(&self) -> u64 {
        self.enqueued.load(Ordering::Acquire)
    }

    fn count<S: Status>(&self, call: &'static str, result: std::result::Result<cl_event, S>) -> Result<Event> {
        let event = check(call, result.map(Event))?;
        self.enqueued.fetch_add(1, Ordering::Release);
        Ok(event)
    }

    /// Enqueues a kernel over `global` work-items in groups of `local` (`None`: the driver chooses).
    pub fn launch(&self, kernel: &Kernel, args: &[Arg<'_>], global: &[usize], local: Option<&[usize]>) -> Result<()> {
        if local.is_some_and(|local| local.len() != global.len()) || !(1..=3).contains(&global.len()) {
            return Err(Error::Invalid(format!(
                "kernel {}: a launch over {global:?} in groups of {local:?} has no meaning",
                kernel.name()
            )));
        }
        kernel.with_args(args, |handle| {
            // SAFETY: `global` and `local` hold as many sizes as the dimension given; the arguments were set
            // under the lock that is still held.
            let result = unsafe {
                api::enqueue_nd_range_kernel(
                    self.handle,
                    handle,
                    global.len() as u32,
                    std::ptr::null(),
                    global.as_ptr(),
                    local.map_or(std::ptr::null(), <[usize]>::as_ptr),
                    0,
                    std::ptr::null(),
                )
            };
            self.count("clEnqueueNDRangeKernel", result).map(drop)
        })
    }

    /// Copies from host memory into a buffer.
    ///
    /// # Safety
    /// `source` holds `size` readable bytes, and keeps them unchanged until the command has completed when
    /// `blocking` is false.
    pub unsafe fn write(
        &self,
        target: MemHandle,
        offset: usize,
        source: *const u8,
        size: usize,
        blocking: bool,
    ) -> Result<()> {
        let blocking = if blocking { CL_TRUE } else { CL_FALSE };
        // SAFETY: promised by the caller.
        let result = unsafe {
            api::enqueue_write_buffer(self.handle, target.0, blocking, offset, size, source.cast(), 0, std::ptr::null())
        };
        self.count("clEnqueueWriteBuffer", result).map(drop)
    }

    /// Copies from a buffer into host memory.
    ///
    /// # Safety
    /// `target` holds `size` writable bytes that nothing else uses until the command has completed when
    /// `blocking` is false.
    pub unsafe fn read(
        &self,
        source: MemHandle,
        offset: usize,
        target: *mut u8,
        size: usize,
        blocking: bool,
    ) -> Result<()> {
        let blocking = if blocking { CL_TRUE } else { CL_FALSE };
        // SAFETY: promised by the caller.
        let result = unsafe {
            api::enqueue_read_buffer(self.handle, source.0, blocking, offset, size, target.cast(), 0, std::ptr::null())
        };
        self.count("clEnqueueReadBuffer", result).map(drop)
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
        // SAFETY: the driver checks the ranges against the buffers' sizes.
        let result = unsafe {
            api::enqueue_copy_buffer(
                self.handle,
                source.0,
                target.0,
                source_offset,
                target_offset,
                size,
                0,
                std::ptr::null(),
            )
        };
        self.count("clEnqueueCopyBuffer", result).map(drop)
    }

    /// Fills a range with a pattern of 1, 2, 4, 8 or 16 bytes, to which offset and size must be aligned.
    pub fn fill(&self, target: MemHandle, offset: usize, pattern: &[u8], size: usize) -> Result<()> {
        // SAFETY: the pattern is read before the call returns.
        let result = unsafe {
            api::enqueue_fill_buffer(
                self.handle,
                target.0,
                pattern.as_ptr().cast(),
                pattern.len(),
                offset,
                size,
                0,
                std::ptr::null(),
            )
        };
        self.count("clEnqueueFillBuffer", result).map(drop)
    }

    /// Maps a range for the host, after everything enqueued before has completed.
    ///
    /// The memory stays valid until [`Self::unmap`].
    pub fn map(&self, buffer: MemHandle, offset: usize, size: usize, access: MapAccess) -> Result<*mut u8> {
        let flags = match access {
            MapAccess::Read => CL_MAP_READ,
            MapAccess::ReadWrite => CL_MAP_READ | CL_MAP_WRITE,
        };
        let mut pointer: *mut c_void = std::ptr::null_mut();
        // SAFETY: the driver checks the range against the buffer's size.
        let result = unsafe {
            api::enqueue_map_buffer(
                self.handle,
                buffer.0,
                CL_TRUE,
                flags,
                offset,
                size,
                &mut pointer,
                0,
                std::ptr::null(),
            )
        };
        self.count("clEnqueueMapBuffer", result)?;
        Ok(pointer.cast())
    }

    /// Gives a mapped range back to the device, which has it when the event completes.
    ///
    /// # Safety
    /// `pointer` came from [`Self::map`] of this buffer and is not used afterwards.
    pub unsafe fn unmap(&self, buffer: MemHandle, pointer: *mut u8) -> Result<Event> {
        // SAFETY: promised by the caller.
        let result =
            unsafe { api::enqueue_unmap_mem_object(self.handle, buffer.0, pointer.cast(), 0, std::ptr::null()) };
        self.count("clEnqueueUnmapMemObject", result)
    }

    /// An event that completes when everything enqueued before it has.
    pub fn marker(&self) -> Result<Event> {
        // SAFETY: an empty wait list means all commands before.
        let result = unsafe { api::enqueue_marker_with_wait_list(self.handle, 0, std::ptr::null()) };
        self.count("clEnqueueMarkerWithWaitList", result)
    }

    /// Holds back later commands until `event` has completed.
    pub fn wait_for(&self, event: &Event) -> Result<()> {
        let events: [cl_event; 1] = [event.0];
        // SAFETY: the list holds one live event.
        let result = unsafe { api::enqueue_barrier_with_wait_list(self.handle, 1, events.as_ptr()) };
        self.count("clEnqueueBarrierWithWaitList", result).map(drop)
    }

    /// Sends everything enqueued to the device.
    pub fn flush(&self) -> Result<()> {
        check("clFlush", api::flush(self.handle))
    }

    /// Blocks until everything enqueued has completed.
    pub fn finish(&self) -> Result<()> {
        check("clFinish", api::finish(self.handle))
    }

    /// The `cl_command_queue`, for interoperation with other OpenCL code.
    pub fn native_handle(&self) -> usize {
        self.handle as usize
    }
}

impl Drop for Queue {
    fn drop(&mut self) {
        // SAFETY: the handle is owned and released once.
        let _ = unsafe { api::release_command_queue(self.handle) };
    }
}
