//! `clEnqueueAcquireExternalMemObjectsKHR`, which OpenCL demands before commands use an imported buffer.

use std::ffi::{c_char, c_void};

use opencl3::device::Device;
use opencl3::error_codes::CL_SUCCESS;
use opencl3::types::{cl_command_queue, cl_event, cl_mem, cl_platform_id};

use super::failed;
use crate::cl::enqueue::of_loader;
use crate::cl::{check, Buffer, Context, Queue};
use crate::error::Result;

type Address = unsafe extern "C" fn(cl_platform_id, *const c_char) -> *mut c_void;
type Acquire = unsafe extern "C" fn(cl_command_queue, u32, *const cl_mem, u32, *const cl_event, *mut cl_event) -> i32;

/// Makes an imported buffer ready for commands of OpenCL, for as long as it lives, and waits for that.
///
/// The specification also demands a release before CUDA uses the memory. That is left out: tensors of other streams lie
/// in the same buffer, and the flags keep the order.
pub(super) fn acquire(context: &Context, queue: &Queue, buffer: &Buffer) -> Result<()> {
    let name = c"clEnqueueAcquireExternalMemObjectsKHR";
    let platform = Device::new(context.device().0).platform().map_err(failed)?;
    let Some(found) = of_loader(c"clGetExtensionFunctionAddressForPlatform") else {
        return Err(failed("the OpenCL loader finds no extensions; is OPENCL_DYLIB_PATH set?"));
    };
    // SAFETY: a function of that name has this type (OpenCL 1.2, section 9.2), and the name ends with a zero.
    let address = unsafe { std::mem::transmute::<*mut c_void, Address>(found)(platform, name.as_ptr()) };
    if address.is_null() {
        return Err(failed("the OpenCL driver has no clEnqueueAcquireExternalMemObjectsKHR"));
    }
    // SAFETY: a function of that name has this type (cl_khr_external_memory).
    let acquire = unsafe { std::mem::transmute::<*mut c_void, Acquire>(address) };
    let handle = buffer.handle().0;
    // SAFETY: the list holds one live buffer.
    let status = unsafe { acquire(queue.handle, 1, &raw const handle, 0, std::ptr::null(), std::ptr::null_mut()) };
    check("clEnqueueAcquireExternalMemObjectsKHR", if status == CL_SUCCESS { Ok(()) } else { Err(status) })?;
    // The command is not counted, so the wait is for a marker.
    queue.wait(&queue.marker()?)
}
