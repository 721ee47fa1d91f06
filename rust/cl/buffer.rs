//! Device memory.

use opencl3::error_codes::{CL_MEM_OBJECT_ALLOCATION_FAILURE, CL_OUT_OF_HOST_MEMORY, CL_OUT_OF_RESOURCES};
use opencl3::memory::{
    create_buffer, get_mem_object_info, release_mem_object, retain_mem_object, CL_MEM_ALLOC_HOST_PTR,
    CL_MEM_ASSOCIATED_MEMOBJECT, CL_MEM_CONTEXT, CL_MEM_HOST_PTR, CL_MEM_OBJECT_BUFFER, CL_MEM_READ_WRITE, CL_MEM_SIZE,
    CL_MEM_TYPE, CL_MEM_USES_SVM_POINTER, CL_MEM_USE_HOST_PTR,
};
use opencl3::types::cl_mem;

use super::cuda::Memory;
use super::shared::Shared;
use super::{check, Context};
use crate::error::{Error, Result};

/// A borrowed `cl_mem`, for kernel arguments and copies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemHandle(pub(super) cl_mem);

// SAFETY: memory objects are reference counted by the driver and may be used from any thread.
unsafe impl Send for MemHandle {}
// SAFETY: as above.
unsafe impl Sync for MemHandle {}

impl MemHandle {
    /// The null memory object, for a kernel argument that the kernel does not read.
    pub const NULL: Self = Self(std::ptr::null_mut());

    /// The handle as an integer, for an atomic.
    pub fn to_bits(self) -> usize {
        self.0 as usize
    }

    /// The inverse of [`Self::to_bits`].
    pub fn from_bits(bits: usize) -> Self {
        Self(bits as cl_mem)
    }

    /// Size in bytes, as the driver reports it.
    pub(super) fn size(self) -> Option<usize> {
        get_mem_object_info(self.0, CL_MEM_SIZE).ok().map(|size| size.to_size())
    }

    /// Host pointer of shared memory; meaningless for other memory.
    pub(super) fn host_pointer(self) -> Option<*mut u8> {
        let pointer = get_mem_object_info(self.0, CL_MEM_HOST_PTR).ok()?.to_ptr() as *mut u8;
        (!pointer.is_null()).then_some(pointer)
    }
}

/// An owning `cl_mem`.
#[derive(Debug)]
pub struct Buffer {
    handle: MemHandle,
    size: usize,
    storage: Storage,
}

/// Who allocated the memory of a buffer; it is freed after the handle is released.
#[derive(Debug)]
enum Storage {
    Driver,
    Shared(Shared),
    #[cfg_attr(not(feature = "cublas"), allow(dead_code))]
    Cuda(Memory),
}

impl Buffer {
    /// Allocates `size` bytes of device memory.
    ///
    /// `host_visible` requests memory that the host shares, or can map without a copy (host-unified devices, pinned
    /// staging).
    pub fn new(context: &Context, size: usize, host_visible: bool) -> Result<Self> {
        if host_visible && context.shares_memory() {
            return Self::shared(context, size);
        }
        let flags = CL_MEM_READ_WRITE | if host_visible { CL_MEM_ALLOC_HOST_PTR } else { 0 };
        // SAFETY: no host pointer is given, so the driver allocates the memory itself.
        let result = unsafe { create_buffer(context.handle, flags, size, std::ptr::null_mut()) };
        Ok(Self { handle: MemHandle(check("clCreateBuffer", result)?), size, storage: Storage::Driver })
    }

    /// Allocates `size` bytes, more than the driver reports as the most for one buffer. Needs
    /// [`DeviceInfo::allows_large_buffers`](super::DeviceInfo::allows_large_buffers).
    pub fn large(context: &Context, size: usize, host_visible: bool) -> Result<Self> {
        // From Intel's extension of `cl_mem_flags`.
        const CL_MEM_ALLOW_UNRESTRICTED_SIZE_INTEL: u64 = 1 << 23;
        let host = if host_visible { CL_MEM_ALLOC_HOST_PTR } else { 0 };
        let flags = CL_MEM_READ_WRITE | CL_MEM_ALLOW_UNRESTRICTED_SIZE_INTEL | host;
        // SAFETY: no host pointer is given, so the driver allocates the memory itself.
        let result = unsafe { create_buffer(context.handle, flags, size, std::ptr::null_mut()) };
        Ok(Self { handle: MemHandle(check("clCreateBuffer", result)?), size, storage: Storage::Driver })
    }

    /// Allocates `size` bytes for tensors: memory that CUDA uses too where the device has a connection to CUDA;
    /// otherwise, or if CUDA cannot share it, an ordinary buffer. `is_large`: more than the driver reports as the most,
    /// see [`Self::large`].
    ///
    /// # Errors
    /// An error of memory that is short from CUDA; errors of the OpenCL driver.
    pub fn for_tensors(context: &Context, size: usize, host_visible: bool, is_large: bool) -> Result<Self> {
        match context.cuda().map(|link| link.allocate(context, size)) {
            Ok(Ok(buffer)) => Ok(buffer),
            // A driver that allocates memory at its first use would report this only in a kernel.
            Ok(Err(error)) if is_short_of_memory(&error) => Err(error),
            _ if is_large => Self::large(context, size, host_visible),
            _ => Self::new(context, size, host_visible),
        }
    }

