//! The registry: which devices exist, in which order, and the state of each.

use std::cell::Cell;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use super::address::{AddressSpace, Location};
use super::allocator::{Allocator, Limits};
use super::blocks::{MemPool, Owner};
use super::class::DeviceClass;
use super::faults::Launched;
use super::fork;
use super::pools::{active_pool, forget_pool, is_open};
use super::selection::{device_filter, select, Selection};
use super::snapshot::SegmentView;
use super::stats::MemoryStats;
use super::stream::Stream;
use super::streams::Streams;
use crate::cl::{self, Buffer, Context, Deferred, DeviceInfo, MemHandle, PlatformInfo, Queue};
use crate::error::{Error, Result};

/// One OpenCL device; initialised on first use.
#[derive(Debug)]
pub struct Device {
    /// Position in the registry: the index in `torch.device("opencl:N")`.
    pub index: i32,
    /// The driver's description of the device.
    pub info: DeviceInfo,
    /// The class of its kernels.
    pub class: DeviceClass,
    /// Whether its programs call `mad` instead of `fma`; the kernels module decides.
    pub uses_mad: OnceLock<bool>,
    state: OnceLock<Result<DeviceState>>,
}

/// State of a device that has been initialised.
#[derive(Debug)]
pub struct DeviceState {
    /// Context of buffers, programs and queues.
    pub context: Context,
    space: AddressSpace,
    allocator: Mutex<Allocator>,
    streams: Streams,
}

static DEVICES: OnceLock<Result<Vec<Device>>> = OnceLock::new();
static LEFT_OUT: OnceLock<Vec<(DeviceInfo, usize)>> = OnceLock::new();

thread_local! {
    static CURRENT: Cell<i32> = const { Cell::new(0) };
}

/// All platforms with their devices, regardless of `TORCH_OPENCL_DEVICES`.
///
/// # Errors
/// [`Error::NoDevice`] without a driver or a device; [`Error::Forked`] in a forked child.
pub fn platforms() -> Result<&'static [PlatformInfo]> {
    if fork::in_bad_fork() {
        return Err(Error::Forked);
    }
    // Before any driver is loaded: some drivers start threads when they list their devices.
    fork::install();
    cl::platforms()
}

/// All devices that `TORCH_OPENCL_DEVICES` selects.
///
/// # Errors
/// [`Error::NoDevice`] without a driver or a device; [`Error::Forked`] in a forked child; [`Error::Invalid`] for an
/// invalid `TORCH_OPENCL_DEVICE_CLASS`.
pub fn devices() -> Result<&'static [Device]> {
    if fork::in_bad_fork() {
        return Err(Error::Forked);
    }
    let found = DEVICES.get_or_init(|| {
        let (filter, forced) = (device_filter()?, DeviceClass::forced()?);
        let all = platforms()?.iter().flat_map(|platform| platform.devices.clone()).collect();
        let Selection { chosen, left_out } = select(all, filter.as_deref())?;
        drop(LEFT_OUT.set(left_out));
        let device = |(info, index): (DeviceInfo, i32)| {
            let class = forced.unwrap_or(DeviceClass::of(info.device_type));
            Device { index, info, class, uses_mad: OnceLock::new(), state: OnceLock::new() }
        };
        Ok(chosen.into_iter().zip(0..).map(device).collect())
    });
    found.as_deref().map_err(Clone::clone)
}

/// Devices that another driver presents too, each with the index of the one that is used.
pub fn left_out() -> &'static [(DeviceInfo, usize)] {
    drop(devices());
    LEFT_OUT.get().map_or(&[], Vec::as_slice)
}

/// Closes a pool: its free buffers are released to the drivers, the others once they are free and a cache is emptied.
///
/// # Errors
/// Errors reported by the driver.
pub fn close_pool(pool: MemPool) -> Result<()> {
    // The pool is the parent's, whose memory the child must not release.
    if fork::in_bad_fork() {
        return Ok(());
    }
    forget_pool(pool);
    devices()?.iter().filter_map(Device::initialised).try_for_each(|state| state.empty_pool(pool))
}

