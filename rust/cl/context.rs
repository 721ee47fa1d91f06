//! A context: the buffers, programs and queues of one device.

use opencl3::device::{Device, CL_DEVICE_TYPE_CPU};
use opencl3::types::cl_context;

use super::{check, cuda, shared, DeviceId};
use crate::error::Result;

/// An owning `cl_context` of a single device.
#[derive(Debug)]
pub struct Context {
    pub(super) handle: cl_context,
    device: DeviceId,
    shares_memory: bool,
    is_cpu: bool,
    /// The connection to CUDA, or the reason why there is none.
    cuda: std::result::Result<cuda::Link, String>,
    /// Releases the handle.
    _owner: opencl3::context::Context,
}

// SAFETY: OpenCL contexts may be used from any thread (OpenCL 1.2, section A.2).
unsafe impl Send for Context {}
// SAFETY: as above.
unsafe impl Sync for Context {}

impl Context {
    /// Creates a context on one device.
    pub fn new(device: DeviceId) -> Result<Self> {
        let driver_device = Device::new(device.0);
        let owner = check("clCreateContext", opencl3::context::Context::from_device(&driver_device))?;
        let is_cpu = driver_device.dev_type().is_ok_and(|kind| kind & CL_DEVICE_TYPE_CPU != 0);
        let mut context =
            Self { handle: owner.get(), device, shares_memory: false, is_cpu, cuda: Err(String::new()), _owner: owner };
        context.shares_memory = shared::is_offered(&context);
        context.cuda = cuda::Link::open(&context);
        Ok(context)
    }

    /// The device of the context.
    pub fn device(&self) -> DeviceId {
        self.device
    }

    /// Returns true if the device is a CPU: its queues bound the duration of enqueued work.
    pub(super) fn is_cpu(&self) -> bool {
        self.is_cpu
    }

    /// The connection to CUDA.
    ///
    /// # Errors
    /// The reason why there is none.
    pub fn cuda(&self) -> std::result::Result<&cuda::Link, &str> {
        self.cuda.as_ref().map_err(String::as_str)
    }

    /// Returns the record of failures of CUDA's commands.
    pub(super) fn cuda_failure(&self) -> cuda::Failure {
        self.cuda.as_ref().map(cuda::Link::failure).unwrap_or_default()
    }

    /// The `cl_context`, for interoperation with other OpenCL code.
    pub fn native_handle(&self) -> usize {
        self.handle as usize
    }

    /// Returns true if host-visible buffers are shared with the host, which accesses them without a command.
    pub fn shares_memory(&self) -> bool {
        self.shares_memory
    }
}
