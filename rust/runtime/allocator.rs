//! The caching allocator of one device.
//!
//! A freed block returns at once to the stream it was allocated on: that stream's queue is in order, so work enqueued
//! later cannot overtake work enqueued before the free. Blocks that other streams used wait for those streams' markers.
//! Segments are released to the driver only when they are wholly free, after the device is idle.

use std::sync::Arc;

use foldhash::HashMap;

use super::address::{AddressMap, AddressSpace, Placed};
use super::blocks::{Blocks, MemPool, Owner, Pool, ALIGNMENT};
use super::pools;
use super::snapshot::{BlockView, SegmentView};
use super::stats::MemoryStats;
use crate::cl::{Buffer, Context, Event, MemHandle};
use crate::error::{Error, Result};

/// A freed block that other streams may still read, with the markers to wait for.
#[derive(Debug)]
struct Pending {
    address: usize,
    markers: Vec<Event>,
}

/// Limits of the device that messages and checks need.
#[derive(Clone, Debug)]
pub(super) struct Limits {
    pub device_name: String,
    pub global_mem: usize,
    pub max_alloc: usize,
    /// See [`crate::cl::DeviceInfo::allows_large_buffers`].
    pub allows_large_buffers: bool,
    pub host_unified: bool,
}

/// State protected by the allocator's lock.
#[derive(Debug)]
pub(super) struct Allocator {
    limits: Limits,
    /// Part of `limits.global_mem` that this process may hold, from 0 to 1.
    fraction: f64,
    addresses: AddressMap,
    /// Shared with the graphs that use them.
    segments: HashMap<usize, Arc<Buffer>>,
    /// External buffers, which are not divided into blocks; also shared with graphs.
    external: HashMap<usize, Arc<Buffer>>,
    blocks: Blocks,
    pending: Vec<Pending>,
    stats: MemoryStats,
}

impl Allocator {
    pub fn new(limits: Limits, space: &AddressSpace) -> Self {
        Self {
            limits,
            fraction: 1.0,
            addresses: AddressMap::new(space),
            segments: HashMap::default(),
            external: HashMap::default(),
            blocks: Blocks::default(),
            pending: Vec::new(),
            stats: MemoryStats::default(),
        }
    }

    /// Allocates `requested` bytes for a stream and pool. `idle` blocks until the device is idle; returns `None` if
    /// that is needed and `idle` is `None`.
    pub fn allocate(
        &mut self,
        context: &Context,
        space: &AddressSpace,
        requested: usize,
        owner: Owner,
        idle: Option<&dyn Fn() -> Result<()>>,
    ) -> Result<Option<usize>> {
        let size = requested.max(1).next_multiple_of(ALIGNMENT);
        self.collect_pending(false)?;
        let may_split = !pools::options(owner.mempool).is_some_and(|options| options.no_split);
        let mut found = self.blocks.take(size, requested, owner, may_split);
        if found.is_none() {
            if self.add_segment(context, space, size, owner).is_err() {
                let Some(idle) = idle else { return Ok(None) };
                self.stats.num_alloc_retries += 1;
                let is_released =
                    |pool| pool == owner.mempool || pools::options(pool).is_none_or(|options| options.use_on_oom);
                self.release_cached(space, is_released, idle)?;
                if let Err(cause) = self.add_segment(context, space, size, owner) {
                    self.stats.num_ooms += 1;
                    return Err(self.out_of_memory(requested, &cause));
                }
            }
            found = self.blocks.take(size, requested, owner, may_split);
        }
        let address = found.ok_or_else(|| Error::Invalid("a fresh segment holds no free block".to_owned()))?;
        let size = self.blocks.get(address).map_or(size, |block| block.size);
        self.stats.allocation.add(1);
        self.stats.active.add(1);
        self.stats.allocated_bytes.add(size);
        self.stats.active_bytes.add(size);
        self.stats.requested_bytes.add(requested);
        Ok(Some(address))
    }

    /// Frees a block; `mark` records a marker on another stream that used it, if one is needed. Returns false if no
    /// block starts at `address`.
    pub fn free(&mut self, address: usize, mark: impl Fn(i64) -> Result<Option<Event>>) -> Result<bool> {
        let Some(block) = self.blocks.get_mut(address) else { return Ok(false) };
        let streams = std::mem::take(&mut block.used_by);
        let (size, requested) = (block.size, block.requested);
        self.stats.allocation.sub(1);
        self.stats.allocated_bytes.sub(size);
        self.stats.requested_bytes.sub(requested);
        if streams.is_empty() {
            self.retire(address, size);
            return Ok(true);
        }
        let markers = streams.into_iter().filter_map(|stream| mark(stream).transpose()).collect::<Result<_>>()?;
        self.pending.push(Pending { address, markers });
        Ok(true)
    }