/// Number of devices; 0 if OpenCL cannot be used.
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
            allows_large_buffers: info.allows_large_buffers(),
            host_unified: info.host_unified,
        };
        let allocator = Mutex::new(Allocator::new(limits, &space));
        Ok(Self { context, space, allocator, streams: Streams::new(index) })
    }

    fn allocator(&self) -> MutexGuard<'_, Allocator> {
        self.allocator.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A stream by id: 0 is the default stream.
    pub fn stream(&self, id: i64) -> Result<&Stream> {
        self.streams.get(id).ok_or_else(|| Error::Invalid(format!("OpenCL: {id} is not the id of a stream")))
    }

    /// The id of a stream for a queue that other code created; a queue always gets the same id.
    ///
    /// # Errors
    /// See [`Queue::adopt`].
    ///
    /// # Safety
    /// `handle` is a live `cl_command_queue`.
    pub unsafe fn adopt_queue(&self, handle: usize) -> Result<i64> {
        // SAFETY: the caller's promise.
        Ok(self.streams.adopt(unsafe { Queue::adopt(&self.context, handle)? }))
    }

    /// Ids of the queues in traces, each with its stream's id.
    pub(super) fn trace_ids(&self) -> impl Iterator<Item = (usize, i64)> + '_ {
        self.streams.all().filter_map(|stream| Some((stream.trace_id()?, stream.id())))
    }

    /// Blocks until every stream of the device has finished, even if commands of one have failed.
    ///
    /// # Errors
    /// The first error; [`Error::Interrupted`] at once.
    pub fn synchronize(&self) -> Result<()> {
        self.streams.all().map(Stream::synchronize).try_fold(Ok(()), |first, next| match next {
            Err(Error::Interrupted) => Err(Error::Interrupted),
            next => Ok(first.and(next)),
        })?
    }

    /// Raises the faults that kernels recorded, on any stream; for callers that have synchronised the device.
    pub fn raise_faults(&self) -> Result<()> {
        self.streams.all().try_for_each(|stream| stream.raise_faults(Launched::Anywhere))
    }

    /// Allocates device memory for a stream, in the pool of the graph that it captures or in the calling thread's pool;
    /// returns its address.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`] with the sizes that a user needs.
    pub fn allocate(&self, size: usize, stream: i64) -> Result<usize> {
        let stream_object = self.stream(stream)?;
        let mempool =
            stream_object.capture().map_or_else(|| active_pool(stream_object.device()), |capture| capture.mempool);
        self.allocate_for(size, Owner { mempool, stream })
    }

    /// Allocates device memory as [`Self::allocate`] does, but never in a pool.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`] with the sizes that a user needs.
    pub fn allocate_outside(&self, size: usize, stream: i64) -> Result<usize> {
        self.allocate_for(size, Owner { mempool: MemPool::default(), stream })
    }

    fn allocate_for(&self, size: usize, owner: Owner) -> Result<usize> {
        let allocate = |idle| self.allocator().allocate(&self.context, &self.space, size, owner, idle);
        if let Some(address) = allocate(None)? {
            return Ok(address);
        }
        // Memory is short. A signal may end this wait; the next one is made with a lock held.
        self.synchronize()?;
        let _deferred = Deferred::new();
        allocate(Some(&|| self.synchronize()))?
            .ok_or_else(|| Error::Invalid("OpenCL: no memory was allocated".to_owned()))
    }

    /// Frees memory.
    pub fn free(&self, address: usize) -> Result<()> {
        // Called in destructors, which cannot raise, and with a lock held.
        let _deferred = Deferred::new();
        let mut allocator = self.allocator();
        let mark = |stream| {
            let stream = self.stream(stream)?;
            // Recorded commands run in the order of their recording, and commands that reuse the memory come later.
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

    /// Gives an address to an external buffer, which is shared until [`Self::free`].
    pub fn adopt(&self, buffer: Buffer) -> Result<usize> {
        self.allocator().adopt(&self.space, buffer)
    }

    /// The buffer of a handle, if it holds tensors.
    pub(super) fn buffer(&self, handle: MemHandle) -> Option<Arc<Buffer>> {
        self.allocator().buffer(handle)
    }

    /// Records that `stream` uses the block that starts at `address`.
    pub fn record_stream(&self, address: usize, stream: i64) {
        self.allocator().record_stream(address, stream);
    }

    /// Releases cached buffers to the driver, except those of open pools that the calling thread does not allocate in.
    pub fn empty_cache(&self) -> Result<()> {
        let active = self.stream(0).map(|stream| active_pool(stream.device()))?;
        self.release(|pool| pool == active || !is_open(pool))
    }

    /// Releases the cached buffers of a pool to the driver.
    pub fn empty_pool(&self, pool: MemPool) -> Result<()> {
        self.release(|other| other == pool)
    }

    fn release(&self, is_released: impl Fn(MemPool) -> bool) -> Result<()> {
        // A signal may end this wait; the next one is made with a lock held.
        self.synchronize()?;
        let _deferred = Deferred::new();
        self.allocator().release_cached(&self.space, is_released, || self.synchronize())
    }

    /// The host address of device memory that the host can access without mapping; `None` for other memory.
    pub fn host_address(&self, address: usize) -> Option<usize> {
        self.space.host_address(address)
    }

    /// CUDA's address of device memory that CUDA uses too; `None` for other memory.
    pub fn cuda_address(&self, address: usize) -> Option<u64> {
        let offset = self.space.resolve(address)?.offset;
        Some(self.allocator().cuda_address(address - offset)? + offset as u64)
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
