//! `clEnqueueNDRangeKernel`, without an event if none is needed.
//!
//! NVIDIA's driver takes 11 us for a launch with an event on a queue with timestamps, and 5 us without one. A chain of
//! 1000 additions of 4 elements on PoCL with two cores is enqueued in 6 us each instead of 11.

use std::ffi::{c_void, CStr};
use std::sync::OnceLock;

use opencl3::command_queue as api;
use opencl3::error_codes::CL_SUCCESS;
use opencl3::types::{cl_command_queue, cl_event, cl_kernel};

use super::trace;

/// A launch as passed to the driver: all sizes have `dimensions` elements.
#[derive(Clone, Copy, Debug)]
pub(super) struct KernelCommand<'a> {
    pub kernel: cl_kernel,
    pub dimensions: u32,
    pub first: Option<&'a [usize]>,
    pub global: &'a [usize],
    pub local: Option<&'a [usize]>,
}

impl KernelCommand<'_> {
    /// Enqueues it after `wait`, if that is given. Returns the command's event while commands are traced, and if the
    /// driver's function is not known.
    ///
    /// # Safety
    /// The sizes hold as many elements as there are dimensions; all arguments of the kernel are set, and unchanged
    /// until the call returns.
    pub unsafe fn enqueue(
        &self,
        queue: cl_command_queue,
        wait: Option<&cl_event>,
    ) -> std::result::Result<Option<cl_event>, i32> {
        let pointer = |sizes: Option<&[usize]>| sizes.map_or(std::ptr::null(), <[usize]>::as_ptr);
        let (kernel, dimensions) = (self.kernel, self.dimensions);
        let (first, global, local) = (pointer(self.first), self.global.as_ptr(), pointer(self.local));
        let (count, list) = (u32::from(wait.is_some()), wait.map_or(std::ptr::null(), std::ptr::from_ref));
        if let Some(enqueue) = function().filter(|_| !trace::is_tracing()) {
            let none = std::ptr::null_mut();
            // SAFETY: promised by the caller; the wait list holds one event or none.
            let status = unsafe { enqueue(queue, kernel, dimensions, first, global, local, count, list, none) };
            return if status == CL_SUCCESS { Ok(None) } else { Err(status) };
        }
        // SAFETY: as above.
        let result =
            unsafe { api::enqueue_nd_range_kernel(queue, kernel, dimensions, first, global, local, count, list) };
        result.map(Some)
    }
}

type EnqueueKernel = unsafe extern "C" fn(
    cl_command_queue,
    cl_kernel,
    u32,
    *const usize,
    *const usize,
    *const usize,
    u32,
    *const cl_event,
    *mut cl_event,
) -> i32;

/// The loader's function, as the crate's function creates an event for each launch. `None` if an environment variable
/// makes the crate load another library.
fn function() -> Option<EnqueueKernel> {
    static FUNCTION: OnceLock<Option<EnqueueKernel>> = OnceLock::new();
    *FUNCTION.get_or_init(|| {
        let found = of_loader(c"clEnqueueNDRangeKernel")?;
        // SAFETY: a function of that name has this type (OpenCL 1.2, section 5.8).
        Some(unsafe { std::mem::transmute::<*mut c_void, EnqueueKernel>(found) })
    })
}

/// A function of the loader, by its name. `None` if there is none, or if an environment variable makes the crate load
/// another library.
pub(super) fn of_loader(name: &CStr) -> Option<*mut c_void> {
    if std::env::var_os("OPENCL_DYLIB_PATH").is_some() {
        return None;
    }
    // SAFETY: the names end with a zero; the library is already loaded, and is never unloaded.
    let found = unsafe {
        let library = libc::dlopen(c"libOpenCL.so.1".as_ptr(), libc::RTLD_NOW | libc::RTLD_NOLOAD);
        if library.is_null() {
            return None;
        }
        libc::dlsym(library, name.as_ptr())
    };
    (!found.is_null()).then_some(found)
}
