//! Pinned host memory: buffers that the driver can copy from without a staging buffer, mapped as long as they live.
//!
//! Freed blocks are cached by size class, and reused only when the copies that used them have completed.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use foldhash::HashMap;

use super::device::{current_device, device, devices, Device};
use super::fork;
use super::stats::HostMemoryStats;
use crate::cl::{Buffer, Deferred, Event, MapAccess};
use crate::error::{Error, Result};

/// Smallest block; sizes are powers of two from here.
const MINIMUM: usize = 4096;

#[derive(Debug)]
struct Block {
    /// Mapped as long as it lives, in a context of this device.
    buffer: Buffer,
    device: i32,
    size: usize,
    users: Vec<Event>,
    in_use: bool,
}

#[derive(Debug, Default)]
struct Pinned {
    blocks: BTreeMap<usize, Block>,
    free: HashMap<usize, Vec<usize>>,
    stats: HostMemoryStats,
}

static PINNED: Mutex<Option<Pinned>> = Mutex::new(None);

fn pinned() -> MutexGuard<'static, Option<Pinned>> {
    PINNED.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Allocates pinned host memory; returns its host address.
pub fn allocate_pinned(size: usize) -> Result<usize> {
    let class = size.max(MINIMUM).next_power_of_two();
    if let Some(address) = pinned().get_or_insert_default().reuse(class)? {
        return Ok(address);
    }
    let index = current_device();
    let state = device(index)?.state()?;
    let buffer = Buffer::new(&state.context, class, true).map_err(|error| {
        Error::OutOfMemory(format!("OpenCL: cannot pin {class} bytes of host memory: {}", error.message()))
    })?;
    let queue = state.stream(0)?.queue(&state.context)?;
    // Mapping comes after everything enqueued. A signal may end this wait, but not the wait for the map, so that no
    // buffer stays mapped.
    queue.finish()?;
    let _deferred = Deferred::new();
    let (pointer, mapped) = queue.map(buffer.handle(), 0, class, MapAccess::ReadWrite)?;
    queue.wait(&mapped)?;
    let address = pointer as usize;
    let mut guard = pinned();
    let pool = guard.get_or_insert_default();
    pool.stats.add_block(class);
    pool.stats.hand_out(class);
    pool.blocks.insert(address, Block { buffer, device: index, size: class, users: Vec::new(), in_use: true });
    Ok(address)
}

impl Block {
    /// Returns true if every copy that used it has completed.
    fn is_idle(&self) -> Result<bool> {
        for user in &self.users {
            if !user.is_complete()? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Ends the mapping at `address`; the buffer is released with the block.
    fn release(self, address: usize) -> Result<()> {
        let state = device(self.device)?.state()?;
        let queue = state.stream(0)?.queue(&state.context)?;
        // SAFETY: the block was mapped there, and neither a tensor nor the cache uses it.
        let unmapped = unsafe { queue.unmap(self.buffer.handle(), address as *mut u8)? };
        queue.wait(&unmapped)
    }
}

impl Pinned {
    fn reuse(&mut self, class: usize) -> Result<Option<usize>> {
        let Some(candidates) = self.free.get_mut(&class) else { return Ok(None) };
        for index in 0..candidates.len() {
            let Some(&address) = candidates.get(index) else { break };
            let Some(block) = self.blocks.get_mut(&address) else { continue };
            if block.is_idle()? {
                block.users.clear();
                block.in_use = true;
                candidates.swap_remove(index);
                self.stats.hand_out(class);
                return Ok(Some(address));
            }
        }
        Ok(None)
    }

    fn containing(&mut self, address: usize) -> Option<&mut Block> {
        let (start, block) = self.blocks.range_mut(..=address).next_back()?;
        (address - start < block.size && block.in_use).then_some(block)
    }
}

/// Returns pinned memory to the cache.
pub fn free_pinned(address: usize) {
    // In a forked child, a thread of the parent may have held the lock, which is then never released.
    if fork::in_bad_fork() {
        return;
    }
    let mut guard = pinned();
    let Some(pool) = guard.as_mut() else { return };
    if let Some(block) = pool.blocks.get_mut(&address) {
        block.in_use = false;
        pool.stats.take_back(block.size);
        pool.free.entry(block.size).or_default().push(address);
    }
}

/// Releases cached blocks that no copy uses any more to the driver.
pub fn empty_pinned_cache() -> Result<()> {
    // As in [`free_pinned`].
    if fork::in_bad_fork() {
        return Ok(());
    }
    // Unmapping comes after everything enqueued. A signal may end this wait; the others are short, and are made with
    // the lock held.
    for state in devices()?.iter().filter_map(Device::initialised) {
        state.stream(0)?.synchronize()?;
    }
    let _deferred = Deferred::new();
    let mut guard = pinned();
    let Some(pool) = guard.as_mut() else { return Ok(()) };
    let cached: Vec<usize> = pool.free.values().flatten().copied().collect();
    for address in cached {
        if !pool.blocks.get(&address).map_or(Ok(true), Block::is_idle)? {
            continue;
        }
        for addresses in pool.free.values_mut() {
            addresses.retain(|&other| other != address);
        }
        if let Some(block) = pool.blocks.remove(&address) {
            pool.stats.remove_block(block.size);
            block.release(address)?;
        }
    }
    Ok(())
}

/// Returns true if a host address lies in pinned memory.
pub fn is_pinned(address: usize) -> bool {
    !fork::in_bad_fork() && pinned().as_mut().is_some_and(|pool| pool.containing(address).is_some())
}

/// Statistics of pinned host memory.
pub fn host_memory_stats() -> HostMemoryStats {
    pinned().as_ref().map(|pool| pool.stats.clone()).unwrap_or_default()
}

/// Sets every peak of [`host_memory_stats`] to the current value.
pub fn reset_peak_host_stats() {
    pinned().get_or_insert_default().stats.reset_peak();
}

/// Sets every total of [`host_memory_stats`] to zero.
pub fn reset_accumulated_host_stats() {
    pinned().get_or_insert_default().stats.reset_accumulated();
}

/// Records that a stream's work so far uses the block that contains `address`.
pub fn record_pinned(address: usize, index: i32, stream: i64) -> Result<()> {
    let mut guard = pinned();
    if let Some(block) = guard.as_mut().and_then(|pool| pool.containing(address)) {
        let state = device(index)?.state()?;
        block.users.retain(|user| !user.is_complete().unwrap_or(false));
        block.users.push(state.stream(stream)?.queue(&state.context)?.marker()?);
    }
    Ok(())
}