    /// Makes a buffer of the first `size` bytes of memory that CUDA allocated.
    #[cfg(feature = "cublas")]
    pub(super) fn of_cuda(context: &Context, mut memory: Memory, size: usize) -> Result<Self> {
        // From `cl_khr_external_memory_opaque_fd`.
        const CL_EXTERNAL_MEMORY_HANDLE_OPAQUE_FD_KHR: isize = 0x2060;
        let properties = [CL_EXTERNAL_MEMORY_HANDLE_OPAQUE_FD_KHR, memory.descriptor() as isize, 0];
        let (list, none) = (properties.as_ptr().cast(), std::ptr::null_mut());
        // SAFETY: the list ends with 0, and the descriptor is of memory with `size` bytes, which outlives the buffer.
        let result = unsafe {
            opencl3::memory::create_buffer_with_properties(context.handle, list, CL_MEM_READ_WRITE, size, none)
        };
        let handle = MemHandle(check("clCreateBufferWithProperties", result)?);
        memory.imported();
        Ok(Self { handle, size, storage: Storage::Cuda(memory) })
    }

    /// Allocates `size` bytes that host and device share.
    pub(super) fn shared(context: &Context, size: usize) -> Result<Self> {
        let shared = Shared::new(context, size)?;
        let flags = CL_MEM_READ_WRITE | CL_MEM_USE_HOST_PTR;
        // SAFETY: the memory has `size` bytes and outlives the buffer.
        let result = unsafe { create_buffer(context.handle, flags, size, shared.pointer) };
        Ok(Self { handle: MemHandle(check("clCreateBuffer", result)?), size, storage: Storage::Shared(shared) })
    }

    /// Shares a buffer that other code created in the same context.
    ///
    /// # Errors
    /// [`Error::Invalid`] for an object that is not a buffer, for a buffer of another context, and for one over host
    /// memory.
    ///
    /// # Safety
    /// The handle is a live memory object.
    pub unsafe fn adopt(context: &Context, handle: MemHandle) -> Result<Self> {
        let ask = |what| check("clGetMemObjectInfo", get_mem_object_info(handle.0, what));
        let refuse = |reason: &str| Err(Error::Invalid(format!("OpenCL: the memory object {reason}")));
        if ask(CL_MEM_TYPE)?.to_uint() != CL_MEM_OBJECT_BUFFER {
            return refuse("is an image or a pipe. Only buffers can be tensors.");
        }
        if ask(CL_MEM_CONTEXT)?.to_ptr() as usize != context.native_handle() {
            return refuse(
                "belongs to another OpenCL context, and contexts share no memory. Make it in the context of \
                 torch.opencl.interop.context(), or copy it through the host.",
            );
        }
        // The host may access shared memory without a command only if the driver allocated it. A sub-buffer does not
        // have this flag, only its parent does.
        let parent =
            get_mem_object_info(handle.0, CL_MEM_ASSOCIATED_MEMOBJECT).map_or(0, |info| info.to_ptr()) as cl_mem;
        let whole = if parent.is_null() { handle.0 } else { parent };
        let is_svm = get_mem_object_info(whole, CL_MEM_USES_SVM_POINTER).is_ok_and(|info| info.to_uint() != 0);
        if handle.host_pointer().is_some() && !is_svm {
            return refuse("uses host memory (CL_MEM_USE_HOST_PTR). Copy it to a buffer that does not.");
        }
        let size = ask(CL_MEM_SIZE)?.to_size();
        // SAFETY: the caller's promise.
        check("clRetainMemObject", unsafe { retain_mem_object(handle.0) })?;
        Ok(Self { handle, size, storage: Storage::Driver })
    }

    /// Borrowed handle.
    pub fn handle(&self) -> MemHandle {
        self.handle
    }

    /// The host address of the memory, if the host can access it without mapping; otherwise `None`.
    pub fn shared_address(&self) -> Option<usize> {
        match &self.storage {
            Storage::Shared(shared) => Some(shared.pointer as usize),
            Storage::Driver | Storage::Cuda(_) => None,
        }
    }

    /// CUDA's address of the memory, if CUDA uses it too.
    pub fn cuda_address(&self) -> Option<u64> {
        match &self.storage {
            Storage::Cuda(memory) => Some(memory.address()),
            Storage::Driver | Storage::Shared(_) => None,
        }
    }

    /// Bytes.
    pub fn size(&self) -> usize {
        self.size
    }
}

fn is_short_of_memory(error: &Error) -> bool {
    const CODES: [i32; 3] = [CL_MEM_OBJECT_ALLOCATION_FAILURE, CL_OUT_OF_RESOURCES, CL_OUT_OF_HOST_MEMORY];
    match error {
        Error::OutOfMemory(_) => true,
        Error::OpenCl { code, .. } => CODES.contains(code),
        _ => false,
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        // SAFETY: the handle is owned and released once. On some drivers, commands keep their own reference to the
        // object only until they are enqueued, so owners finish their queues before dropping.
        let _ = unsafe { release_mem_object(self.handle.0) };
    }
}
