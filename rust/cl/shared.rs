//! Memory that host and device share without mapping it: fine-grained buffers of OpenCL 2.0.
//!
//! In OpenCL 1.2 the host accesses device memory only with a command, a copy or a map, which costs a round trip through
//! the driver. The host may read memory from `clSVMAlloc` with `CL_MEM_SVM_FINE_GRAIN_BUFFER` after it has waited for
//! the command that wrote it, and write it until a command that reads it is enqueued; a buffer over it
//! (`CL_MEM_USE_HOST_PTR`) uses it as its storage.

use std::ffi::c_void;
use std::mem::ManuallyDrop;

use opencl3::device::{Device, CL_DEVICE_SVM_FINE_GRAIN_BUFFER};
use opencl3::error_codes::CL_MEM_OBJECT_ALLOCATION_FAILURE;
use opencl3::memory::{svm_alloc, svm_free, CL_MEM_READ_WRITE, CL_MEM_SVM_FINE_GRAIN_BUFFER};
use opencl3::types::cl_context;

use super::interrupt::{is_possible as is_interruptible, Deferred};
use super::{Buffer, Context, Event, MemHandle, Queue, Read};
use crate::error::{Error, Result};

/// An owning allocation of shared memory.
#[derive(Debug)]
pub(super) struct Shared {
    context: cl_context,
    pub pointer: *mut c_void,
}

// SAFETY: the pointer is only freed here; contexts may be used from any thread (OpenCL 1.2, section A.2).
unsafe impl Send for Shared {}
// SAFETY: as above.
unsafe impl Sync for Shared {}

impl Shared {
    /// Allocates `size` bytes, aligned for every type of OpenCL C.
    pub fn new(context: &Context, size: usize) -> Result<Self> {
        let flags = CL_MEM_READ_WRITE | CL_MEM_SVM_FINE_GRAIN_BUFFER;
        // SAFETY: a device with fine-grained buffers supports these flags.
        let allocated = unsafe { svm_alloc(context.handle, flags, size, 0) };
        // The call returns no status.
        let pointer =
            allocated.map_err(|_| Error::OpenCl { call: "clSVMAlloc", code: CL_MEM_OBJECT_ALLOCATION_FAILURE })?;
        Ok(Self { context: context.handle, pointer })
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        // SAFETY: the pointer is owned and freed once, after the buffer over it has been released.
        let _ = unsafe { svm_free(self.context, self.pointer) };
    }
}

/// Returns true if a device's buffers can be shared memory: the driver reports it, host and device memory are unified,
/// and a test transfers a few bytes both ways. If a driver reported it for memory behind a bus, kernels would read over
/// that bus.
pub(super) fn is_offered(context: &Context) -> bool {
    let device = Device::new(context.device().0);
    device.host_unified_memory().unwrap_or(false)
        && device.svm_mem_capability() & CL_DEVICE_SVM_FINE_GRAIN_BUFFER != 0
        && arrives_both_ways(context).unwrap_or(false)
}

/// Returns true if the host sees what the device writes, and vice versa.
fn arrives_both_ways(context: &Context) -> Result<bool> {
    const SIZE: usize = 256;
    let (target, source) = (Buffer::shared(context, SIZE)?, Buffer::shared(context, SIZE)?);
    let queue = Queue::new(context)?;
    queue.fill(source.handle(), 0, &[0x5A], SIZE)?;
    queue.finish()?;
    let (Some(from), Some(to)) = (source.handle().host_pointer(), target.handle().host_pointer()) else {
        return Ok(false);
    };
    // SAFETY: both have SIZE bytes, and nothing that uses them is pending.
    let arrived = unsafe { from.add(SIZE - 1).read() } == 0x5A;
    // SAFETY: as above.
    unsafe { from.add(SIZE - 1).write(0xA5) };
    queue.copy(source.handle(), 0, target.handle(), 0, SIZE)?;
    queue.finish()?;
    // SAFETY: as above.
    let (first, last) = unsafe { (to.read(), to.add(SIZE - 1).read()) };
    Ok(arrived && first == 0x5A && last == 0xA5)
}

