//! The registry: which devices exist, in which order, and the state of each.

use std::cell::Cell;
use std::env::{self, VarError};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use super::address::{AddressSpace, Location};
use super::allocator::{Allocator, Limits};
use super::blocks::{MemPool, Owner};
use super::class::DeviceClass;
use super::faults::Launched;
use super::fork;
use super::snapshot::SegmentView;
use super::stats::MemoryStats;
use super::stream::{Stream, POOL_STREAMS};
use crate::cl::{self, Buffer, Context, DeviceInfo, DeviceType, MemHandle, PlatformInfo};
use crate::error::{Error, Result};

/// One OpenCL device; initialised on first use.
#[derive(Debug)]
pub struct Device {
    /// Position in the registry: the index in `torch.device("opencl:N")`.
    pub index: i32,
    /// The driver's description of it.
    pub info: DeviceInfo,
    /// The kind of kernels it gets.
    pub class: DeviceClass,
    state: OnceLock<Result<DeviceState>>,
}

/// State of a device once it is in use.
#[derive(Debug)]
pub struct DeviceState {
    /// Context of buffers, programs and queues.
    pub context: Context,
    space: AddressSpace,
    allocator: Mutex<Allocator>,
    streams: Vec<Stream>,
}

static DEVICES: OnceLock<Result<Vec<Device>>> = OnceLock::new();

thread_local! {
    static CURRENT: Cell<i32> = const { Cell::new(0) };
}

/// All platforms with their devices, whatever `TORCH_OPENCL_DEVICES` says.
///
/// # Errors
/// [`Error::NoDevice`] without a driver or a device; [`Error::Forked`] in a forked child.
pub fn platforms() -> Result<&'static [PlatformInfo]> {
    if fork::in_bad_fork() {
        return Err(Error::Forked);
    }
    // Before any driver is loaded: some start threads when they are asked for their devices.
    fork::install();
    cl::platforms()
}

/// All devices that `TORCH_OPENCL_DEVICES` lets through.
///
/// # Errors
/// [`Error::NoDevice`] without a driver or a device; [`Error::Forked`] in a forked child; [`Error::Invalid`] for a
/// `TORCH_OPENCL_DEVICE_CLASS` that means nothing.
pub fn devices() -> Result<&'static [Device]> {
    if fork::in_bad_fork() {
        return Err(Error::Forked);
    }
    let found = DEVICES.get_or_init(|| {
        let (filter, forced) = (device_filter()?, DeviceClass::forced()?);
        let all = platforms()?.iter().flat_map(|platform| platform.devices.clone()).collect();
        let chosen = select(all, filter.as_deref())?;
        let device = |(info, index): (DeviceInfo, i32)| {
            let class = forced.unwrap_or(DeviceClass::of(info.device_type));
            Device { index, info, class, state: OnceLock::new() }
        };
        Ok(chosen.into_iter().zip(0..).map(device).collect())
    });
    found.as_deref().map_err(Clone::clone)
}

fn device_filter() -> Result<Option<String>> {
    match env::var("TORCH_OPENCL_DEVICES") {
        Ok(filter) => Ok(Some(filter)),
        Err(VarError::NotPresent) => Ok(None),
        Err(VarError::NotUnicode(raw)) => {
            Err(Error::NoDevice(format!("TORCH_OPENCL_DEVICES={} is not text in UTF-8.", raw.to_string_lossy())))
        }
    }
}

/// GPUs first, CPUs last, drivers' order within; then what the filter names, in its order.
///
/// The filter is a comma-separated list of indices into that order, of types (`gpu`, `cpu`, `accelerator`), or of
/// parts of a device's or platform's name. As with `CUDA_VISIBLE_DEVICES`, an unknown entry ends the list.
fn select(mut all: Vec<DeviceInfo>, filter: Option<&str>) -> Result<Vec<DeviceInfo>> {
    all.sort_by_key(|info| info.device_type);
    let Some(filter) = filter else { return Ok(all) };
    let mut chosen: Vec<DeviceInfo> = Vec::new();
    for entry in filter.split(',').map(|entry| entry.trim().to_lowercase()).filter(|entry| !entry.is_empty()) {
        let matches: Vec<&DeviceInfo> = match entry.parse::<usize>() {
            Ok(index) => all.get(index).into_iter().collect(),
            Err(_) => all.iter().filter(|info| is_called(info, &entry)).collect(),
        };
        if matches.is_empty() {
            break;
        }
        for info in matches {
            if !chosen.iter().any(|known| known.id == info.id) {
                chosen.push(info.clone());
            }
        }
    }
    if chosen.is_empty() && !filter.trim().is_empty() {
        let known: Vec<String> =
            all.iter().zip(0..).map(|(info, index)| format!("{index}: {} ({})", info.name, info.platform)).collect();
        return Err(Error::NoDevice(format!(
            "TORCH_OPENCL_DEVICES={filter} names no device of this machine. Known: {}.",
            known.join("; ")
        )));
    }
    Ok(chosen)
}

