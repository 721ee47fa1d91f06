//! Memory for C++.

use super::ffi::{MemoryInfo, NamedStat};
use crate::error::{Error, Result};
use crate::runtime::{self, device};

pub use crate::runtime::{
    allocate_pinned, copy_device_to_device, copy_device_to_host, copy_host_to_device, free_pinned, is_pinned, Mapping,
};

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

pub fn empty_cache(index: i32) -> Result<()> {
    device(index)?.initialised().map_or(Ok(()), runtime::DeviceState::empty_cache)
}

pub fn memory_info(index: i32) -> Result<MemoryInfo> {
    let (free, total) = device(index)?.state()?.memory_info();
    Ok(MemoryInfo { free, total })
}

pub fn memory_stats(index: i32) -> Result<Vec<NamedStat>> {
    let stats = device(index)?.state()?.memory_stats();
    let named = stats.named().map(|(name, stat)| NamedStat {
        name,
        current: stat.current,
        peak: stat.peak,
        allocated: stat.allocated,
        freed: stat.freed,
    });
    Ok(named.into())
}

/// Everything as one JSON object, with the flat keys of `torch.cuda.memory_stats`.
pub fn memory_stats_json(index: i32) -> Result<String> {
    let stats = device(index)?.state()?.memory_stats();
    let mut object = serde_json::Map::new();
    for (name, stat) in stats.named() {
        let figures =
            [("current", stat.current), ("peak", stat.peak), ("allocated", stat.allocated), ("freed", stat.freed)];
        for (figure, value) in figures {
            object.insert(format!("{name}.all.{figure}"), value.into());
        }
    }
    let counters = [
        ("num_alloc_retries", stats.num_alloc_retries),
        ("num_ooms", stats.num_ooms),
        ("num_device_alloc", stats.num_device_alloc),
        ("num_device_free", stats.num_device_free),
    ];
    object.extend(counters.map(|(name, value)| (name.to_owned(), value.into())));
    Ok(serde_json::Value::Object(object).to_string())
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

pub fn set_memory_fraction(index: i32, fraction: f64) -> Result<()> {
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
    mapping.map(Box::new).ok_or_else(|| Error::Invalid("a range was mapped to nothing".to_owned()))
}

/// Gives a mapped range back.
///
/// # Safety
/// Nothing uses the host address afterwards.
#[allow(clippy::boxed_local)] // cxx hands over ownership as a Box
pub unsafe fn unmap(mapping: Box<Mapping>) -> Result<()> {
    // SAFETY: promised by the caller.
    unsafe { runtime::unmap_all(&[*mapping]) }
}

pub fn is_host_unified(index: i32) -> Result<bool> {
    Ok(device(index)?.info.host_unified)
}
