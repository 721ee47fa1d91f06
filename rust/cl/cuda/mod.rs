//! CUDA beside OpenCL on an NVIDIA device: memory that both use, and the order of their commands.
//!
//! This lets CUDA's libraries compute on tensors without a copy. CUDA allocates memory and exports it as a file
//! descriptor; OpenCL imports that as a buffer (`cl_khr_external_memory_opaque_fd`), see [`Memory`].
//!
//! Each OpenCL queue has a CUDA stream. Before CUDA's commands the queue writes a number to its flag in shared memory,
//! and the stream waits for that number. After them a callback of the stream completes a user event that the queue
//! waits for. The host waits for neither. OpenCL's external semaphores are not used: CUDA imports semaphores but exports
//! none, and it is not known whether NVIDIA's OpenCL driver exports them.
//!
//! The first use of a device tests all of this (`probe.rs`). If the test fails, the device has ordinary buffers.

mod acquire;
mod failure;
mod memory;
mod probe;

use std::collections::hash_map::Entry;
use std::collections::HashMap;
use std::ffi::c_void;
use std::fmt::Display;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use cudarc::driver::result::device::{get, get_uuid};
use cudarc::driver::result::{ctx, memset_d8_async};
use cudarc::driver::sys::{self, CUcontext, CUstream, CUstreamWaitValue_flags_enum};
use cudarc::driver::{CudaContext, CudaStream, DriverError};
use opencl3::device::Device;

use super::{Buffer, Context, Deferred, Event, Queue, Start, Untraced};
use crate::error::{catch_panic, Error, Result};

pub use failure::Failure;
pub use memory::Memory;

/// Bytes of a flag.
const FLAG: usize = size_of::<u32>();
/// Number of flags. Each queue has one; a process has a few dozen queues.
const FLAGS: usize = 1 << 16;

/// The connection of an OpenCL context to CUDA, for one device.
#[derive(Debug)]
pub struct Link {
    cuda: Arc<CudaContext>,
    /// For commands that no tensor's stream waits for.
    queue: Queue,
    failure: Failure,
    /// Locked while commands of CUDA's are enqueued.
    lanes: Mutex<Lanes>,
}

/// The flags and streams of the queues.
#[derive(Debug)]
struct Lanes {
    of_queue: HashMap<usize, Lane>,
    flags: Buffer,
    /// CUDA's address of the first flag.
    address: u64,
}

/// The stream and the flag of one queue.
#[derive(Clone, Debug)]
struct Lane {
    stream: Arc<CudaStream>,
    /// Offset of its flag in bytes.
    offset: usize,
    /// The last number written to the flag.
    number: u32,
}

impl Lanes {
    fn of(&mut self, cuda: &Arc<CudaContext>, queue: &Queue) -> Result<&mut Lane> {
        let count = self.of_queue.len();
        if count >= FLAGS {
            return Err(failed(format_args!("more than {FLAGS} queues")));
        }
        match self.of_queue.entry(queue.trace_id()) {
            Entry::Occupied(lane) => Ok(lane.into_mut()),
            Entry::Vacant(entry) => {
                let stream = cuda.new_stream().map_err(failed)?;
                Ok(entry.insert(Lane { stream, offset: count * FLAG, number: 0 }))
            }
        }
    }
}

/// Restores the CUDA context that was current in this thread: PyTorch may use another device there.
#[derive(Debug)]
pub struct Bound(CUcontext);

impl Drop for Bound {
    fn drop(&mut self) {
        // SAFETY: the context was current before, or is null for none. A failure cannot be reported here.
        let _ = unsafe { ctx::set_current(self.0) };
    }
}

/// Makes a context current in this thread for as long as the result lives.
fn bind(cuda: &CudaContext) -> Result<Bound> {
    let before = ctx::get_current().map_err(failed)?;
    cuda.bind_to_thread().map_err(failed)?;
    Ok(Bound(before.unwrap_or(std::ptr::null_mut())))
}

impl Link {
    /// Connects a context to CUDA.
    ///
    /// # Errors
    /// The reason why that is not possible.
    pub fn open(context: &Context) -> std::result::Result<Self, String> {
        let (_deferred, _untraced) = (Deferred::new(), Untraced::begin());
        // cudarc panics where a library lacks a function.
        catch_panic("CUDA", || Self::connect(context)).map_err(|error| error.message())
    }