/// Maximum number of bytes of a copy through a staging buffer: copying them on the host takes some microseconds, less
/// than another wait.
const STAGED: usize = 64 << 10;

/// Frees memory of a command after the command has completed; never if the driver does not report
/// completion.
fn keep_until_complete(event: &Event, memory: Vec<u8>) {
    let memory = ManuallyDrop::new(memory);
    event.on_completion(move || drop(ManuallyDrop::into_inner(memory)));
}

/// Blocking copies, which need no command if memory is shared.
impl Queue {
    /// Copies a vector, after everything enqueued before, without a wait.
    ///
    /// # Errors
    /// Errors reported by the driver.
    pub fn write_later(&self, target: MemHandle, offset: usize, source: Vec<u8>) -> Result<()> {
        // SAFETY: nothing changes the vector, which is kept until the command has completed.
        let written = unsafe { self.write(target, offset, source.as_ptr(), source.len())? };
        keep_until_complete(&written, source);
        Ok(())
    }

    /// Host pointer to a range of a host-visible buffer, for use without a command; `None` if that is impossible, or if
    /// the buffer is shorter. Commands may still use it: see [`Self::finish`].
    pub fn shared_pointer(&self, memory: MemHandle, offset: usize, size: usize) -> Option<*mut u8> {
        if !self.shares_memory || offset.checked_add(size)? > memory.size()? {
            return None;
        }
        memory.host_pointer().map(|start| start.wrapping_add(offset))
    }

    /// Copies to the host, after everything enqueued before. Waits once, and not at all if all of that is known to have
    /// completed and memory is shared.
    ///
    /// # Safety
    /// The targets are writable for as many bytes, and nothing else uses them during the call.
    pub unsafe fn read_now(&self, reads: &[Read]) -> Result<()> {
        let bytes = reads.iter().map(|read| read.size).sum();
        if !self.shares_memory && bytes <= STAGED && is_interruptible() {
            return self.read_staged(reads, bytes);
        }
        let _deferred = self.finish_before_copying()?;
        let mut last = None;
        let mut failure = None;
        for read in reads {
            if let Some(source) = self.shared_pointer(read.source, read.offset, read.size) {
                // SAFETY: the target is the caller's promise; the source is the buffer, and the commands that wrote it
                // have completed.
                unsafe { std::ptr::copy_nonoverlapping(source, read.target, read.size) };
                continue;
            }
            // SAFETY: the caller's promise; the command is waited for below.
            match unsafe { self.read(read.source, read.offset, read.target, read.size) } {
                Ok(event) => last = Some(event),
                Err(error) => {
                    failure = Some(error);
                    break;
                }
            }
        }
        // Enqueued reads write to the caller's memory, even if a later one failed.
        let waited = last.map_or(Ok(()), |event| self.wait(&event));
        failure.map_or(waited, Err)
    }

    /// Waits, if a signal may end the wait, for everything enqueued before a copy between a buffer and the caller's
    /// memory: the caller owns its memory again as soon as it is interrupted, and the driver must not use it then. The
    /// wait for the copy itself is not interruptible.
    fn finish_before_copying(&self) -> Result<Deferred> {
        if self.shares_memory || is_interruptible() {
            self.finish()?;
        }
        Ok(Deferred::new())
    }

    /// [`Self::read_now`] of a few bytes through a staging buffer: it waits once, and may be interrupted.
    fn read_staged(&self, reads: &[Read], bytes: usize) -> Result<()> {
        let mut staged = vec![0_u8; bytes];
        let mut last = None;
        let mut offset = 0;
        for read in reads {
            let target = staged.as_mut_ptr().wrapping_add(offset);
            // SAFETY: `staged` has room for all of them, and lives until the last one has completed.
            match unsafe { self.read(read.source, read.offset, target, read.size) } {
                Ok(event) => last = Some(event),
                Err(error) => {
                    let _deferred = Deferred::new();
                    last.map_or(Ok(()), |event| self.wait(&event))?;
                    return Err(error);
                }
            }
            offset += read.size;
        }
        let Some(event) = last else { return Ok(()) };
        if let Err(error) = self.wait(&event) {
            keep_until_complete(&event, staged);
            return Err(error);
        }
        let mut rest = staged.as_slice();
        for read in reads {
            let (part, others) = rest.split_at(read.size.min(rest.len()));
            // SAFETY: the caller of `read_now` promises that the target has that many bytes.
            unsafe { std::ptr::copy_nonoverlapping(part.as_ptr(), read.target, part.len()) };
            rest = others;
        }
        Ok(())
    }