fn is_called(info: &DeviceInfo, entry: &str) -> bool {
    match entry {
        "gpu" => info.device_type == DeviceType::Gpu,
        "cpu" => info.device_type == DeviceType::Cpu,
        "accelerator" => info.device_type == DeviceType::Accelerator,
        name => info.name.to_lowercase().contains(name) || info.platform.to_lowercase().contains(name),
    }
}

/// Number of devices; 0 where OpenCL cannot be used.
pub fn device_count() -> i32 {
    devices().map_or(0, |devices| devices.len() as i32)
}

/// The device of an index.
pub fn device(index: i32) -> Result<&'static Device> {
    let all = devices()?;
    usize::try_from(index).ok().and_then(|index| all.get(index)).ok_or_else(|| {
        Error::Invalid(format!(
            "OpenCL: invalid device index {index}: this machine has {} OpenCL device(s), see torch.opencl.device_count()",
            all.len()
        ))
    })
}

/// Index of this thread's current device.
pub fn current_device() -> i32 {
    CURRENT.get()
}

/// Makes a device current for this thread.
pub fn set_current_device(index: i32) -> Result<()> {
    device(index)?;
    CURRENT.set(index);
    Ok(())
}

/// The device whose address range holds an address.
pub fn device_of_address(address: usize) -> Result<&'static Device> {
    devices()?.iter().find(|device| device.initialised().is_some_and(|state| state.space.contains(address))).ok_or_else(
        || {
            Error::Invalid(format!(
                "Expected all tensors to be on the same device, but found at least two devices, opencl and cpu: \
                 {address:#x} is not an address of any OpenCL device"
            ))
        },
    )
}

impl Device {
    /// The device's state, set up on first use.
    pub fn state(&self) -> Result<&DeviceState> {
        if fork::in_bad_fork() {
            return Err(Error::Forked);
        }
        let state = self.state.get_or_init(|| DeviceState::new(&self.info, self.index));
        state.as_ref().map_err(Clone::clone)
    }

    /// The state, if the device has been used.
    pub fn initialised(&self) -> Option<&DeviceState> {
        self.state.get().and_then(|state| state.as_ref().ok())
    }
}

impl DeviceState {
    fn new(info: &DeviceInfo, index: i32) -> Result<Self> {
        let context = Context::new(info.id)?;
        let space = AddressSpace::reserve()?;
        let limits = Limits {
            device_name: info.name.clone(),
            global_mem: usize::try_from(info.global_mem).unwrap_or(usize::MAX),
            max_alloc: usize::try_from(info.max_alloc).unwrap_or(usize::MAX),
            host_unified: info.host_unified,
        };
        let allocator = Mutex::new(Allocator::new(limits, &space));
        let streams = (0..=POOL_STREAMS).map(|id| Stream::new(index, id)).collect();
        Ok(Self { context, space, allocator, streams })
    }

    fn allocator(&self) -> MutexGuard<'_, Allocator> {
        self.allocator.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A stream by id: 0 is the default stream.
    pub fn stream(&self, id: i64) -> Result<&Stream> {
        usize::try_from(id)
            .ok()
            .and_then(|id| self.streams.get(id))
            .ok_or_else(|| Error::Invalid(format!("OpenCL: {id} is not the id of a stream")))
    }

