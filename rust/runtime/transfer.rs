//! Copies between host and devices, and mapping of device memory for the host.

use std::sync::{Mutex, MutexGuard, PoisonError};

use super::current::current_stream;
use super::device::{device_of_address, Device};
use super::faults::Launched;
use super::pinned;
use super::waits::before_wait;
use crate::cl::{Deferred, Event, MapAccess, MemHandle, Queue, Read, Start};
use crate::error::Result;

/// Host memory for copies between two devices, which are made in pieces of this size.
const STAGING: usize = 32 << 20;

/// Copies `size` bytes from the host on the current stream of the target's device.
///
/// Returns when `source` may be changed again, unless `non_blocking` is set and `source` is pinned memory.
///
/// # Safety
/// `source` holds `size` readable bytes.
pub unsafe fn copy_host_to_device(target: usize, source: *const u8, size: usize, non_blocking: bool) -> Result<()> {
    let device = device_of_address(target)?;
    // SAFETY: the caller's promise.
    if unsafe { record_scalar(device, target, source, size)? } {
        return Ok(());
    }
    let (queue, stream) = queue_of(device)?;
    let asynchronous = non_blocking && pinned::is_pinned(source as usize);
    if !asynchronous {
        before_wait()?;
    }
    let location = device.state()?.resolve(target)?;
    if !asynchronous {
        // SAFETY: the caller's promise.
        return unsafe { queue.write_now(location.memory, location.offset, source, size) };
    }
    queue.make_room(Start::Now)?;
    // SAFETY: the caller's promise; pinned memory is not reused before the marker recorded below.
    unsafe { queue.write(location.memory, location.offset, source, size)? };
    queue.flush()?;
    pinned::record_pinned(source as usize, device.index, stream)
}

/// Records a copy from the host by its value while a graph is captured: for scalars that an operator needs on the
/// device. Returns true if it did.
///
/// # Safety
/// `source` holds `size` readable bytes.
unsafe fn record_scalar(device: &'static Device, target: usize, source: *const u8, size: usize) -> Result<bool> {
    let stream = current_stream(device.index)?;
    if stream.capture().is_none() || !matches!(size, 1 | 2 | 4 | 8 | 16) {
        return Ok(false);
    }
    let state = device.state()?;
    let location = state.resolve(target)?;
    if !location.offset.is_multiple_of(size) {
        return Ok(false);
    }
    // SAFETY: the caller's promise.
    let bytes = unsafe { std::slice::from_raw_parts(source, size) };
    stream.fill(&state.context, location.memory, location.offset, bytes, size).map(|()| true)
}

/// Copies `size` bytes to the host on the current stream of the source's device; a blocking copy raises the faults of
/// the stream's kernels.
///
/// # Safety
/// `target` holds `size` writable bytes that nothing else uses during the call; with `non_blocking` and pinned
/// memory, until the stream is synchronised.
pub unsafe fn copy_device_to_host(target: *mut u8, source: usize, size: usize, non_blocking: bool) -> Result<()> {
    let device = device_of_address(source)?;
    let (state, stream) = (device.state()?, current_stream(device.index)?);
    let asynchronous = non_blocking && pinned::is_pinned(target as usize);
    if !asynchronous {
        before_wait()?;
    }
    let location = state.resolve(source)?;
    if !asynchronous {
        let read = Read { source: location.memory, offset: location.offset, target, size };
        // SAFETY: the caller's promise.
        return unsafe { stream.read(&state.context, read) };
    }
    let queue = stream.queue(&state.context)?;
    queue.make_room(Start::Now)?;
    // SAFETY: the caller's promise; pinned memory is not reused before the marker recorded below.
    unsafe { queue.read(location.memory, location.offset, target, size)? };
    queue.flush()?;
    pinned::record_pinned(target as usize, device.index, stream.id())
}

/// Copies `size` bytes between two addresses, on one device or on two.
///
/// Two devices share no context, so a copy between them goes through the host.
pub fn copy_device_to_device(target: usize, source: usize, size: usize) -> Result<()> {
    let (to, from) = (device_of_address(target)?, device_of_address(source)?);
    let destination = to.state()?.resolve(target)?;
    let origin = from.state()?.resolve(source)?;
    if to.index == from.index {
        let (source, target) = ((origin.memory, origin.offset), (destination.memory, destination.offset));
        return current_stream(to.index)?.copy(&to.state()?.context, source, target, size);
    }
    let (reader, writer) = (queue_of(from)?.0, queue_of(to)?.0);
    before_wait()?;
    let mut staging = vec![0_u8; size.min(STAGING)];
    for start in (0..size).step_by(STAGING) {
        let length = (size - start).min(STAGING);
        // SAFETY: `staging` holds at least `length` bytes, and is left alone until either command has completed.
        unsafe {
            let target = staging.as_mut_ptr();
            reader.read_now(&[Read { source: origin.memory, offset: origin.offset + start, target, size: length }])?;
            writer.write_now(destination.memory, destination.offset + start, staging.as_ptr(), length)?;
        }
    }
    Ok(())
}

fn queue_of(device: &'static Device) -> Result<(&'static Queue, i64)> {
    let stream = current_stream(device.index)?;
    Ok((stream.queue(&device.state()?.context)?, stream.id()))
}