    fn retire(&mut self, address: usize, size: usize) {
        self.stats.active.sub(1);
        self.stats.active_bytes.sub(size);
        self.blocks.give_back(address);
    }

    /// Gives an address to an external buffer.
    pub fn adopt(&mut self, space: &AddressSpace, buffer: Buffer) -> Result<usize> {
        let address =
            self.addresses.insert(space, buffer.size().max(1), Placed { memory: buffer.handle(), host: None })?;
        self.external.insert(address, Arc::new(buffer));
        Ok(address)
    }

    /// Releases the external buffer that starts at `address`, if there is one.
    pub fn abandon(&mut self, space: &AddressSpace, address: usize, idle: impl Fn() -> Result<()>) -> Result<()> {
        let Some(buffer) = self.external.remove(&address) else { return Ok(()) };
        // With some drivers, a launch does not keep a buffer alive.
        let idle = idle();
        self.addresses.remove(space, address, buffer.size().max(1));
        idle
    }

    /// Records that a stream other than the block's own uses it.
    pub fn record_stream(&mut self, address: usize, stream: i64) {
        if let Some(block) = self.blocks.get_mut(address) {
            if block.owner.stream != stream && !block.used_by.contains(&stream) {
                block.used_by.push(stream);
            }
        }
    }

    /// Frees blocks whose markers have completed; waits for the markers if `wait` is set.
    fn collect_pending(&mut self, wait: bool) -> Result<()> {
        let mut index = 0;
        while let Some(pending) = self.pending.get(index) {
            let mut complete = true;
            for marker in &pending.markers {
                if wait {
                    marker.wait()?;
                }
                complete &= marker.is_complete()?;
            }
            if !complete {
                index += 1;
                continue;
            }
            let address = self.pending.swap_remove(index).address;
            let size = self.blocks.get(address).map_or(0, |block| block.size);
            self.retire(address, size);
        }
        Ok(())
    }

    fn add_segment(&mut self, context: &Context, space: &AddressSpace, size: usize, owner: Owner) -> Result<()> {
        let pool = Pool::of(size);
        let segment_size = pool.segment_size(size).min(self.limits.max_alloc.max(size));
        if self.reserved() + segment_size > self.budget() {
            return Err(Error::OutOfMemory("the process's budget is used up".to_owned()));
        }
        let is_large = segment_size > self.limits.max_alloc && self.limits.allows_large_buffers;
        let buffer = Buffer::for_tensors(context, segment_size, self.limits.host_unified, is_large)?;
        let address = self.addresses.insert(
            space,
            segment_size,
            Placed { memory: buffer.handle(), host: buffer.shared_address() },
        )?;
        self.segments.insert(address, Arc::new(buffer));
        self.blocks.add_segment(address, segment_size, owner, pool);
        self.stats.segment.add(1);
        self.stats.reserved_bytes.add(segment_size);
        self.stats.num_device_alloc += 1;
        Ok(())
    }

    /// Releases wholly free segments of some pools to the driver, except those that a graph uses.
    pub fn release_cached(
        &mut self,
        space: &AddressSpace,
        is_released: impl Fn(MemPool) -> bool,
        idle: impl Fn() -> Result<()>,
    ) -> Result<()> {
        // On some drivers queued kernels do not keep a buffer alive: nothing may run while buffers are released.
        idle()?;
        self.collect_pending(true)?;
        let segments = &self.segments;
        let is_in_graph = |address| segments.get(&address).is_some_and(|buffer| Arc::strong_count(buffer) > 1);
        for address in self.blocks.remove_free_segments(|pool, address| !is_released(pool) || is_in_graph(address)) {
            if let Some(buffer) = self.segments.remove(&address) {
                self.addresses.remove(space, address, buffer.size());
                self.stats.segment.sub(1);
                self.stats.reserved_bytes.sub(buffer.size());
                self.stats.num_device_free += 1;
            }
        }
        Ok(())
    }

    /// CUDA's address of a segment, if CUDA uses its memory too.
    pub fn cuda_address(&self, segment: usize) -> Option<u64> {
        self.segments.get(&segment)?.cuda_address()
    }

    /// The buffer of a handle. If other code returns one of our buffers, the handle is in both tables: our own entry
    /// comes first.
    pub fn buffer(&self, handle: MemHandle) -> Option<Arc<Buffer>> {
        let mut buffers = self.segments.values().chain(self.external.values());
        buffers.find(|buffer| buffer.handle() == handle).cloned()
    }

