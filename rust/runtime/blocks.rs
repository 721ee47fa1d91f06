//! Bookkeeping of blocks inside segments: best fit, splitting, merging. Pure data, no driver calls.

use std::collections::BTreeSet;
use std::iter;

use foldhash::HashMap;

/// A contiguous stretch of a segment, free or in use.
#[derive(Clone, Debug)]
pub struct Block {
    /// Bytes, a multiple of [`ALIGNMENT`].
    pub size: usize,
    /// Bytes requested; 0 when free.
    pub requested: usize,
    /// The stream and pool that may reuse it without waiting.
    pub owner: Owner,
    /// Small and large blocks are in separate segments.
    pub pool: Pool,
    /// Owned by a tensor, or waiting for another stream.
    pub in_use: bool,
    /// Other streams that used it (`record_stream`).
    pub used_by: Vec<i64>,
    previous: Option<usize>,
    next: Option<usize>,
}

impl Block {
    /// Returns true if the segment also holds other blocks.
    pub fn is_split(&self) -> bool {
        self.previous.is_some() || self.next.is_some()
    }
}

/// A pool of memory, of captured graphs or of the user, named by two integers as in PyTorch; (0, 0) is the default
/// pool.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MemPool(pub [u64; 2]);

/// A stream whose work may use a block without waiting, and the pool that the block stays in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Owner {
    /// The pool.
    pub mempool: MemPool,
    /// The stream.
    pub stream: i64,
}

/// Small blocks have separate segments, so that long-lived small tensors do not pin large segments.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Pool {
    /// Requests up to `SMALL_REQUEST`.
    Small,
    /// All others.
    Large,
}

/// Block sizes are multiples of this: enough for the widest vector type and for a cache line.
pub const ALIGNMENT: usize = 512;
/// Requests up to this share 2 MiB segments.
pub const SMALL_REQUEST: usize = 1 << 20;
const SMALL_SEGMENT: usize = 2 << 20;
/// Requests of at least this size get a segment of their size.
const LARGE_REQUEST: usize = 10 << 20;
const LARGE_SEGMENT: usize = 20 << 20;

impl Pool {
    /// The pool that serves a block of `size` bytes.
    pub fn of(size: usize) -> Self {
        if size <= SMALL_REQUEST {
            Self::Small
        } else {
            Self::Large
        }
    }

    /// Bytes of the segment to allocate for a block of `size` bytes.
    pub fn segment_size(self, size: usize) -> usize {
        match self {
            Self::Small => SMALL_SEGMENT,
            Self::Large if size < LARGE_REQUEST => LARGE_SEGMENT,
            Self::Large => size.next_multiple_of(SMALL_SEGMENT),
        }
    }

    /// Returns true if a remainder of this many bytes is worth a separate block.
    fn splits(self, remainder: usize) -> bool {
        match self {
            Self::Small => remainder >= ALIGNMENT,
            Self::Large => remainder > SMALL_REQUEST,
        }
    }
}

/// All blocks of one device.
#[derive(Debug, Default)]
pub struct Blocks {
    by_address: HashMap<usize, Block>,
    free: BTreeSet<(Owner, Pool, usize, usize)>,
}

impl Blocks {
    /// Adds a fresh segment as one free block.
    pub fn add_segment(&mut self, address: usize, size: usize, owner: Owner, pool: Pool) {
        self.free.insert((owner, pool, size, address));
        let block =
            Block { size, requested: 0, owner, pool, in_use: false, used_by: Vec::new(), previous: None, next: None };
        self.by_address.insert(address, block);
    }

    /// Takes the smallest free block that fits, and splits it if that is allowed and the remainder is large enough.
    pub fn take(&mut self, size: usize, requested: usize, owner: Owner, may_split: bool) -> Option<usize> {
        let pool = Pool::of(size);
        let found = *self.free.range((owner, pool, size, 0)..=(owner, pool, usize::MAX, usize::MAX)).next()?;
        self.free.remove(&found);
        let address = found.3;
        let block = self.by_address.get_mut(&address)?;
        block.in_use = true;
        block.requested = requested;
        let remainder = block.size - size;
        if may_split && pool.splits(remainder) {
            block.size = size;
            let rest_address = address + size;
            let rest = Block {
                size: remainder,
                requested: 0,
                in_use: false,
                used_by: Vec::new(),
                previous: Some(address),
                next: block.next.replace(rest_address),
                ..block.clone()
            };
            if let Some(after) = rest.next.and_then(|after| self.by_address.get_mut(&after)) {
                after.previous = Some(rest_address);
            }
            self.by_address.insert(rest_address, rest);
            self.free.insert((owner, pool, remainder, rest_address));
        }
        Some(address)
    }

    /// Returns a block to the free set, merged with free neighbours.
    pub fn give_back(&mut self, address: usize) {
        let Some(mut block) = self.by_address.remove(&address) else { return };
        block.in_use = false;
        block.requested = 0;
        block.used_by.clear();
        let mut start = address;
        if let Some((before_address, before)) = self.take_free_neighbour(block.previous) {
            start = before_address;
            block.size += before.size;
            block.previous = before.previous;
        }
        if let Some((_, after)) = self.take_free_neighbour(block.next) {
            block.size += after.size;
            block.next = after.next;
        }
        if let Some(before) = block.previous.and_then(|before| self.by_address.get_mut(&before)) {
            before.next = Some(start);
        }
        if let Some(after) = block.next.and_then(|after| self.by_address.get_mut(&after)) {
            after.previous = Some(start);
        }
        self.free.insert((block.owner, block.pool, block.size, start));
        self.by_address.insert(start, block);
    }

