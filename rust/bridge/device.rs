//! Devices, streams and events for C++.

use std::sync::atomic::{AtomicI64, Ordering};

use serde_json::{json, Value};

use super::builds::ffi::warn;
use super::graph::is_capturing;
use crate::cl::{Deferred, DeviceInfo};
use crate::error::Result;
use crate::kernels;
use crate::runtime::{self, device, DeviceClass, POOL_STREAMS};

pub use crate::runtime::{
    current_device, device_count, in_bad_fork, launch_count, set_current_device, set_current_stream,
    set_sync_debug_mode, sync_debug_mode, take_sync_warning, TimedEvent,
};

/// The reason why there is no device; empty if there is one.
pub fn device_error() -> String {
    match runtime::devices() {
        Ok([]) => "TORCH_OPENCL_DEVICES is empty and so hides every OpenCL device.".to_owned(),
        Ok(_) => String::new(),
        Err(error) => match kernels::driver_cache_obstacle() {
            Some(obstacle) => format!("{obstacle} {}", error.message()),
            None => error.message(),
        },
    }
}

fn describe(info: &DeviceInfo) -> Value {
    let (major, minor) = info.version_number();
    json!({
        "name": info.name,
        "vendor": info.vendor,
        "platform": info.platform,
        "driver_version": info.driver_version,
        "version": info.version,
        "opencl_c_version": info.c_version,
        "major": major,
        "minor": minor,
        "type": info.device_type.name(),
        "compute_units": info.compute_units,
        "max_clock_mhz": info.clock_mhz,
        "global_mem_bytes": info.global_mem,
        "max_alloc_bytes": info.max_alloc,
        "local_mem_bytes": info.local_mem,
        "max_work_group_size": info.max_work_group,
        "host_unified_memory": info.host_unified,
        "fp64": info.fp64,
        "fp16": info.fp16,
        "extensions": info.extensions,
    })
}

pub fn device_json(index: i32) -> Result<String> {
    let device = device(index)?;
    let mut description = describe(&device.info);
    if let Value::Object(fields) = &mut description {
        fields.insert("device_class".to_owned(), json!(device.class.name()));
    }
    Ok(description.to_string())
}

pub fn platforms_json() -> String {
    match runtime::platforms() {
        Ok(found) => {
            let list: Vec<Value> = found
                .iter()
                .map(|platform| {
                    json!({
                        "name": platform.name,
                        "vendor": platform.vendor,
                        "version": platform.version,
                        "devices": platform.devices.iter().map(describe).collect::<Vec<_>>(),
                    })
                })
                .collect();
            let left_out: Vec<Value> = runtime::left_out()
                .iter()
                .map(|(info, index)| json!({ "name": info.name, "platform": info.platform, "same_as": index }))
                .collect();
            json!({ "platforms": list, "left_out": left_out }).to_string()
        }
        Err(error) => json!({ "platforms": [], "error": error.message() }).to_string(),
    }
}

pub fn is_initialized(index: i32) -> bool {
    device(index).is_ok_and(|device| device.initialised().is_some())
}

pub fn initialize(index: i32) -> Result<()> {
    device(index)?.state().map(drop)
}

pub fn current_stream(index: i32) -> Result<i64> {
    runtime::current_stream(index).map(runtime::Stream::id)
}

/// The next stream of the pool, round robin over all devices together.
pub fn pool_stream(index: i32) -> Result<i64> {
    static NEXT: AtomicI64 = AtomicI64::new(0);
    device(index)?.state()?;
    Ok(1 + NEXT.fetch_add(1, Ordering::Relaxed).rem_euclid(POOL_STREAMS))
}

pub fn stream_is_idle(index: i32, stream: i64) -> Result<bool> {
    let stream = device(index)?.state()?.stream(stream)?;
    stream.refuse_capture("the stream was queried")?;
    stream.is_idle()
}

pub fn synchronize_stream(index: i32, stream: i64) -> Result<()> {
    let stream = device(index)?.state()?.stream(stream)?;
    stream.refuse_capture("the host cannot wait for the stream")?;
    runtime::before_wait()?;
    stream.synchronize()?;
    stream.raise_faults(runtime::Launched::Anywhere)
}

/// Waits for every device that has been used, and stops background work: called before the process ends.
pub fn finish_all() -> Result<()> {
    let _deferred = Deferred::new();
    kernels::stop_building();
    kernels::end_progress();
    let synchronized =
        runtime::devices()?.iter().filter_map(|device| device.initialised()).try_for_each(|state| state.synchronize());
    kernels::leave_driver_cache();
    synchronized
}

/// Waits for a device whose memory is about to be released. It is allowed during a capture, because captured commands
/// run later. It raises no faults: [`synchronize_device`] does.
pub fn finish_device(index: i32) -> Result<()> {
    device(index)?.state()?.synchronize()
}

pub fn synchronize_device(index: i32) -> Result<()> {
    let state = device(index)?.state()?;
    runtime::current_stream(index)?.refuse_capture("the host cannot wait for the device")?;
    state.synchronize()?;
    state.raise_faults()
}

pub fn stream_handle(index: i32, stream: i64) -> Result<usize> {
    let state = device(index)?.state()?;
    state.stream(stream)?.queue(&state.context)?.native_handle()
}

pub fn computes_in_fp64(index: i32) -> Result<bool> {
    Ok(device(index)?.info.fp64)
}

/// Returns true for a device of class CPU: the host's processor, which shares the host's memory. Returns false while a
/// graph is being captured, because a graph cannot record work of the host.
pub fn is_host_cpu(index: i32) -> Result<bool> {
    Ok(device(index)?.class == DeviceClass::Cpu && !is_capturing(index)?)
}

pub fn record_event(index: i32, stream: i64) -> Result<Box<TimedEvent>> {
    TimedEvent::record(index, stream).map(Box::new)
}

/// Returns an error for an invalid environment variable, which would otherwise be noticed much later, or never.
pub fn check_environment() -> Result<()> {
    DeviceClass::forced()?;
    runtime::small_calls()?;
    kernels::check_cache_size()?;
    kernels::check_cache_folder()?;
    kernels::Specialisation::from_environment()?;
    kernels::check_bundle()?;
    kernels::check_progress()?;
    kernels::warn_with(warn);
    // A folder that cannot be used is reported here, in the user's thread.
    kernels::cache_folder();
    kernels::check_driver_cache();
    Ok(())
}

pub fn kernel_cache_json() -> String {
    let info = kernels::cache_info();
    let bundle = kernels::bundle_contents();
    json!({
        "bundle": bundle.map(|(path, _)| path.display().to_string()),
        "bundle_programs": bundle.map_or(0, |(_, programs)| programs),
        "path": info.folder,
        "entries": info.entries,
        "bytes": info.bytes,
        "hits": info.hits,
        "loaded": info.loaded,
        "compiled": info.compiled,
        "specialized": info.specialised,
        "pending": info.pending,
        "failed": info.failed,
        "specialize": info.specialisation.name(),
    })
    .to_string()
}
