//! Memory for C++.

use serde_json::{json, Map, Value};

use super::runtime::ffi::{MemoryInfo, NamedStat};
use crate::error::{Error, Result};
use crate::runtime::{self, device, BlockState, MemPool, Pool, PoolOptions, SegmentView, Stat};

pub use crate::runtime::{
    allocate_pinned, copy_device_to_device, copy_device_to_host, copy_host_to_device, empty_pinned_cache, free_pinned,
    is_pinned, record_pinned, reset_accumulated_host_stats, reset_peak_host_stats, set_small_calls, to_host_if_idle,
    Mapping,
};

pub fn small_calls() -> Result<String> {
    runtime::small_calls().map(|choice| choice.name().to_owned())
}

pub fn allocate(index: i32, size: usize) -> Result<usize> {
    let stream = runtime::current_stream(index)?.id();
    device(index)?.state()?.allocate(size, stream)
}

pub fn free(index: i32, address: usize) -> Result<()> {
    device(index)?.state()?.free(address)
}

pub fn record_stream(index: i32, address: usize, stream: i64) -> Result<()> {
    device(index)?.state()?.record_stream(address, stream);
    Ok(())
}

/// Bytes of the block that starts at an address; 0 if none starts there.
pub fn block_size(index: i32, address: usize) -> Result<usize> {
    Ok(device(index)?.state()?.block_size(address).unwrap_or(0))
}

pub fn empty_cache(index: i32) -> Result<()> {
    device(index)?.initialised().map_or(Ok(()), runtime::DeviceState::empty_cache)
}

/// Releases the cached buffers of one pool.
pub fn empty_pool(index: i32, pool: [u64; 2]) -> Result<()> {
    device(index)?.initialised().map_or(Ok(()), |state| state.empty_pool(MemPool(pool)))
}

pub fn open_pool(use_on_oom: bool, no_split: bool) -> [u64; 2] {
    runtime::open_pool(PoolOptions { use_on_oom, no_split }).0
}

pub fn close_pool(pool: [u64; 2]) -> Result<()> {
    runtime::close_pool(MemPool(pool))
}

pub fn enter_pool(index: i32, pool: [u64; 2]) -> Result<()> {
    device(index)?;
    runtime::enter_pool(index, MemPool(pool));
    Ok(())
}

pub fn leave_pool(index: i32, pool: [u64; 2]) {
    runtime::leave_pool(index, MemPool(pool));
}

pub fn memory_info(index: i32) -> Result<MemoryInfo> {
    let (free, total) = device(index)?.state()?.memory_info();
    Ok(MemoryInfo { free, total })
}

pub fn memory_stats(index: i32) -> Result<Vec<NamedStat>> {
    let stats = device(index)?.state()?.memory_stats();
    Ok(stats.named().map(named_stat).into())
}

/// In the order of `HostMemoryStats::named`.
pub fn host_memory_stats() -> Vec<NamedStat> {
    runtime::host_memory_stats().named().map(named_stat).into()
}

