//! The library's interface for extensions in C, C++ and Rust: `python/torch_opencl/include/torch_opencl.h`.
//!
//! Plain functions that return 0, or -1 with a message for the calling thread. They take data pointers of tensors, and
//! return OpenCL handles. Nothing unwinds into the caller: errors are values, as in all functions for C++.

use std::cell::RefCell;
use std::ffi::{c_char, c_int, c_void, CString};

use super::device::stream_handle;
use super::interop::{native_buffer, native_context, native_device};
use crate::cl::{Deferred, Grid, Start};
use crate::error::{Error, Result};
use crate::runtime::{current_stream, device, device_of_address};

/// Incremented when a function changes.
const VERSION: c_int = 1;

thread_local! {
    static LAST_ERROR: RefCell<CString> = RefCell::new(CString::default());
}

/// Converts a result to a status, and keeps its message.
fn status(result: Result<()>) -> c_int {
    let Err(error) = result else { return 0 };
    let text = CString::new(error.message().replace('\0', " ")).unwrap_or_default();
    // A thread that is exiting may have dropped its message already; the status still reports the error.
    let _ = LAST_ERROR.try_with(|last| {
        if let Ok(mut last) = last.try_borrow_mut() {
            *last = text;
        }
    });
    -1
}

/// Writes a result to the caller's pointer.
///
/// # Safety
/// `result` is null or may be written.
unsafe fn put<T>(result: *mut T, value: T) -> Result<()> {
    if result.is_null() {
        return Err(Error::Invalid("OpenCL: a pointer for a result is null".to_owned()));
    }
    // SAFETY: the caller's promise.
    unsafe { result.write(value) };
    Ok(())
}

/// The address in a tensor's data pointer.
fn address_of(data: *const c_void) -> Result<usize> {
    if data.is_null() {
        return Err(Error::Invalid(
            "OpenCL: the data pointer is null: a tensor without elements has no memory".to_owned(),
        ));
    }
    Ok(data as usize)
}

/// The version of this interface.
#[no_mangle]
pub extern "C" fn torch_opencl_interface_version() -> c_int {
    VERSION
}

/// The message of this thread's last call that returned -1; valid until the next such call.
#[no_mangle]
pub extern "C" fn torch_opencl_last_error() -> *const c_char {
    let message = |last: &RefCell<CString>| last.try_borrow().map_or(c"".as_ptr(), |text| text.as_ptr());
    LAST_ERROR.try_with(message).unwrap_or(c"".as_ptr())
}

/// The index of the device that holds a tensor's data.
///
/// # Safety
/// `index` is null or may be written.
#[no_mangle]
pub unsafe extern "C" fn torch_opencl_device_of(data: *const c_void, index: *mut c_int) -> c_int {
    // SAFETY: the caller's promise.
    status(address_of(data).and_then(device_of_address).and_then(|device| unsafe { put(index, device.index) }))
}

/// The `cl_device_id` and the `cl_context` of a device; both live as long as the process.
///
/// # Safety
/// The two pointers are null or may be written.
#[no_mangle]
pub unsafe extern "C" fn torch_opencl_context(index: c_int, id: *mut *mut c_void, context: *mut *mut c_void) -> c_int {
    status(native_device(index).and_then(|handle| {
        // SAFETY: the caller's promise.
        unsafe { put(id, handle as *mut c_void) }?;
        let handle = native_context(index)?;
        // SAFETY: as above.
        unsafe { put(context, handle as *mut c_void) }
    }))
}

/// The `cl_mem` of a tensor's data, and the offset of the data in it.
///
/// # Safety
/// The two pointers are null or may be written.
#[no_mangle]
pub unsafe extern "C" fn torch_opencl_buffer(
    data: *const c_void,
    memory: *mut *mut c_void,
    offset: *mut usize,
) -> c_int {
    status(address_of(data).and_then(native_buffer).and_then(|buffer| {
        // SAFETY: the caller's promise.
        unsafe { put(memory, buffer.memory as *mut c_void) }?;
        // SAFETY: as above.
        unsafe { put(offset, buffer.offset) }
    }))
}

/// The id of the calling thread's current stream of a device.
///
/// # Safety
/// `stream` is null or may be written.
#[no_mangle]
pub unsafe extern "C" fn torch_opencl_current_stream(index: c_int, stream: *mut i64) -> c_int {
    // SAFETY: the caller's promise.
    status(current_stream(index).and_then(|current| unsafe { put(stream, current.id()) }))
}

/// The `cl_command_queue` of a stream.
///
/// # Safety
/// `queue` is null or may be written.
#[no_mangle]
pub unsafe extern "C" fn torch_opencl_queue(index: c_int, stream: i64, queue: *mut *mut c_void) -> c_int {
    // SAFETY: the caller's promise.
    status(stream_handle(index, stream).and_then(|handle| unsafe { put(queue, handle as *mut c_void) }))
}

/// Keeps the memory of a tensor's storage until a stream has completed the work enqueued before the storage is freed.
#[no_mangle]
pub extern "C" fn torch_opencl_record_stream(data: *const c_void, stream: i64) -> c_int {
    status(address_of(data).and_then(|address| {
        let state = device_of_address(address)?.state()?;
        state.stream(stream)?;
        if state.block_size(address).is_none() {
            return Err(Error::Invalid(format!(
                "OpenCL: {address:#x} is not the start of a storage: pass tensor.storage().data()"
            )));
        }
        state.record_stream(address, stream);
        Ok(())
    }))
}

/// Enqueues a kernel, whose arguments are already set, on the calling thread's current stream of a device.
///
/// # Safety
/// `kernel` is a live `cl_kernel` of the device's context that no other thread uses during the call; `global` has
/// `dimensions` sizes, and so does `local` unless it is null.
#[no_mangle]
pub unsafe extern "C" fn torch_opencl_enqueue_kernel(
    index: c_int,
    kernel: *mut c_void,
    dimensions: c_int,
    global: *const usize,
    local: *const usize,
) -> c_int {
    let launch = || {
        if kernel.is_null() || global.is_null() || !(1..=3).contains(&dimensions) {
            return Err(Error::Invalid(
                "OpenCL: torch_opencl_enqueue_kernel takes a kernel and 1 to 3 global sizes".to_owned(),
            ));
        }
        let count = dimensions as usize;
        // SAFETY: the caller's promise.
        let sizes = unsafe { std::slice::from_raw_parts(global, count) };
        if sizes.contains(&0) {
            return Ok(());
        }
        // SAFETY: as above.
        let local = (!local.is_null()).then(|| unsafe { std::slice::from_raw_parts(local, count) });
        let (stream, context) = (current_stream(index)?, &device(index)?.state()?.context);
        let grid = Grid { first: None, global: sizes, local };
        let queue = stream.queue(context)?;
        // Its callers cannot handle exceptions.
        let _deferred = Deferred::new();
        queue.make_room(Start::Now)?;
        // SAFETY: as above.
        unsafe { queue.launch_native(kernel as usize, &grid) }
    };
    status(launch())
}