    fn connect(context: &Context) -> Result<Self> {
        let ordinal = ordinal(context)?;
        let before = ctx::get_current().map_err(failed)?;
        let _bound = Bound(before.unwrap_or(std::ptr::null_mut()));
        let cuda = CudaContext::new(ordinal).map_err(failed)?;
        let queue = Queue::new(context)?;
        let flags = shared_buffer(context, &cuda, &queue, FLAGS * FLAG)?;
        queue.fill(flags.handle(), 0, &[0; FLAG], flags.size())?;
        queue.finish()?;
        let lanes = Lanes { address: flags.cuda_address().unwrap_or_default(), flags, of_queue: HashMap::new() };
        let link = Self { cuda, queue, failure: Failure::default(), lanes: Mutex::new(lanes) };
        probe::run(link, context)
    }

    /// Allocates a buffer that CUDA uses too.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`], and other errors of both drivers.
    pub fn allocate(&self, context: &Context, size: usize) -> Result<Buffer> {
        let _deferred = Deferred::new();
        shared_buffer(context, &self.cuda, &self.queue, size)
    }

    /// Makes the device current in this thread, for calls of CUDA's libraries.
    ///
    /// # Errors
    /// Errors of CUDA.
    pub fn bind(&self) -> Result<Bound> {
        bind(&self.cuda)
    }

    /// Returns the record of failures of CUDA's commands, which all clones share.
    pub fn failure(&self) -> Failure {
        self.failure.clone()
    }

    /// The stream of the commands that run between those of `queue`.
    ///
    /// # Errors
    /// Errors of CUDA.
    pub fn stream(&self, queue: &Queue) -> Result<Arc<CudaStream>> {
        let _bound = self.bind()?;
        self.lanes().of(&self.cuda, queue).map(|lane| Arc::clone(&lane.stream))
    }

    /// Calls `work`, which enqueues commands on the queue's stream. They run after everything enqueued on `queue`
    /// before, and later commands of the queue run after them.
    ///
    /// # Errors
    /// Errors of both drivers and of `work`.
    pub fn run(&self, context: &Context, queue: &Queue, work: impl FnOnce() -> Result<()>) -> Result<()> {
        queue.make_room(Start::Now)?;
        let finished = Arc::new(Event::user(context.handle)?);
        let _bound = self.bind()?;
        let mut lanes = self.lanes();
        let (memory, address) = (lanes.flags.handle(), lanes.address);
        let lane = lanes.of(&self.cuda, queue)?;
        lane.number = lane.number.wrapping_add(1);
        let number = lane.number;
        queue.fill(memory, lane.offset, &number.to_ne_bytes(), FLAG)?;
        queue.flush()?;
        let (stream, flag) = (&lane.stream, address + lane.offset as u64);
        let equal_or_later = CUstreamWaitValue_flags_enum::CU_STREAM_WAIT_VALUE_GEQ as u32;
        // SAFETY: the flag lies in memory that lives as long as the link.
        unsafe { sys::cuStreamWaitValue32_v2(stream.cu_stream(), flag, number, equal_or_later) }
            .result()
            .map_err(failed)?;
        let done = work();
        // Part of the work may be on the stream even if the rest has failed.
        let is_ordered = self.complete_after(stream, finished.clone()).and_then(|()| queue.wait_for(&finished));
        if is_ordered.is_err() {
            stream.synchronize().map_err(failed)?;
        }
        is_ordered.and(done)
    }

    /// Completes an event after everything enqueued on a stream.
    fn complete_after(&self, stream: &CudaStream, event: Arc<Event>) -> Result<()> {
        type Callback = unsafe extern "C" fn(CUstream, sys::CUresult, *mut c_void);
        // A status that this version of the crate does not know is not a value of its type.
        type Plain = unsafe extern "C" fn(CUstream, u32, *mut c_void);
        // SAFETY: the type of the status is an enum of u32.
        let callback = unsafe { std::mem::transmute::<Plain, Callback>(complete) };
        let argument = Box::into_raw(Box::new((event, self.failure.clone())));
        // Not `cuLaunchHostFunc`, which is never called after an error on the device: the queue would wait forever.
        // SAFETY: the callback takes over the argument.
        let added = unsafe { sys::cuStreamAddCallback(stream.cu_stream(), Some(callback), argument.cast(), 0) };
        added.result().map_err(|error| {
            // SAFETY: the driver has not taken the argument.
            drop(unsafe { Box::from_raw(argument) });
            failed(error)
        })
    }

