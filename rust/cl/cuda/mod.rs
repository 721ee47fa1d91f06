//! CUDA beside OpenCL on an NVIDIA device: memory that both use, and the order of their commands.
//!
//! With it, a library of CUDA's computes on tensors without a copy. CUDA allocates memory and exports it as a file
//! descriptor; OpenCL imports that as a buffer (`cl_khr_external_memory_opaque_fd`), see [`Memory`].
//!
//! CUDA's commands run on one stream. Before them the OpenCL queue writes a number to a flag in shared memory, and the
//! stream waits for that number. After them a callback of the stream completes a user event that the queue waits for.
//! The host waits for neither. OpenCL's external semaphores are not used: CUDA can only import semaphores, so a driver
//! would have to export them from OpenCL.
//!
//! The first use of a device tests all of this (`probe.rs`). If the test fails, the device has ordinary buffers.

mod memory;
mod probe;

use std::collections::HashMap;
use std::ffi::c_void;
use std::fmt::Display;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use cudarc::driver::result::device::{get, get_uuid};
use cudarc::driver::sys::{self, CUresult, CUstream, CUstreamWaitValue_flags_enum};
use cudarc::driver::{CudaContext, CudaStream};
use opencl3::device::Device;

use super::{Buffer, Context, Event, Queue, Start};
use crate::error::{catch_panic, Error, Result};

pub use memory::Memory;

/// Bytes of a flag.
const FLAG: usize = size_of::<u32>();
/// Number of flags: of queues, of which a process has a few dozen.
const FLAGS: usize = 1 << 16;

/// The first error of CUDA's commands on a device, 0 if there is none. CUDA reports it from then on for every call:
/// only a new process can use the device again.
static DEVICE_ERROR: AtomicU32 = AtomicU32::new(CUresult::CUDA_SUCCESS as u32);

/// Checks that no command of CUDA's has failed on a device.
///
/// # Errors
/// [`Error::Invalid`] from the first failure on.
pub fn check_commands() -> Result<()> {
    match DEVICE_ERROR.load(Ordering::Relaxed) {
        0 => Ok(()),
        code => Err(failed(format_args!(
            "a matmul of cuBLAS failed on the device with error {code}. Its result and what was computed from it are \
             wrong. Start the process again, with TORCH_OPENCL_BLAS=opencl if that repeats."
        ))),
    }
}

/// The connection of an OpenCL context to CUDA, for one device.
#[derive(Debug)]
pub struct Link {
    cuda: Arc<CudaContext>,
    stream: Arc<CudaStream>,
    /// True if an import takes over the file descriptor, as in Vulkan; the specification of OpenCL does not say.
    import_takes_descriptor: bool,
    /// Locked while commands of CUDA's are enqueued, so that they are on the stream in the order of their flags.
    flags: Mutex<Flags>,
}

/// The flags by which queues report how far they are.
#[derive(Debug)]
struct Flags {
    buffer: Buffer,
    /// CUDA's address of the first one.
    address: u64,
    /// For each queue: the index of its flag, and the last number written to it.
    of_queue: HashMap<usize, (usize, u32)>,
}

impl Flags {
    /// The offset in bytes of a queue's flag, and the next number for it.
    fn next(&mut self, queue: &Queue) -> Result<(usize, u32)> {
        let unused = self.of_queue.len();
        let (index, number) = self.of_queue.entry(queue.trace_id()).or_insert((unused, 0));
        *number = number.wrapping_add(1);
        if *index >= FLAGS {
            return Err(failed(format_args!("more than {FLAGS} queues")));
        }
        Ok((*index * FLAG, *number))
    }
}

impl Link {
    /// Connects a context to CUDA.
    ///
    /// # Errors
    /// The reason why that is not possible.
    pub fn open(context: &Context) -> std::result::Result<Self, String> {
        // cudarc panics where a library lacks a function.
        catch_panic("CUDA", || Self::connect(context)).map_err(|error| error.message())
    }

    fn connect(context: &Context) -> Result<Self> {
        let ordinal = ordinal(context)?;
        let cuda = CudaContext::new(ordinal).map_err(failed)?;
        let stream = cuda.new_stream().map_err(failed)?;
        let import_takes_descriptor = probe::import_takes_descriptor(context, &cuda)?;
        let memory = Memory::allocate(&cuda, FLAGS * FLAG, import_takes_descriptor)?;
        let address = memory.address();
        let buffer = Buffer::of_cuda(context, memory, FLAGS * FLAG)?;
        let flags = Flags { buffer, address, of_queue: HashMap::new() };
        let queue = Queue::new(context)?;
        queue.fill(flags.buffer.handle(), 0, &[0; FLAG], flags.buffer.size())?;
        queue.finish()?;
        let link = Self { cuda, stream, import_takes_descriptor, flags: Mutex::new(flags) };
        match probe::run(&link, context, &queue) {
            Ok(()) => Ok(link),
            Err(error) => {
                // Its stream may wait forever, so neither it nor its memory can be freed.
                std::mem::forget(link);
                Err(error)
            }
        }
    }