    /// Copies from the host, after everything enqueued before. Waits as [`Self::read_now`] does.
    ///
    /// # Safety
    /// `source` holds `size` readable bytes that nothing changes during the call.
    pub unsafe fn write_now(&self, target: MemHandle, offset: usize, source: *const u8, size: usize) -> Result<()> {
        if let Some(target) = self.shared_pointer(target, offset, size) {
            self.finish()?;
            // SAFETY: the source is the caller's promise; the target is the buffer, and the commands that used it have
            // completed.
            unsafe { std::ptr::copy_nonoverlapping(source, target, size) };
            return Ok(());
        }
        if size <= STAGED && is_interruptible() {
            // SAFETY: the caller's promise.
            let staged = unsafe { std::slice::from_raw_parts(source, size) }.to_vec();
            // SAFETY: `staged` is not changed until the command has completed.
            let written = unsafe { self.write(target, offset, staged.as_ptr(), size)? };
            return self.wait(&written).inspect_err(|_| keep_until_complete(&written, staged));
        }
        let _deferred = self.finish_before_copying()?;
        // SAFETY: the caller's promise; the command is waited for, without interruption.
        let written = unsafe { self.write(target, offset, source, size)? };
        self.wait(&written)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::sync::mpsc;
    use std::time::Duration;

    use super::*;
    use crate::cl::platforms;

    fn context() -> Context {
        let id = platforms().unwrap().iter().flat_map(|platform| &platform.devices).next().unwrap().id;
        Context::new(id).unwrap()
    }

    #[test]
    fn small_reads_use_a_staging_buffer() {
        let context = context();
        let (queue, buffer) = (Queue::new(&context).unwrap(), Buffer::new(&context, 64, false).unwrap());
        let bytes: Vec<u8> = (0..64).collect();
        // SAFETY: the vector has 64 bytes.
        unsafe { queue.write_now(buffer.handle(), 0, bytes.as_ptr(), 64).unwrap() };
        let (mut first, mut second) = ([0_u8; 16], [0_u8; 8]);
        let reads = [
            Read { source: buffer.handle(), offset: 4, target: first.as_mut_ptr(), size: 16 },
            Read { source: buffer.handle(), offset: 40, target: second.as_mut_ptr(), size: 8 },
        ];
        queue.read_staged(&reads, 24).unwrap();
        assert_eq!((&first[..], &second[..]), (&bytes[4..20], &bytes[40..48]));
        let outside = Read { source: buffer.handle(), offset: 60, target: second.as_mut_ptr(), size: 8 };
        assert!(queue.read_staged(&[reads[0], outside], 24).is_err());
    }

    #[test]
    fn a_completion_callback_is_called_after_its_command() {
        let context = context();
        let (queue, buffer) = (Queue::new(&context).unwrap(), Buffer::new(&context, 64, false).unwrap());
        let mut memory = vec![0_u8; 64];
        queue.fill(buffer.handle(), 0, &[3], 64).unwrap();
        // SAFETY: the memory is kept until the command has completed.
        let event = unsafe { queue.read(buffer.handle(), 0, memory.as_mut_ptr(), 64).unwrap() };
        let (tell, told) = mpsc::channel();
        assert!(event.on_completion(move || tell.send(()).unwrap()));
        keep_until_complete(&event, memory);
        queue.wait(&event).unwrap();
        assert!(told.recv_timeout(Duration::from_secs(60)).is_ok());
    }
}