    fn take_free_neighbour(&mut self, address: Option<usize>) -> Option<(usize, Block)> {
        let address = address?;
        if self.by_address.get(&address)?.in_use {
            return None;
        }
        let block = self.by_address.remove(&address)?;
        self.free.remove(&(block.owner, block.pool, block.size, address));
        Some((address, block))
    }

    /// The block that starts at an address.
    pub fn get(&self, address: usize) -> Option<&Block> {
        self.by_address.get(&address)
    }

    /// The blocks of the segment that starts at an address, in order.
    pub fn of_segment(&self, address: usize) -> impl Iterator<Item = (usize, &Block)> {
        let entry = move |address: usize| Some((address, self.by_address.get(&address)?));
        iter::successors(entry(address), move |(_, block)| entry(block.next?))
    }

    /// The block that starts at an address, to be changed.
    pub fn get_mut(&mut self, address: usize) -> Option<&mut Block> {
        self.by_address.get_mut(&address)
    }

    /// Removes the segments that are wholly free and not needed; returns their addresses.
    pub fn remove_free_segments(&mut self, is_needed: impl Fn(MemPool, usize) -> bool) -> Vec<usize> {
        let whole: Vec<_> = self
            .free
            .iter()
            .copied()
            .filter(|(owner, .., address)| {
                self.by_address.get(address).is_some_and(|block| !block.is_split())
                    && !is_needed(owner.mempool, *address)
            })
            .collect();
        for key in &whole {
            self.free.remove(key);
            self.by_address.remove(&key.3);
        }
        whole.into_iter().map(|(.., address)| address).collect()
    }

    /// Free blocks inside split segments: (count, bytes).
    pub fn inactive_split(&self) -> (usize, usize) {
        self.by_address
            .values()
            .filter(|block| !block.in_use && block.is_split())
            .fold((0, 0), |(count, bytes), block| (count + 1, bytes + block.size))
    }

    /// The largest free block of any stream.
    pub fn largest_free(&self) -> usize {
        self.free.iter().map(|(_, _, size, _)| *size).max().unwrap_or(0)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    const FIRST: Owner = Owner { mempool: MemPool([0, 0]), stream: 0 };

    fn one_segment(size: usize, pool: Pool) -> Blocks {
        let mut blocks = Blocks::default();
        blocks.add_segment(0x1000_0000, size, FIRST, pool);
        blocks
    }

    #[test]
    fn small_blocks_split_a_segment_and_merge_back() {
        let mut blocks = one_segment(SMALL_SEGMENT, Pool::Small);
        let taken: Vec<_> = (0..3).map(|_| blocks.take(1024, 1000, FIRST, true).unwrap()).collect();
        assert_eq!(blocks.inactive_split(), (1, SMALL_SEGMENT - 3 * 1024));
        let cut: Vec<_> = blocks.of_segment(0x1000_0000).map(|(_, block)| block.size).collect();
        assert_eq!(cut, [1024, 1024, 1024, SMALL_SEGMENT - 3 * 1024]);
        for order in [1, 0, 2] {
            blocks.give_back(*taken.get(order).unwrap());
        }
        assert!(blocks.remove_free_segments(|_, _| true).is_empty());
        assert_eq!(blocks.remove_free_segments(|_, _| false), vec![0x1000_0000]);
    }

    #[test]
    fn a_block_is_not_given_to_another_stream_nor_to_another_pool() {
        let mut blocks = one_segment(SMALL_SEGMENT, Pool::Small);
        assert!(blocks.take(512, 512, Owner { stream: 1, ..FIRST }, true).is_none());
        assert!(blocks.take(512, 512, Owner { mempool: MemPool([1, 0]), ..FIRST }, true).is_none());
        assert!(blocks.take(512, 512, FIRST, true).is_some());
    }

    #[test]
    fn a_large_block_keeps_a_remainder_too_small_to_be_worth_splitting() {
        let mut blocks = one_segment(LARGE_SEGMENT, Pool::Large);
        let address = blocks.take(LARGE_SEGMENT - SMALL_REQUEST, 1, FIRST, true).unwrap();
        assert_eq!(blocks.get(address).unwrap().size, LARGE_SEGMENT);
    }

    #[test]
    fn a_block_that_may_not_be_split_is_taken_whole() {
        let mut blocks = one_segment(SMALL_SEGMENT, Pool::Small);
        let address = blocks.take(512, 512, FIRST, false).unwrap();
        assert_eq!(blocks.get(address).unwrap().size, SMALL_SEGMENT);
        assert!(blocks.take(512, 512, FIRST, false).is_none());
    }

    #[test]
    fn best_fit_prefers_the_smaller_free_block() {
        let mut blocks = one_segment(LARGE_SEGMENT, Pool::Large);
        blocks.add_segment(0x2000_0000, LARGE_SEGMENT / 2, FIRST, Pool::Large);
        assert_eq!(blocks.take(4 << 20, 1, FIRST, true), Some(0x2000_0000));
    }
}
