//! Addresses for device memory.
//!
//! OpenCL 1.2 buffers have no addresses, but tensors need them: views are pointer arithmetic, overlap checks compare
//! pointers, and messages name a tensor by its pointer. Each device therefore reserves a range of the process's address
//! space without access rights (`mmap` with `PROT_NONE`): a stray host read faults instead of returning garbage.
//! Buffers are placed in the range in granules of 2 MiB, and one table lookup turns an address back into (buffer, byte
//! offset), without a lock.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};

use crate::cl::MemHandle;
use crate::error::{Error, Result};

/// Bytes of address space per table entry.
pub const GRANULE: usize = 2 << 20;

/// Sizes tried for the reservation: containers may limit address space.
const RESERVATIONS: [usize; 4] = [1 << 40, 1 << 38, 1 << 36, 1 << 34];

/// The buffer and offset of an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Location {
    /// The buffer.
    pub memory: MemHandle,
    /// Bytes from its start.
    pub offset: usize,
}

/// A buffer to place in the range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Placed {
    /// The buffer.
    pub memory: MemHandle,
    /// Its host address, if the host can access it without mapping.
    pub host: Option<usize>,
}

/// The reserved address range of one device.
#[derive(Debug)]
pub struct AddressSpace {
    base: usize,
    size: usize,
    /// Per granule: the buffer placed there, 0 if there is none.
    memory: Box<[AtomicUsize]>,
    /// Per granule: the index of the first granule of its buffer.
    first: Box<[AtomicU32]>,
    /// Per granule: its host address, 0 if there is none.
    host: Box<[AtomicUsize]>,
}

impl AddressSpace {
    /// Reserves a range.
    pub fn reserve() -> Result<Self> {
        for size in RESERVATIONS {
            // SAFETY: a fresh private mapping without access rights touches no memory of the process.
            let base = unsafe {
                libc::mmap(
                    std::ptr::null_mut(),
                    size,
                    libc::PROT_NONE,
                    libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE,
                    -1,
                    0,
                )
            };
            if base != libc::MAP_FAILED {
                // Rounded up to a granule; the ends lost are negligible.
                let aligned = (base as usize).next_multiple_of(GRANULE);
                let size = size - GRANULE;
                let granules = size / GRANULE;
                return Ok(Self {
                    base: aligned,
                    size,
                    memory: (0..granules).map(|_| AtomicUsize::new(0)).collect(),
                    first: (0..granules).map(|_| AtomicU32::new(0)).collect(),
                    host: (0..granules).map(|_| AtomicUsize::new(0)).collect(),
                });
            }
        }
        Err(Error::OutOfMemory(
            "OpenCL: cannot reserve address space for a device; is RLIMIT_AS (ulimit -v) set below 16 GiB?".to_owned(),
        ))
    }

    /// Returns true if the address lies in the range.
    pub fn contains(&self, address: usize) -> bool {
        address.wrapping_sub(self.base) < self.size
    }

    /// The buffer and offset of an address, `None` if no buffer is placed there.
    pub fn resolve(&self, address: usize) -> Option<Location> {
        let offset = address.wrapping_sub(self.base);
        let granule = offset / GRANULE;
        let memory = self.memory.get(granule)?.load(Ordering::Acquire);
        if memory == 0 {
            return None;
        }
        let first = self.first.get(granule)?.load(Ordering::Relaxed) as usize;
        Some(Location { memory: MemHandle::from_bits(memory), offset: offset - first * GRANULE })
    }

    /// The host address of device memory that the host can access without mapping; `None` for other memory.
    pub fn host_address(&self, address: usize) -> Option<usize> {
        let offset = address.wrapping_sub(self.base);
        let granule = self.host.get(offset / GRANULE)?.load(Ordering::Acquire);
        (granule != 0).then(|| granule + offset % GRANULE)
    }

    fn granules(&self, address: usize, size: usize) -> std::ops::Range<usize> {
        let first = address.wrapping_sub(self.base) / GRANULE;
        first..first + size.div_ceil(GRANULE)
    }