    /// Allocates a buffer that CUDA uses too.
    ///
    /// # Errors
    /// Errors of both drivers.
    pub fn allocate(&self, context: &Context, size: usize) -> Result<Buffer> {
        Buffer::of_cuda(context, Memory::allocate(&self.cuda, size, self.import_takes_descriptor)?, size)
    }

    /// The stream of CUDA's commands.
    pub fn stream(&self) -> &Arc<CudaStream> {
        &self.stream
    }

    /// Calls `work`, which enqueues commands on the stream. They run after everything enqueued on `queue` before, and
    /// later commands of the queue run after them.
    ///
    /// # Errors
    /// Errors of both drivers and of `work`.
    pub fn run(&self, context: &Context, queue: &Queue, work: impl FnOnce() -> Result<()>) -> Result<()> {
        self.in_order(context, queue, work).map(drop)
    }

    /// [`Self::run`], which returns the event that the queue waits for.
    fn in_order(&self, context: &Context, queue: &Queue, work: impl FnOnce() -> Result<()>) -> Result<Arc<Event>> {
        queue.make_room(Start::Now)?;
        let finished = Arc::new(Event::user(context)?);
        let mut flags = self.flags();
        self.cuda.bind_to_thread().map_err(failed)?;
        let (offset, number) = flags.next(queue)?;
        queue.fill(flags.buffer.handle(), offset, &number.to_ne_bytes(), FLAG)?;
        queue.flush()?;
        let (stream, flag) = (self.stream.cu_stream(), flags.address + offset as u64);
        let equal_or_later = CUstreamWaitValue_flags_enum::CU_STREAM_WAIT_VALUE_GEQ as u32;
        // SAFETY: the flag lies in memory that lives as long as the link.
        unsafe { sys::cuStreamWaitValue32_v2(stream, flag, number, equal_or_later) }.result().map_err(failed)?;
        let done = work();
        // Part of the work may be on the stream even if the rest has failed.
        let is_ordered = self.complete_after_stream(&finished).and_then(|()| queue.wait_for(&finished));
        if is_ordered.is_err() {
            self.stream.synchronize().map_err(failed)?;
        }
        is_ordered.and(done).map(|()| finished)
    }

    /// Completes an event after everything enqueued on the stream.
    fn complete_after_stream(&self, event: &Arc<Event>) -> Result<()> {
        let argument = Arc::into_raw(Arc::clone(event));
        // Not `cuLaunchHostFunc`, which is never called after an error on the device: the queue would wait forever.
        // SAFETY: the callback takes over the reference.
        let added =
            unsafe { sys::cuStreamAddCallback(self.stream.cu_stream(), Some(complete), argument.cast_mut().cast(), 0) };
        added.result().map_err(|error| {
            // SAFETY: the driver has not taken the reference.
            drop(unsafe { Arc::from_raw(argument) });
            failed(error)
        })
    }

    fn flags(&self) -> MutexGuard<'_, Flags> {
        self.flags.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Completes the event of [`Link::in_order`], and records an error of the stream. A negative status of the event would
/// not do: with some drivers the queue's commands run all the same, with others the process ends.
///
/// # Safety
/// `argument` is a reference to the event, which this call takes over.
unsafe extern "C" fn complete(_stream: CUstream, status: CUresult, argument: *mut c_void) {
    // SAFETY: promised by the caller.
    let event = unsafe { Arc::from_raw(argument.cast_const().cast::<Event>()) };
    DEVICE_ERROR.fetch_max(status as u32, Ordering::Relaxed);
    // A failure cannot be reported here.
    let _ = event.complete();
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
    let (driver, library) = unsafe { (sys::is_culib_present(), cudarc::cublas::sys::is_culib_present()) };
    if !driver {
        return refuse("libcuda, which comes with NVIDIA's driver, is not found");
    }
    if !library {
        return refuse("libcublas is not found: install the CUDA toolkit, or put its folder into LD_LIBRARY_PATH");
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
