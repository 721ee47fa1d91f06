//! Device memory.

use opencl3::memory::{create_buffer, release_mem_object, CL_MEM_ALLOC_HOST_PTR, CL_MEM_READ_WRITE};
use opencl3::types::cl_mem;

use super::{check, Context};
use crate::error::Result;

/// A borrowed `cl_mem`: what kernel arguments and copies take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemHandle(pub(super) cl_mem);

// SAFETY: memory objects are reference counted by the driver and may be named from any thread.
unsafe impl Send for MemHandle {}
// SAFETY: as above.
unsafe impl Sync for MemHandle {}

impl MemHandle {
    /// The null memory object, for a kernel argument that the kernel does not read.
    pub const NULL: Self = Self(std::ptr::null_mut());

    /// As an integer, to be kept in an atomic.
    pub fn to_bits(self) -> usize {
        self.0 as usize
    }

    /// Back from [`Self::to_bits`].
    pub fn from_bits(bits: usize) -> Self {
        Self(bits as cl_mem)
    }
}

/// An owning `cl_mem`.
#[derive(Debug)]
pub struct Buffer {
    handle: MemHandle,
    size: usize,
}

impl Buffer {
    /// Allocates `size` bytes of device memory.
    ///
    /// `host_visible` asks for memory that the host maps without a copy (host-unified devices, pinned staging).
    pub fn new(context: &Context, size: usize, host_visible: bool) -> Result<Self> {
        let flags = CL_MEM_READ_WRITE | if host_visible { CL_MEM_ALLOC_HOST_PTR } else { 0 };
        // SAFETY: no host pointer is given, so the driver allocates the memory itself.
        let result = unsafe { create_buffer(context.handle, flags, size, std::ptr::null_mut()) };
        Ok(Self { handle: MemHandle(check("clCreateBuffer", result)?), size })
    }

    /// Borrowed handle.
    pub fn handle(&self) -> MemHandle {
        self.handle
    }

    /// Bytes.
    pub fn size(&self) -> usize {
        self.size
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        // SAFETY: the handle is owned and released once. Commands in flight keep their own reference to the
        // object only until they are enqueued on some drivers, so owners finish their queues before dropping.
        let _ = unsafe { release_mem_object(self.handle.0) };
    }
}
