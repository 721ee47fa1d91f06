//! Copies between host and devices, and mapping of device memory for the host.

use std::sync::{Mutex, PoisonError};

use super::device::{device_of_address, Device};
use super::pinned;
use super::stream::current_stream;
use crate::cl::{MapAccess, MemHandle, Queue};
use crate::error::Result;

/// Host memory that a copy between two devices passes through, a piece at a time.
const STAGING: usize = 32 << 20;

/// Copies `size` bytes from the host on the current stream of the target's device.
///
/// Returns once `source` may be changed again, unless `non_blocking` is set and `source` is pinned memory.
///
/// # Safety
/// `source` holds `size` readable bytes.
pub unsafe fn copy_host_to_device(target: usize, source: *const u8, size: usize, non_blocking: bool) -> Result<()> {
    let device = device_of_address(target)?;
    let (queue, stream) = queue_of(device)?;
    let asynchronous = non_blocking && pinned::is_pinned(source as usize);
    let location = device.state()?.resolve(target)?;
    // SAFETY: the caller's promise; pinned memory is not reused before the marker recorded below.
    let written = unsafe { queue.write(location.memory, location.offset, source, size)? };
    if !asynchronous {
        return queue.wait(&written);
    }
    queue.flush()?;
    pinned::record_pinned(source as usize, device.index, stream)
}

/// Copies `size` bytes to the host on the current stream of the source's device; a blocking copy raises what kernels of
/// the stream found wrong.
///
/// # Safety
/// `target` holds `size` writable bytes that nothing else uses during the call; with `non_blocking` and pinned
/// memory, until the stream is synchronised.
pub unsafe fn copy_device_to_host(target: *mut u8, source: usize, size: usize, non_blocking: bool) -> Result<()> {
    let device = device_of_address(source)?;
    let (queue, stream) = queue_of(device)?;
    let asynchronous = non_blocking && pinned::is_pinned(target as usize);
    let location = device.state()?.resolve(source)?;
    // SAFETY: the caller's promise; pinned memory is not reused before the marker recorded below.
    let read = unsafe { queue.read(location.memory, location.offset, target, size)? };
    if !asynchronous {
        queue.wait(&read)?;
        return current_stream(device.index)?.raise_faults();
    }
    queue.flush()?;
    pinned::record_pinned(target as usize, device.index, stream)
}

/// Copies `size` bytes between two addresses, on one device or on two.
///
/// Two devices share no context, so a copy between them goes through the host.
pub fn copy_device_to_device(target: usize, source: usize, size: usize) -> Result<()> {
    let (to, from) = (device_of_address(target)?, device_of_address(source)?);
    let destination = to.state()?.resolve(target)?;
    let origin = from.state()?.resolve(source)?;
    if to.index == from.index {
        return queue_of(to)?.0.copy(origin.memory, origin.offset, destination.memory, destination.offset, size);
    }
    let (reader, writer) = (queue_of(from)?.0, queue_of(to)?.0);
    let mut staging = vec![0_u8; size.min(STAGING)];
    for start in (0..size).step_by(STAGING) {
        let length = (size - start).min(STAGING);
        // SAFETY: `staging` holds at least `length` bytes, and is left alone until either command has completed.
        unsafe {
            reader.wait(&reader.read(origin.memory, origin.offset + start, staging.as_mut_ptr(), length)?)?;
            writer.wait(&writer.write(destination.memory, destination.offset + start, staging.as_ptr(), length)?)?;
        }
    }
    Ok(())
}

fn queue_of(device: &'static Device) -> Result<(&'static Queue, i64)> {
    let stream = current_stream(device.index)?;
    Ok((stream.queue(&device.state()?.context)?, stream.id()))
}

/// Device memory that the host may use until [`unmap`].
#[derive(Clone, Copy, Debug)]
pub struct Mapping {
    device: i32,
    memory: MemHandle,
    pointer: usize,
}

impl Mapping {
    /// Host address of the range.
    pub fn pointer(&self) -> usize {
        self.pointer
    }
}

/// Held while a range is mapped and while one is unmapped.
///
/// PoCL 3.1 knows mappings by their pointers: where two threads map the same range, unmapping one may free what the
/// other thread's call is about to return.
static MAPPING: Mutex<()> = Mutex::new(());

/// Maps `size` bytes for the host, behind all work of the current stream, and raises what its kernels found wrong.
pub fn map(address: usize, size: usize, writable: bool) -> Result<Mapping> {
    let _mapping = MAPPING.lock().unwrap_or_else(PoisonError::into_inner);
    let device = device_of_address(address)?;
    current_stream(device.index)?.raise_faults()?;
    let location = device.state()?.resolve(address)?;
    let access = if writable { MapAccess::ReadWrite } else { MapAccess::Read };
    let pointer = queue_of(device)?.0.map(location.memory, location.offset, size, access)?;
    Ok(Mapping { device: device.index, memory: location.memory, pointer: pointer as usize })
}

/// Gives a mapped range back to the device.
///
/// # Safety
/// Nothing uses the host address afterwards.
pub unsafe fn unmap(mapping: Mapping) -> Result<()> {
    let _mapping = MAPPING.lock().unwrap_or_else(PoisonError::into_inner);
    let (queue, _) = queue_of(super::device(mapping.device)?)?;
    // SAFETY: the pointer came from `map` of this buffer; the rest is the caller's promise.
    let unmapped = unsafe { queue.unmap(mapping.memory, mapping.pointer as *mut u8)? };
    queue.wait(&unmapped)
}
