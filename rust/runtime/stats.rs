//! Memory statistics, with the meaning that `torch.cuda.memory_stats` gives them.

/// A figure that rises and falls.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stat {
    /// Value now.
    pub current: i64,
    /// Highest value since the last reset of peaks.
    pub peak: i64,
    /// Sum of all rises since the last reset of totals.
    pub allocated: i64,
    /// Sum of all falls since the last reset of totals.
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
}

/// What the allocator of one device has done.
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
    /// Every [`Stat`] with the name PyTorch gives it.
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

    fn each(&mut self, mut change: impl FnMut(&mut Stat)) {
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
        self.each(|stat| stat.peak = stat.current);
    }

    pub(super) fn reset_accumulated(&mut self) {
        self.each(|stat| {
            stat.allocated = 0;
            stat.freed = 0;
        });
        self.num_alloc_retries = 0;
        self.num_ooms = 0;
        self.num_device_alloc = 0;
        self.num_device_free = 0;
    }
}
