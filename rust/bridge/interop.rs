//! Part of the bridge: handles of OpenCL objects, for other code that uses the same device.

use crate::cl::{Buffer, MemHandle};
use crate::error::Result;
use crate::runtime::{device, device_of_address};

#[cxx::bridge(namespace = "torch_opencl::bridge")]
pub mod ffi {
    /// Device memory as an OpenCL object.
    struct NativeBuffer {
        /// The `cl_mem`.
        memory: usize,
        /// Bytes from its start.
        offset: usize,
    }

    /// An external buffer, with its address for tensors.
    struct AdoptedBuffer {
        address: usize,
        /// Bytes.
        size: usize,
    }

    extern "Rust" {
        fn native_device(index: i32) -> Result<usize>;
        fn native_context(index: i32) -> Result<usize>;
        fn native_buffer(address: usize) -> Result<NativeBuffer>;
        unsafe fn adopt_queue(index: i32, queue: usize) -> Result<i64>;
        unsafe fn adopt_buffer(index: i32, memory: usize) -> Result<AdoptedBuffer>;
    }
}

/// The `cl_device_id` of a device.
pub fn native_device(index: i32) -> Result<usize> {
    Ok(device(index)?.info.id.native_handle())
}

/// The `cl_context` of a device, which lives as long as the process.
pub fn native_context(index: i32) -> Result<usize> {
    Ok(device(index)?.state()?.context.native_handle())
}

/// The buffer and the offset of an address.
pub fn native_buffer(address: usize) -> Result<ffi::NativeBuffer> {
    let location = device_of_address(address)?.state()?.resolve(address)?;
    Ok(ffi::NativeBuffer { memory: location.memory.to_bits(), offset: location.offset })
}

/// Gives an address to an external buffer, until the address is freed.
///
/// # Errors
/// See [`Buffer::adopt`].
///
/// # Safety
/// `memory` is a live `cl_mem`.
pub unsafe fn adopt_buffer(index: i32, memory: usize) -> Result<ffi::AdoptedBuffer> {
    let state = device(index)?.state()?;
    // SAFETY: the caller's promise.
    let buffer = unsafe { Buffer::adopt(&state.context, MemHandle::from_bits(memory))? };
    let size = buffer.size();
    Ok(ffi::AdoptedBuffer { address: state.adopt(buffer)?, size })
}

/// The id of the stream for an external command queue. The stream is kept until the process ends.
///
/// # Errors
/// See [`crate::cl::Queue::adopt`].
///
/// # Safety
/// `queue` is a live `cl_command_queue`, or null.
pub unsafe fn adopt_queue(index: i32, queue: usize) -> Result<i64> {
    // SAFETY: the caller's promise.
    unsafe { device(index)?.state()?.adopt_queue(queue) }
}