    fn record(&self, address: usize, size: usize, buffer: Placed) {
        let range = self.granules(address, size);
        let start = range.start as u32;
        for (memory_slot, first_slot) in self
            .memory
            .get(range.clone())
            .unwrap_or_default()
            .iter()
            .zip(self.first.get(range.clone()).unwrap_or_default())
        {
            first_slot.store(start, Ordering::Relaxed);
            memory_slot.store(buffer.memory.to_bits(), Ordering::Release);
        }
        let Some(host) = buffer.host else { return };
        for (index, slot) in self.host.get(range).unwrap_or_default().iter().enumerate() {
            slot.store(host + index * GRANULE, Ordering::Release);
        }
    }

    fn clear(&self, address: usize, size: usize) {
        for table in [&self.host, &self.memory] {
            for slot in table.get(self.granules(address, size)).unwrap_or_default() {
                slot.store(0, Ordering::Release);
            }
        }
    }
}

impl Drop for AddressSpace {
    fn drop(&mut self) {
        // SAFETY: the granule-aligned part of a mapping that this value owns and that no code can have accessed.
        let _ = unsafe { libc::munmap(self.base as *mut libc::c_void, self.size) };
    }
}

/// Allocates ranges of an [`AddressSpace`]; used under the allocator's lock.
#[derive(Debug)]
pub struct AddressMap {
    next: usize,
    end: usize,
    /// Released ranges: address to size, never two adjacent ones.
    free: BTreeMap<usize, usize>,
}

impl AddressMap {
    /// A map in which all of the space is free.
    pub fn new(space: &AddressSpace) -> Self {
        Self { next: space.base, end: space.base + space.size, free: BTreeMap::new() }
    }

    /// Places a buffer of `size` bytes; returns its address.
    pub fn insert(&mut self, space: &AddressSpace, size: usize, buffer: Placed) -> Result<usize> {
        let stretch = size.next_multiple_of(GRANULE);
        let reused = self.free.iter().find(|(_, free)| **free >= stretch).map(|(address, free)| (*address, *free));
        let address = if let Some((address, free)) = reused {
            self.free.remove(&address);
            if free > stretch {
                self.free.insert(address + stretch, free - stretch);
            }
            address
        } else if self.end - self.next >= stretch {
            self.next += stretch;
            self.next - stretch
        } else {
            return Err(Error::OutOfMemory("OpenCL: the device's reserved address range is used up".to_owned()));
        };
        space.record(address, size, buffer);
        Ok(address)
    }

    /// Removes a buffer from the range.
    pub fn remove(&mut self, space: &AddressSpace, address: usize, size: usize) {
        space.clear(address, size);
        let (mut start, mut length) = (address, size.next_multiple_of(GRANULE));
        if let Some((&before, &before_length)) = self.free.range(..start).next_back() {
            if before + before_length == start {
                self.free.remove(&before);
                start = before;
                length += before_length;
            }
        }
        if let Some(after_length) = self.free.remove(&(start + length)) {
            length += after_length;
        }
        self.free.insert(start, length);
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn an_address_resolves_to_its_buffer_and_offset() {
        let space = AddressSpace::reserve().unwrap();
        let mut map = AddressMap::new(&space);
        let memory = MemHandle::from_bits(0x1234);
        let address = map.insert(&space, 3 * GRANULE, Placed { memory, host: Some(0x5000) }).unwrap();
        let location = space.resolve(address + 2 * GRANULE + 17).unwrap();
        assert_eq!(location, Location { memory, offset: 2 * GRANULE + 17 });
        assert_eq!(space.host_address(address + 2 * GRANULE + 17), Some(0x5000 + 2 * GRANULE + 17));
        assert!(space.contains(address));
        assert!(!space.contains(&raw const location as usize));
    }

    #[test]
    fn a_removed_buffer_resolves_to_nothing_and_its_stretch_is_reused_after_merging() {
        let space = AddressSpace::reserve().unwrap();
        let mut map = AddressMap::new(&space);
        let memory = MemHandle::from_bits(8);
        let first = map.insert(&space, GRANULE, Placed { memory, host: None }).unwrap();
        let second = map.insert(&space, GRANULE, Placed { memory, host: None }).unwrap();
        map.remove(&space, first, GRANULE);
        map.remove(&space, second, GRANULE);
        assert_eq!((space.resolve(first), space.host_address(first)), (None, None));
        assert_eq!(map.insert(&space, 2 * GRANULE, Placed { memory, host: None }).unwrap(), first);
    }
}
