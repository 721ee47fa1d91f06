//! Tests of a device at its first use: is memory shared, and is the order of commands kept?

use std::os::fd::{FromRawFd, OwnedFd, RawFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use cudarc::driver::result::{memcpy_dtod_async, memset_d8_async};
use cudarc::driver::CudaContext;

use super::{failed, Link, Memory};
use crate::cl::{Buffer, Context, Queue};
use crate::error::{Error, Result};

/// Bytes that each driver writes: enough that a reader which does not wait comes too early.
const SIZE: usize = 1 << 20;
/// A working device needs less than a hundredth of this.
const PATIENCE: Duration = Duration::from_secs(5);
/// What OpenCL and CUDA write.
const BY_OPENCL: u8 = 0x5A;
const BY_CUDA: u8 = 0xA5;

/// Returns true if an import takes over the file descriptor: it is closed once the buffer has been released.
pub(super) fn import_takes_descriptor(context: &Context, cuda: &Arc<CudaContext>) -> Result<bool> {
    let memory = Memory::allocate(cuda, SIZE, true)?;
    let descriptor = memory.descriptor();
    let file = file_of(descriptor);
    drop(Buffer::of_cuda(context, memory, SIZE)?);
    let is_closed = file_of(descriptor) != file;
    if !is_closed {
        // SAFETY: it is open, and no driver owns it.
        drop(unsafe { OwnedFd::from_raw_fd(descriptor) });
    }
    Ok(is_closed)
}

/// Device and number of the open file of a descriptor; `None` if it is closed.
fn file_of(descriptor: RawFd) -> Option<(u64, u64)> {
    // SAFETY: the struct is plain integers, and the call only writes to it.
    let (status, file) = unsafe {
        let mut file: libc::stat = std::mem::zeroed();
        (libc::fstat(descriptor, &raw mut file), file)
    };
    (status == 0).then_some((file.st_dev, file.st_ino))
}

/// OpenCL writes, CUDA copies that and overwrites it, and OpenCL reads both: all in order, without a wait in between.
///
/// # Errors
/// The reason why the link cannot be used.
pub(super) fn run(link: &Link, context: &Context, queue: &Queue) -> Result<()> {
    let buffer = link.allocate(context, 2 * SIZE)?;
    let (memory, address) = (buffer.handle(), buffer.cuda_address().unwrap_or_default());
    queue.fill(memory, 0, &[0], 2 * SIZE)?;
    queue.finish()?;
    queue.fill(memory, 0, &[BY_OPENCL], SIZE)?;
    let stream = link.stream.cu_stream();
    let finished = link.in_order(context, queue, || {
        // SAFETY: the buffer has twice SIZE bytes.
        unsafe {
            memcpy_dtod_async(address + SIZE as u64, address, SIZE, stream).map_err(failed)?;
            memset_d8_async(address, BY_CUDA, SIZE, stream).map_err(failed)
        }
    })?;
    let mut bytes = vec![0_u8; 2 * SIZE];
    // SAFETY: the vector has as many bytes, and is not freed before the command has completed.
    let read = unsafe { queue.read(memory, 0, bytes.as_mut_ptr(), bytes.len())? };
    queue.flush()?;
    let start = Instant::now();
    while !queue.is_complete(&read)? {
        if start.elapsed() > PATIENCE {
            // The queue no longer waits for CUDA, which may still write.
            let _ = finished.complete();
            let _ = queue.wait(&read);
            std::mem::forget((buffer, bytes));
            return Err(Error::Invalid("commands of OpenCL and CUDA cannot be ordered".to_owned()));
        }
        std::thread::sleep(Duration::from_micros(50));
    }
    let (by_cuda, by_opencl) = bytes.split_at(SIZE);
    if by_cuda.iter().all(|byte| *byte == BY_CUDA) && by_opencl.iter().all(|byte| *byte == BY_OPENCL) {
        Ok(())
    } else {
        Err(Error::Invalid("CUDA and OpenCL do not see what the other writes to shared memory".to_owned()))
    }
}