/// Device memory that the host may use until [`unmap_all`].
#[derive(Clone, Copy, Debug)]
pub struct Mapping {
    device: i32,
    /// The buffer to unmap; `None` if host and device share it.
    memory: Option<MemHandle>,
    pointer: usize,
}

impl Mapping {
    /// Host address of the range.
    pub fn pointer(&self) -> usize {
        self.pointer
    }
}

/// A range to map for the host.
#[derive(Clone, Copy, Debug)]
pub struct Range {
    /// Address of the first byte on the device.
    pub address: usize,
    /// Bytes.
    pub size: usize,
    /// True if the host writes there.
    pub writable: bool,
}

/// Held while ranges are mapped or unmapped. It contains the last unmapping, which is waited for before the next call.
///
/// PoCL 3.1 identifies mappings by their pointers: if a range is mapped while another mapping of it is being unmapped,
/// the driver may free the memory that the call is about to return.
static MAPPING: Mutex<Option<Last>> = Mutex::new(None);

/// The last of several commands in an in-order queue: when it has completed, all have.
struct Last(&'static Queue, Event);

impl Last {
    fn wait(self) -> Result<()> {
        self.0.wait(&self.1)
    }
}

fn mapping() -> Result<MutexGuard<'static, Option<Last>>> {
    let mut guard = MAPPING.lock().unwrap_or_else(PoisonError::into_inner);
    guard.take().map_or(Ok(()), Last::wait)?;
    Ok(guard)
}

/// Maps ranges of one device for the host, after all work of the current stream, and raises the faults of its kernels.
/// Waits once for all of them.
pub fn map_all(ranges: &[Range]) -> Result<Vec<Mapping>> {
    let Some(first) = ranges.first() else { return Ok(Vec::new()) };
    before_wait()?;
    let device = device_of_address(first.address)?;
    current_stream(device.index)?.raise_faults(Launched::Here)?;
    if let Some(shared) = find_shared(device, ranges)? {
        return Ok(shared);
    }
    // A signal may end this wait. The waits for the mappings are short, and must not be interrupted: they are made with
    // a lock held, and the memory would stay mapped.
    queue_of(device)?.0.finish()?;
    let _deferred = Deferred::new();
    let mut guard = mapping()?;
    let mut mappings = Vec::with_capacity(ranges.len());
    if let Err(error) = enqueue_maps(device, ranges, &mut mappings) {
        // SAFETY: the mappings have not been returned to a caller. If both calls fail, the first error is reported.
        *guard = unsafe { enqueue_unmaps(&mappings) }.ok().flatten();
        return Err(error);
    }
    Ok(mappings)
}

/// Ranges of memory that host and device share, after all work of the current stream; `None` if they do not share it.
fn find_shared(device: &'static Device, ranges: &[Range]) -> Result<Option<Vec<Mapping>>> {
    let queue = queue_of(device)?.0;
    let mut found = Vec::with_capacity(ranges.len());
    for range in ranges {
        let location = device.state()?.resolve(range.address)?;
        let Some(pointer) = queue.shared_pointer(location.memory, location.offset, range.size) else { return Ok(None) };
        found.push(Mapping { device: device.index, memory: None, pointer: pointer as usize });
    }
    queue.finish()?;
    Ok(Some(found))
}

fn enqueue_maps(device: &'static Device, ranges: &[Range], mappings: &mut Vec<Mapping>) -> Result<()> {
    let queue = queue_of(device)?.0;
    let mut last = None;
    for range in ranges {
        let location = device.state()?.resolve(range.address)?;
        let access = if range.writable { MapAccess::ReadWrite } else { MapAccess::Read };
        let (pointer, event) = queue.map(location.memory, location.offset, range.size, access)?;
        mappings.push(Mapping { device: device.index, memory: Some(location.memory), pointer: pointer as usize });
        last = Some(Last(queue, event));
    }
    last.map_or(Ok(()), Last::wait)
}

/// Returns mapped ranges to their device, for commands enqueued later on the current stream. Not waiting for the
/// unmapping makes a chain of matmuls on the host and kernels of order 256 a sixth faster (386 us a link, not 463;
/// PoCL, Xeon).
///
/// # Safety
/// Nothing uses the host addresses afterwards.
pub unsafe fn unmap_all(mappings: &[Mapping]) -> Result<()> {
    if mappings.iter().all(|mapping| mapping.memory.is_none()) {
        return Ok(());
    }
    let _deferred = Deferred::new();
    let mut guard = mapping()?;
    // SAFETY: promised by the caller.
    *guard = unsafe { enqueue_unmaps(mappings)? };
    Ok(())
}

/// # Safety
/// See [`unmap_all`].
unsafe fn enqueue_unmaps(mappings: &[Mapping]) -> Result<Option<Last>> {
    let mut last = None;
    for mapping in mappings {
        let Some(memory) = mapping.memory else { continue };
        let queue = queue_of(super::device(mapping.device)?)?.0;
        // SAFETY: the pointer came from a map of this buffer; the rest is the caller's promise.
        let unmapped = unsafe { queue.unmap(memory, mapping.pointer as *mut u8)? };
        last = Some(Last(queue, unmapped));
    }
    Ok(last)
}
