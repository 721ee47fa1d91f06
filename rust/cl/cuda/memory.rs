//! Memory that CUDA allocates and exports.

use std::os::fd::{AsRawFd, FromRawFd, IntoRawFd, OwnedFd, RawFd};
use std::sync::Arc;

use cudarc::driver::sys::{self, CUdeviceptr, CUmemAllocationHandleType, CUmemAllocationProp};
use cudarc::driver::CudaContext;

use super::{bind, failed, failed_allocation};
use crate::error::Result;

/// Memory of a CUDA device, with an address there and a file descriptor for another driver.
#[derive(Debug)]
pub struct Memory {
    cuda: Arc<CudaContext>,
    handle: sys::CUmemGenericAllocationHandle,
    size: usize,
    /// 0 if no address has been reserved.
    address: CUdeviceptr,
    /// `None` once OpenCL owns it.
    descriptor: Option<OwnedFd>,
}

impl Memory {
    /// Sizes of allocations are multiples of this number of bytes.
    fn granularity(cuda: &CudaContext) -> Result<usize> {
        let (mut bytes, least) = (0, sys::CUmemAllocationGranularity_flags::CU_MEM_ALLOC_GRANULARITY_MINIMUM);
        // SAFETY: both pointers are to locals.
        unsafe { sys::cuMemGetAllocationGranularity(&raw mut bytes, &properties(cuda), least) }
            .result()
            .map_err(failed)?;
        Ok(bytes.max(1))
    }

    /// Allocates at least `size` bytes; the context is current.
    pub(super) fn allocate(cuda: &Arc<CudaContext>, size: usize) -> Result<Self> {
        let size = size.next_multiple_of(Self::granularity(cuda)?);
        let mut handle = 0;
        // SAFETY: both pointers are to locals.
        unsafe { sys::cuMemCreate(&raw mut handle, size, &properties(cuda), 0) }.result().map_err(failed_allocation)?;
        // From here on, dropping it frees what it has.
        let mut memory = Self { cuda: Arc::clone(cuda), handle, size, address: 0, descriptor: None };
        let access = sys::CUmemAccessDesc {
            location: location(cuda),
            flags: sys::CUmemAccess_flags::CU_MEM_ACCESS_FLAGS_PROT_READWRITE,
        };
        let mut descriptor: RawFd = -1;
        // SAFETY: the address range is reserved with the size that is mapped, and the pointers are to locals.
        unsafe {
            sys::cuMemAddressReserve(&raw mut memory.address, size, 0, 0, 0).result().map_err(failed_allocation)?;
            sys::cuMemMap(memory.address, size, 0, handle, 0).result().map_err(failed_allocation)?;
            sys::cuMemSetAccess(memory.address, size, &raw const access, 1).result().map_err(failed_allocation)?;
            sys::cuMemExportToShareableHandle((&raw mut descriptor).cast(), handle, FILE_DESCRIPTOR, 0)
                .result()
                .map_err(failed_allocation)?;
            memory.descriptor = Some(OwnedFd::from_raw_fd(descriptor));
        }
        Ok(memory)
    }

    /// CUDA's address of the first byte.
    pub fn address(&self) -> u64 {
        self.address
    }

    /// The file descriptor for an import; −1 after it.
    pub fn descriptor(&self) -> RawFd {
        self.descriptor.as_ref().map_or(-1, AsRawFd::as_raw_fd)
    }

    /// Records that OpenCL has imported the descriptor, and owns it from then on.
    pub fn imported(&mut self) {
        let _ = self.descriptor.take().map(IntoRawFd::into_raw_fd);
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // Failures cannot be reported here; they leak memory.
        let Ok(_bound) = bind(&self.cuda) else { return };
        // SAFETY: handle and address are owned, and OpenCL has released its buffer. Unmapping memory that was never
        // mapped fails without an effect.
        unsafe {
            if self.address != 0 {
                let _ = sys::cuMemUnmap(self.address, self.size);
                let _ = sys::cuMemAddressFree(self.address, self.size);
            }
            let _ = sys::cuMemRelease(self.handle);
        }
    }
}

const FILE_DESCRIPTOR: CUmemAllocationHandleType = CUmemAllocationHandleType::CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;

fn location(cuda: &CudaContext) -> sys::CUmemLocation {
    sys::CUmemLocation { type_: sys::CUmemLocationType::CU_MEM_LOCATION_TYPE_DEVICE, id: cuda.cu_device() }
}

fn properties(cuda: &CudaContext) -> CUmemAllocationProp {
    CUmemAllocationProp {
        type_: sys::CUmemAllocationType::CU_MEM_ALLOCATION_TYPE_PINNED,
        requestedHandleTypes: FILE_DESCRIPTOR,
        location: location(cuda),
        win32HandleMetaData: std::ptr::null_mut(),
        allocFlags: sys::CUmemAllocationProp_st__bindgen_ty_1 {
            compressionType: 0,
            gpuDirectRDMACapable: 0,
            usage: 0,
            reserved: [0; 4],
        },
    }
}
