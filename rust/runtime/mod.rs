//! The device runtime: registry, streams, events, memory.
//!
//! Ownership: a [`Device`] lives as long as the process and owns its context, its streams, its address space and the
//! allocator of that space. A tensor owns an address; the allocator owns the buffer at that address.

mod address;
mod allocator;
mod blocks;
mod capture;
mod capture_streams;
mod class;
mod current;
mod device;
mod draws;
mod event;
mod faults;
mod fork;
mod graph;
mod pinned;
mod pools;
mod profile;
mod selection;
mod small_calls;
mod snapshot;
mod stats;
mod stream;
mod streams;
mod transfer;
mod waits;

pub use address::{Location, GRANULE};
pub use blocks::{MemPool, Pool};
pub use capture::{new_mempool, Capture, Drawn, Kept};
pub use class::DeviceClass;
pub use current::{current_stream, set_current_stream};
pub use device::{
    close_pool, current_device, device, device_count, device_of_address, devices, left_out, platforms,
    set_current_device, Device, DeviceState,
};
pub use draws::drawn;
pub use event::TimedEvent;
pub use faults::{message_index, BadIndexRecord, Launched};
pub use fork::in_bad_fork;
pub use graph::Graph;
pub use pinned::{
    allocate_pinned, empty_pinned_cache, free_pinned, host_memory_stats, is_pinned, record_pinned,
    reset_accumulated_host_stats, reset_peak_host_stats,
};
pub use pools::{enter_pool, leave_pool, open_pool, PoolOptions};
pub use profile::{start_profile, stop_profile, ProfiledCommand};
pub use small_calls::{set_small_calls, small_calls, to_host_if_idle, SmallCalls};
pub use snapshot::{BlockState, BlockView, SegmentView};
pub use stats::{HostMemoryStats, MemoryStats, Stat};
pub use stream::{launch_count, Stream, POOL_STREAMS};
pub use transfer::{
    copy_device_to_device, copy_device_to_host, copy_host_to_device, map_all, unmap_all, Mapping, Range,
};
pub use waits::{before_wait, set_sync_debug_mode, sync_debug_mode, take_sync_warning, SyncDebugMode};
