//! Memory statistics, with the meaning of `torch.cuda.memory_stats` and `host_memory_stats`.

/// A value that increases and decreases, with its peak.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stat {
    /// Current value.
    pub current: i64,
    /// Highest value since the peaks were last reset.
    pub peak: i64,
    /// Sum of all increases since the totals were last reset.
    pub allocated: i64,
    /// Sum of all decreases since the totals were last reset.
    pub freed: i64,
}

impl Stat {
    pub(super) fn add(&mut self, amount: usize) {
        let amount = amount as i64;
        self.current += amount;
        self.allocated += amount;
        self.peak = self.peak.max(self.current);
    }

    pub(super) fn sub(&mut self, amount: usize) {
        let amount = amount as i64;
        self.current -= amount;
        self.freed += amount;
    }

    fn reset_peak(&mut self) {
        self.peak = self.current;
    }

    fn reset_accumulated(&mut self) {
        self.allocated = 0;
        self.freed = 0;
    }
}

/// Statistics of the allocator of one device.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MemoryStats {
    /// Allocations requested by client code (count).
    pub allocation: Stat,
    /// Buffers held from the driver (count).
    pub segment: Stat,
    /// Blocks allocated or still used by a stream (count).
    pub active: Stat,
    /// Free blocks inside a split buffer (count).
    pub inactive_split: Stat,
    /// Bytes in allocated blocks, rounded.
    pub allocated_bytes: Stat,
    /// Bytes held from the driver.
    pub reserved_bytes: Stat,
    /// Bytes in active blocks.
    pub active_bytes: Stat,
    /// Bytes in inactive split blocks.
    pub inactive_split_bytes: Stat,
    /// Bytes requested, not rounded.
    pub requested_bytes: Stat,
    /// Allocations that needed cached buffers to be released first.
    pub num_alloc_retries: i64,
    /// Allocations refused.
    pub num_ooms: i64,
    /// `clCreateBuffer` calls that succeeded.
    pub num_device_alloc: i64,
    /// Buffers released.
    pub num_device_free: i64,
}

impl MemoryStats {
    /// Every [`Stat`] with its name in PyTorch.
    pub fn named(&self) -> [(&'static str, Stat); 9] {
        [
            ("allocation", self.allocation),
            ("segment", self.segment),
            ("active", self.active),
            ("inactive_split", self.inactive_split),
            ("allocated_bytes", self.allocated_bytes),
            ("reserved_bytes", self.reserved_bytes),
            ("active_bytes", self.active_bytes),
            ("inactive_split_bytes", self.inactive_split_bytes),
            ("requested_bytes", self.requested_bytes),
        ]
    }

    fn each(&mut self, change: impl Fn(&mut Stat)) {
        for stat in [
            &mut self.allocation,
            &mut self.segment,
            &mut self.active,
            &mut self.inactive_split,
            &mut self.allocated_bytes,
            &mut self.reserved_bytes,
            &mut self.active_bytes,
            &mut self.inactive_split_bytes,
            &mut self.requested_bytes,
        ] {
            change(stat);
        }
    }

    pub(super) fn reset_peak(&mut self) {
        self.each(Stat::reset_peak);
    }

    pub(super) fn reset_accumulated(&mut self) {
        self.each(Stat::reset_accumulated);
        self.num_alloc_retries = 0;
        self.num_ooms = 0;
        self.num_device_alloc = 0;
        self.num_device_free = 0;
    }
}

/// Statistics of the allocator of pinned host memory.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HostMemoryStats {
    /// Blocks, in tensors and in the cache (count).
    pub allocations: Stat,
    /// Bytes of all blocks.
    pub allocated_bytes: Stat,
    /// Blocks in tensors (count).
    pub active_requests: Stat,
    /// Bytes of the blocks in tensors.
    pub active_bytes: Stat,
}

impl HostMemoryStats {
    /// Every [`Stat`] with its name in PyTorch.
    pub fn named(&self) -> [(&'static str, Stat); 4] {
        [
            ("allocations", self.allocations),
            ("allocated_bytes", self.allocated_bytes),
            ("active_requests", self.active_requests),
            ("active_bytes", self.active_bytes),
        ]
    }

    pub(super) fn add_block(&mut self, size: usize) {
        self.allocations.add(1);
        self.allocated_bytes.add(size);
    }

    pub(super) fn remove_block(&mut self, size: usize) {
        self.allocations.sub(1);
        self.allocated_bytes.sub(size);
    }

    pub(super) fn hand_out(&mut self, size: usize) {
        self.active_requests.add(1);
        self.active_bytes.add(size);
    }

    pub(super) fn take_back(&mut self, size: usize) {
        self.active_requests.sub(1);
        self.active_bytes.sub(size);
    }

    fn each(&mut self, change: impl Fn(&mut Stat)) {
        let all = [&mut self.allocations, &mut self.allocated_bytes, &mut self.active_requests, &mut self.active_bytes];
        all.into_iter().for_each(change);
    }

    pub(super) fn reset_peak(&mut self) {
        self.each(Stat::reset_peak);
    }

    pub(super) fn reset_accumulated(&mut self) {
        self.each(Stat::reset_accumulated);
    }
}