    /// The largest address range [start, end) of the block that starts at `address`.
    pub fn block_size(&self, address: usize) -> Option<usize> {
        self.blocks.get(address).map(|block| block.size)
    }

    /// All segments by address.
    pub fn snapshot(&self) -> Vec<SegmentView> {
        let is_pending = |address| self.pending.iter().any(|pending| pending.address == address);
        let view = |start: &usize| {
            let first = self.blocks.get(*start)?;
            let blocks = self.blocks.of_segment(*start);
            let blocks = blocks.map(|(address, block)| BlockView::new(address, block, is_pending(address))).collect();
            Some(SegmentView { address: *start, owner: first.owner, pool: first.pool, blocks })
        };
        let mut segments: Vec<_> = self.segments.keys().filter_map(view).collect();
        segments.sort_by_key(|segment| segment.address);
        segments
    }

    pub fn stats(&self) -> MemoryStats {
        let mut stats = self.stats.clone();
        let (count, bytes) = self.blocks.inactive_split();
        stats.inactive_split.current = count as i64;
        stats.inactive_split.peak = stats.inactive_split.peak.max(count as i64);
        stats.inactive_split_bytes.current = bytes as i64;
        stats.inactive_split_bytes.peak = stats.inactive_split_bytes.peak.max(bytes as i64);
        stats
    }

    pub fn reset_peak(&mut self) {
        self.stats.reset_peak();
    }

    pub fn reset_accumulated(&mut self) {
        self.stats.reset_accumulated();
    }

    /// Limits this process to a fraction of the device's memory.
    pub fn set_fraction(&mut self, fraction: f64) {
        self.fraction = fraction.clamp(0.0, 1.0);
    }

    /// The fraction set by [`Self::set_fraction`].
    pub fn fraction(&self) -> f64 {
        self.fraction
    }

    /// Bytes that this process may hold.
    fn budget(&self) -> usize {
        (self.limits.global_mem as f64 * self.fraction) as usize
    }

    /// Bytes (free, total). OpenCL does not report what other processes hold.
    pub fn memory_info(&self) -> (usize, usize) {
        (self.limits.global_mem.saturating_sub(self.reserved()), self.limits.global_mem)
    }

    fn reserved(&self) -> usize {
        usize::try_from(self.stats.reserved_bytes.current).unwrap_or(0)
    }

    fn out_of_memory(&self, requested: usize, cause: &Error) -> Error {
        let allocated = usize::try_from(self.stats.allocated_bytes.current).unwrap_or(0);
        // Drivers may allow more than they report, so this is only a hint.
        let limit = if requested > self.limits.max_alloc {
            let most = bytes(self.limits.max_alloc);
            format!(" The driver reports at most {most} for one allocation (CL_DEVICE_MAX_MEM_ALLOC_SIZE): split the tensor.")
        } else {
            String::new()
        };
        Error::OutOfMemory(format!(
            "OpenCL out of memory. Tried to allocate {} on '{}', which has {} in all; this process may hold {}. \
             {} is allocated by tensors, {} is reserved but unallocated (largest free block {}). \
             Free tensors you no longer need, or use smaller batches.{limit} Driver: {}.",
            bytes(requested),
            self.limits.device_name,
            bytes(self.limits.global_mem),
            bytes(self.budget()),
            bytes(allocated),
            bytes(self.reserved().saturating_sub(allocated)),
            bytes(self.blocks.largest_free()),
            cause.message(),
        ))
    }
}

/// "1.50 GiB", as PyTorch prints sizes.
fn bytes(count: usize) -> String {
    const UNITS: [&str; 4] = ["bytes", "KiB", "MiB", "GiB"];
    let mut value = count as f64;
    let mut unit = 0;
    while value >= 1024.0 && unit + 1 < UNITS.len() {
        value /= 1024.0;
        unit += 1;
    }
    let name = UNITS.get(unit).copied().unwrap_or_default();
    if unit == 0 {
        format!("{count} {name}")
    } else {
        format!("{value:.2} {name}")
    }
}

#[cfg(test)]
mod tests {
    use super::bytes;

    #[test]
    fn sizes_are_printed_in_the_unit_that_suits_them() {
        let printed = [0, 1023, 1536, 5 << 20, 3 << 29].map(bytes);
        assert_eq!(printed, ["0 bytes", "1023 bytes", "1.50 KiB", "5.00 MiB", "1.50 GiB"]);
    }
}
