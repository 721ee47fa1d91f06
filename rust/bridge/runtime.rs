//! The runtime's part of the bridge: devices, streams, events, memory, counters.

use super::device::*;
use super::memory::*;
use super::tuning::*;

#[cxx::bridge(namespace = "torch_opencl::bridge")]
pub mod ffi {
    /// Free and total bytes.
    struct MemoryInfo {
        free: usize,
        total: usize,
    }

    /// A named statistic of the allocator, as PyTorch's `Stat`.
    struct NamedStat {
        name: &'static str,
        current: i64,
        peak: i64,
        allocated: i64,
        freed: i64,
    }

    extern "Rust" {
        // Devices and streams.
        fn device_count() -> i32;
        fn device_error() -> String;
        fn device_json(index: i32) -> Result<String>;
        fn platforms_json() -> String;
        fn current_device() -> i32;
        fn set_current_device(index: i32) -> Result<()>;
        fn is_initialized(index: i32) -> bool;
        fn initialize(index: i32) -> Result<()>;
        fn in_bad_fork() -> bool;
        fn current_stream(index: i32) -> Result<i64>;
        fn set_current_stream(index: i32, stream: i64) -> Result<()>;
        fn pool_stream(index: i32) -> Result<i64>;
        fn stream_is_idle(index: i32, stream: i64) -> Result<bool>;
        fn synchronize_stream(index: i32, stream: i64) -> Result<()>;
        fn synchronize_device(index: i32) -> Result<()>;
        fn finish_device(index: i32) -> Result<()>;
        fn finish_all() -> Result<()>;
        fn stream_handle(index: i32, stream: i64) -> Result<usize>;
        fn computes_in_fp64(index: i32) -> Result<bool>;
        fn is_host_cpu(index: i32) -> Result<bool>;

        // Events.
        type TimedEvent;
        fn record_event(index: i32, stream: i64) -> Result<Box<TimedEvent>>;
        fn block(self: &TimedEvent, index: i32, stream: i64) -> Result<()>;
        fn is_complete(self: &TimedEvent) -> Result<bool>;
        fn synchronize(self: &TimedEvent) -> Result<()>;
        fn elapsed_ms(self: &TimedEvent, end: &TimedEvent) -> Result<f64>;

        // Memory.
        fn allocate(index: i32, size: usize) -> Result<usize>;
        fn free(index: i32, address: usize) -> Result<()>;
        fn record_stream(index: i32, address: usize, stream: i64) -> Result<()>;
        fn block_size(index: i32, address: usize) -> Result<usize>;
        fn empty_cache(index: i32) -> Result<()>;
        fn empty_pool(index: i32, pool: [u64; 2]) -> Result<()>;
        fn open_pool(use_on_oom: bool, no_split: bool) -> [u64; 2];
        fn close_pool(pool: [u64; 2]) -> Result<()>;
        fn enter_pool(index: i32, pool: [u64; 2]) -> Result<()>;
        fn leave_pool(index: i32, pool: [u64; 2]);
        fn memory_info(index: i32) -> Result<MemoryInfo>;
        fn memory_stats(index: i32) -> Result<Vec<NamedStat>>;
        fn memory_stats_json(index: i32) -> Result<String>;
        fn memory_counters(index: i32) -> Result<[i64; 4]>;
        fn memory_snapshot_json(index: i32) -> Result<String>;
        fn host_memory_stats() -> Vec<NamedStat>;
        fn host_memory_stats_json() -> String;
        fn reset_peak_host_stats();
        fn reset_accumulated_host_stats();
        fn reset_peak_stats(index: i32) -> Result<()>;
        fn reset_accumulated_stats(index: i32) -> Result<()>;
        fn set_memory_fraction(fraction: f64, index: i32) -> Result<()>;
        fn memory_fraction(index: i32) -> Result<f64>;
        fn device_of_address(address: usize) -> Result<i32>;
        fn allocate_pinned(size: usize) -> Result<usize>;
        fn free_pinned(address: usize);
        fn empty_pinned_cache() -> Result<()>;
        fn record_pinned(address: usize, index: i32, stream: i64) -> Result<()>;
        fn is_pinned(address: usize) -> bool;
        unsafe fn copy_host_to_device(target: usize, source: *const u8, size: usize, non_blocking: bool) -> Result<()>;
        unsafe fn copy_device_to_host(target: *mut u8, source: usize, size: usize, non_blocking: bool) -> Result<()>;
        fn copy_device_to_device(target: usize, source: usize, size: usize) -> Result<()>;
        type Mapping;
        fn map(address: usize, size: usize, writable: bool) -> Result<Box<Mapping>>;
        fn pointer(self: &Mapping) -> usize;
        unsafe fn unmap(mapping: Box<Mapping>) -> Result<()>;
        fn is_host_unified(index: i32) -> Result<bool>;
        fn to_host_if_idle(addresses: &mut [usize]) -> bool;
        fn small_calls() -> Result<String>;
        fn set_small_calls(choice: &str) -> Result<()>;

        // Counters, caches and tuning.
        fn check_environment() -> Result<()>;
        fn launch_count() -> u64;
        fn sync_debug_mode() -> i32;
        fn set_sync_debug_mode(mode: i32) -> Result<()>;
        fn take_sync_warning() -> bool;
        fn kernel_cache_json() -> String;
        fn tuning_json(index: i32) -> Result<String>;
        fn set_tuning(index: i32, values: &str) -> Result<()>;
        fn read_tuning(index: i32) -> Result<String>;
        fn store_tuning(index: i32, text: &str) -> Result<()>;
    }
}