fn named_stat((name, stat): (&'static str, Stat)) -> NamedStat {
    let Stat { current, peak, allocated, freed } = stat;
    NamedStat { name, current, peak, allocated, freed }
}

/// All statistics as one JSON object, with the flat keys of `torch.cuda.memory_stats`.
pub fn memory_stats_json(index: i32) -> Result<String> {
    let stats = device(index)?.state()?.memory_stats();
    let mut object = Map::new();
    for (name, stat) in stats.named() {
        insert_figures(&mut object, &format!("{name}.all"), stat);
    }
    let counters = [
        ("num_alloc_retries", stats.num_alloc_retries),
        ("num_ooms", stats.num_ooms),
        ("num_device_alloc", stats.num_device_alloc),
        ("num_device_free", stats.num_device_free),
    ];
    object.extend(counters.map(|(name, value)| (name.to_owned(), value.into())));
    Ok(Value::Object(object).to_string())
}

fn insert_figures(object: &mut Map<String, Value>, name: &str, stat: Stat) {
    let figures =
        [("current", stat.current), ("peak", stat.peak), ("allocated", stat.allocated), ("freed", stat.freed)];
    object.extend(figures.map(|(figure, value)| (format!("{name}.{figure}"), value.into())));
}

/// The statistics of pinned memory as one JSON object, with the flat keys of `torch.cuda.host_memory_stats`.
pub fn host_memory_stats_json() -> String {
    let stats = runtime::host_memory_stats();
    let mut object = Map::new();
    for (name, stat) in stats.named() {
        insert_figures(&mut object, name, stat);
    }
    object.insert("num_host_alloc".to_owned(), stats.allocations.allocated.into());
    object.insert("num_host_free".to_owned(), stats.allocations.freed.into());
    Value::Object(object).to_string()
}

/// The segments and blocks of a device as a JSON list, with the keys of `torch.cuda.memory_snapshot`.
pub fn memory_snapshot_json(index: i32) -> Result<String> {
    let segments = device(index)?.state()?.memory_snapshot();
    Ok(Value::Array(segments.iter().map(|segment| describe(index, segment)).collect()).to_string())
}

fn describe(index: i32, segment: &SegmentView) -> Value {
    let blocks = segment.blocks.iter().map(|block| {
        json!({
            "address": block.address,
            "size": block.size,
            "requested_size": block.requested,
            "state": block.state.name(),
            "frames": [],
        })
    });
    json!({
        "device": index,
        "address": segment.address,
        "total_size": segment.bytes(|_| true),
        "allocated_size": segment.bytes(|block| block.state == BlockState::Allocated),
        "active_size": segment.bytes(|block| block.state != BlockState::Free),
        "requested_size": segment.blocks.iter().map(|block| block.requested).sum::<usize>(),
        "stream": segment.owner.stream,
        "segment_pool_id": segment.owner.mempool.0,
        "segment_type": if segment.pool == Pool::Small { "small" } else { "large" },
        "blocks": blocks.collect::<Vec<_>>(),
        "frames": [],
    })
}

/// Retries, refused allocations, buffers created, buffers released.
pub fn memory_counters(index: i32) -> Result<[i64; 4]> {
    let stats = device(index)?.state()?.memory_stats();
    Ok([stats.num_alloc_retries, stats.num_ooms, stats.num_device_alloc, stats.num_device_free])
}

pub fn reset_peak_stats(index: i32) -> Result<()> {
    device(index)?.state()?.reset_peak_stats();
    Ok(())
}

pub fn reset_accumulated_stats(index: i32) -> Result<()> {
    device(index)?.state()?.reset_accumulated_stats();
    Ok(())
}

pub fn set_memory_fraction(fraction: f64, index: i32) -> Result<()> {
    device(index)?.state()?.set_memory_fraction(fraction);
    Ok(())
}

pub fn memory_fraction(index: i32) -> Result<f64> {
    Ok(device(index)?.state()?.memory_fraction())
}

pub fn device_of_address(address: usize) -> Result<i32> {
    runtime::device_of_address(address).map(|device| device.index)
}

pub fn map(address: usize, size: usize, writable: bool) -> Result<Box<Mapping>> {
    let mapping = runtime::map_all(&[runtime::Range { address, size, writable }])?.pop();
    mapping.map(Box::new).ok_or_else(|| Error::Invalid("mapping a range returned no mapping".to_owned()))
}

/// Returns a mapped range to its device.
///
/// # Safety
/// Nothing uses the host address afterwards.
#[allow(clippy::boxed_local)] // cxx passes ownership as a Box
pub unsafe fn unmap(mapping: Box<Mapping>) -> Result<()> {
    // SAFETY: promised by the caller.
    unsafe { runtime::unmap_all(&[*mapping]) }
}

pub fn is_host_unified(index: i32) -> Result<bool> {
    Ok(device(index)?.info.host_unified)
}
