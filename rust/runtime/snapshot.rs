//! Snapshot of an allocator: its segments and their blocks.

use super::blocks::{Block, Owner, Pool};

/// A buffer of the driver.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SegmentView {
    /// Start of its address range.
    pub address: usize,
    /// Stream and pool whose tensors it serves.
    pub owner: Owner,
    /// Small or large blocks.
    pub pool: Pool,
    /// Its blocks by address; together they fill the segment.
    pub blocks: Vec<BlockView>,
}

/// A contiguous range of a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockView {
    /// Start of its address range.
    pub address: usize,
    /// Bytes.
    pub size: usize,
    /// Bytes requested; 0 if no tensor owns it.
    pub requested: usize,
    /// Its owner.
    pub state: BlockState,
}

/// The owner of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BlockState {
    /// A tensor.
    Allocated,
    /// None, but another stream's work may still use it.
    PendingFree,
    /// The cache.
    Free,
}

impl BlockState {
    /// Its name in `torch.cuda.memory_snapshot`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Allocated => "active_allocated",
            Self::PendingFree => "active_pending_free",
            Self::Free => "inactive",
        }
    }
}

impl BlockView {
    pub(super) fn new(address: usize, block: &Block, is_pending: bool) -> Self {
        let state = match (block.in_use, is_pending) {
            (false, _) => BlockState::Free,
            (true, true) => BlockState::PendingFree,
            (true, false) => BlockState::Allocated,
        };
        let requested = if state == BlockState::Allocated { block.requested } else { 0 };
        Self { address, size: block.size, requested, state }
    }
}

impl SegmentView {
    /// Bytes of the blocks for which `counts` returns true.
    pub fn bytes(&self, counts: impl Fn(&BlockView) -> bool) -> usize {
        self.blocks.iter().filter(|block| counts(block)).map(|block| block.size).sum()
    }
}