    /// Ends the waits of all streams, which then run their commands.
    fn release_streams(&self) -> Result<()> {
        // Each byte of a number that is later than every number so far: the sign of their difference counts.
        const LATER: u8 = 0x40;
        let (stream, lanes) = (self.cuda.new_stream().map_err(failed)?, self.lanes());
        // SAFETY: the memory has as many flags.
        unsafe { memset_d8_async(lanes.address, LATER, FLAGS * FLAG, stream.cu_stream()) }.map_err(failed)?;
        stream.synchronize().map_err(failed)
    }

    /// Waits for all streams, even if one has failed.
    fn synchronize_streams(&self) -> Result<()> {
        let mut first = Ok(());
        for lane in self.lanes().of_queue.values() {
            first = first.and(lane.stream.synchronize().map_err(failed));
        }
        first
    }

    fn lanes(&self) -> MutexGuard<'_, Lanes> {
        self.lanes.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Allocates a buffer in memory of CUDA's, ready for commands of OpenCL.
fn shared_buffer(context: &Context, cuda: &Arc<CudaContext>, queue: &Queue, size: usize) -> Result<Buffer> {
    let _bound = bind(cuda)?;
    let buffer = Buffer::of_cuda(context, Memory::allocate(cuda, size)?, size)?;
    acquire::acquire(context, queue, &buffer)?;
    Ok(buffer)
}

/// Completes the event of [`Link::run`], and records an error of the stream. A negative status of the event would not
/// do: with some drivers the queue's commands run all the same, with others the process ends.
///
/// # Safety
/// `argument` is that of [`Link::complete_after`], which this call takes over.
unsafe extern "C" fn complete(_stream: CUstream, status: u32, argument: *mut c_void) {
    // SAFETY: promised by the caller.
    let (event, failure) = *unsafe { Box::from_raw(argument.cast::<(Arc<Event>, Failure)>()) };
    failure.record(status);
    if event.complete().is_err() {
        failure.record(sys::CUresult::CUDA_ERROR_UNKNOWN as u32);
    }
}

/// The CUDA index of a context's device.
fn ordinal(context: &Context) -> Result<usize> {
    let refuse = |reason: &str| Err(Error::Invalid(reason.to_owned()));
    // Users who choose another library do without the memory of a CUDA context.
    if let Some(library) = std::env::var("TORCH_OPENCL_BLAS").ok().filter(|name| name == "opencl" || name == "host") {
        return refuse(&format!("TORCH_OPENCL_BLAS was '{library}' at the first use of the device"));
    }
    let device = Device::new(context.device().0);
    let extensions = device.extensions().unwrap_or_default();
    let has = |wanted: &str| extensions.split_whitespace().any(|name| name == wanted);
    if !has("cl_khr_external_memory_opaque_fd") || !has("cl_khr_device_uuid") {
        return refuse(
            "its OpenCL driver shares no memory with CUDA (cl_khr_external_memory_opaque_fd, cl_khr_device_uuid)",
        );
    }
    let uuid = device.uuid_khr().map_err(failed)?;
    // SAFETY: loading NVIDIA's libraries only runs their initialisers. Checked before any other call, because those
    // panic if the library is missing.
    let (driver, library) = unsafe { (sys::is_culib_present(), cudarc::cublaslt::sys::is_culib_present()) };
    if !driver {
        return refuse("libcuda, which comes with NVIDIA's driver, is not found");
    }
    if !library {
        return refuse("libcublasLt is not found: install the CUDA toolkit, or put its folder into LD_LIBRARY_PATH");
    }
    let count = CudaContext::device_count().map_err(failed)?;
    let is_it =
        |ordinal: &i32| get(*ordinal).and_then(get_uuid).is_ok_and(|known| known.bytes.map(|byte| byte as u8) == uuid);
    let found = (0..count).find(is_it).and_then(|ordinal| usize::try_from(ordinal).ok());
    found.map_or_else(|| refuse("CUDA does not list this device: see CUDA_VISIBLE_DEVICES"), Ok)
}

fn failed(cause: impl Display) -> Error {
    Error::Invalid(format!("CUDA: {cause}"))
}

/// The error of an allocation, after which the caching allocator frees what it can and tries again.
fn failed_allocation(error: DriverError) -> Error {
    match error {
        DriverError(sys::CUresult::CUDA_ERROR_OUT_OF_MEMORY) => Error::OutOfMemory(format!("CUDA: {error}")),
        other => failed(other),
    }
}