    /// What traces know the queues by, each with the id of its stream.
    pub(super) fn trace_ids(&self) -> impl Iterator<Item = (usize, i64)> + '_ {
        self.streams.iter().filter_map(|stream| Some((stream.trace_id()?, stream.id())))
    }

    /// Blocks until every stream of the device has finished.
    pub fn synchronize(&self) -> Result<()> {
        self.streams.iter().try_for_each(Stream::synchronize)
    }

    /// Raises the faults that kernels recorded, on any stream; for callers that have synchronised the device.
    pub fn raise_faults(&self) -> Result<()> {
        self.streams.iter().try_for_each(|stream| stream.raise_faults(Launched::Anywhere))
    }

    /// Allocates device memory for a stream, in the pool of the graph that it captures if it does; returns its address.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`] with the figures a user needs.
    pub fn allocate(&self, size: usize, stream: i64) -> Result<usize> {
        let mempool = self.stream(stream)?.capture().map(|capture| capture.mempool).unwrap_or_default();
        self.allocate_for(size, Owner { mempool, stream })
    }

    /// The same, but never in the pool of a graph.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`] with the figures a user needs.
    pub fn allocate_outside(&self, size: usize, stream: i64) -> Result<usize> {
        self.allocate_for(size, Owner { mempool: MemPool::default(), stream })
    }

    fn allocate_for(&self, size: usize, owner: Owner) -> Result<usize> {
        self.allocator().allocate(&self.context, &self.space, size, owner, || self.synchronize())
    }

    /// Returns memory to the allocator.
    pub fn free(&self, address: usize) -> Result<()> {
        let mut allocator = self.allocator();
        let mark = |stream| {
            let stream = self.stream(stream)?;
            // Recorded commands run in the order of their recording, and those that take the memory next come later.
            if stream.capture().is_some() {
                return Ok(None);
            }
            stream.queue(&self.context)?.marker().map(Some)
        };
        if allocator.free(address, mark)? {
            return Ok(());
        }
        allocator.abandon(&self.space, address, || self.synchronize())
    }

    /// Gives a buffer of other code an address; it is shared until [`Self::free`].
    pub fn adopt(&self, buffer: Buffer) -> Result<usize> {
        self.allocator().adopt(&self.space, buffer)
    }

    /// The buffer of a handle, if tensors lie in it.
    pub(super) fn buffer(&self, handle: MemHandle) -> Option<Arc<Buffer>> {
        self.allocator().buffer(handle)
    }

    /// Notes that `stream` uses the block that starts at `address`.
    pub fn record_stream(&self, address: usize, stream: i64) {
        self.allocator().record_stream(address, stream);
    }

    /// Releases cached buffers to the driver.
    pub fn empty_cache(&self) -> Result<()> {
        self.allocator().release_cached(&self.space, || self.synchronize())
    }

    /// Buffer and offset of an address.
    pub fn resolve(&self, address: usize) -> Result<Location> {
        self.space.resolve(address).ok_or_else(|| {
            Error::Invalid(format!(
                "Expected all tensors to be on the same device, but found at least two devices, opencl and \
                 another: {address:#x} is not in the memory of this one"
            ))
        })
    }

    /// Returns true if an address belongs to this device.
    pub fn contains(&self, address: usize) -> bool {
        self.space.contains(address)
    }

    /// Bytes of the block that starts at `address`.
    pub fn block_size(&self, address: usize) -> Option<usize> {
        self.allocator().block_size(address)
    }

    /// Statistics of the allocator.
    pub fn memory_stats(&self) -> MemoryStats {
        self.allocator().stats()
    }

    /// Segments and blocks of the allocator.
    pub fn memory_snapshot(&self) -> Vec<SegmentView> {
        self.allocator().snapshot()
    }

    /// Sets every peak to the current value.
    pub fn reset_peak_stats(&self) {
        self.allocator().reset_peak();
    }

    /// Sets every total to zero.
    pub fn reset_accumulated_stats(&self) {
        self.allocator().reset_accumulated();
    }

    /// Limits this process to a fraction of the device's memory.
    pub fn set_memory_fraction(&self, fraction: f64) {
        self.allocator().set_fraction(fraction);
    }

    /// The fraction of the device's memory that this process may hold.
    pub fn memory_fraction(&self) -> f64 {
        self.allocator().fraction()
    }

    /// Bytes (free, total).
    pub fn memory_info(&self) -> (usize, usize) {
        self.allocator().memory_info()
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn chosen(filter: Option<&str>) -> Result<Vec<String>> {
        let all = vec![
            DeviceInfo::imagined(1, "Host CPU", "PoCL", DeviceType::Cpu),
            DeviceInfo::imagined(2, "Radeon", "Mesa", DeviceType::Gpu),
            DeviceInfo::imagined(3, "Arc", "Intel OpenCL", DeviceType::Gpu),
            DeviceInfo::imagined(4, "FPGA", "Intel OpenCL", DeviceType::Accelerator),
        ];
        Ok(select(all, filter)?.into_iter().map(|info| info.name).collect())
    }

    #[test]
    fn without_a_filter_gpus_come_first_and_cpus_last() {
        assert_eq!(chosen(None).unwrap(), ["Radeon", "Arc", "FPGA", "Host CPU"]);
    }

    #[test]
    fn a_filter_takes_indices_types_and_names_in_its_order() {
        assert_eq!(chosen(Some("3,0")).unwrap(), ["Host CPU", "Radeon"]);
        assert_eq!(chosen(Some(" cpu , gpu")).unwrap(), ["Host CPU", "Radeon", "Arc"]);
        assert_eq!(chosen(Some("intel,RADEON")).unwrap(), ["Arc", "FPGA", "Radeon"]);
    }

    #[test]
    fn a_device_is_taken_once() {
        assert_eq!(chosen(Some("0,radeon,gpu")).unwrap(), ["Radeon", "Arc"]);
    }

    #[test]
    fn an_unknown_entry_ends_the_list() {
        assert_eq!(chosen(Some("1,-1,0")).unwrap(), ["Arc"]);
        assert_eq!(chosen(Some("2,17,0")).unwrap(), ["FPGA"]);
    }

    #[test]
    fn an_empty_filter_hides_all_devices_and_one_without_a_match_is_an_error() {
        assert_eq!(chosen(Some("")).unwrap(), Vec::<String>::new());
        let Err(Error::NoDevice(text)) = chosen(Some("nvidia")) else { unreachable!("nothing matches") };
        assert!(text.contains("TORCH_OPENCL_DEVICES=nvidia"));
        assert!(text.contains("3: Host CPU (PoCL)"));
    }
}
