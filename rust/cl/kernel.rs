//! Kernels and their arguments.

use std::ffi::{c_void, CString};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use bytemuck::{bytes_of, NoUninit};
use opencl3::device::{get_device_info, CL_DEVICE_LOCAL_MEM_SIZE};
use opencl3::kernel::{
    create_kernel, get_kernel_work_group_info, release_kernel, set_kernel_arg, CL_KERNEL_COMPILE_WORK_GROUP_SIZE,
    CL_KERNEL_LOCAL_MEM_SIZE, CL_KERNEL_WORK_GROUP_SIZE,
};
use opencl3::program::{release_program, retain_program};
use opencl3::types::{cl_kernel, cl_program};

use super::cache_check::FirstLaunch;
use super::{check, DeviceId, Grid, MemHandle};
use crate::error::{Error, Result};

/// Bytes of arguments that every device supports (`CL_DEVICE_MAX_PARAMETER_SIZE`).
const MOST_ARGUMENT_BYTES: usize = 1024;

/// A location in device memory: a memory object and a byte offset.
#[derive(Clone, Copy, Debug)]
pub struct Memory {
    /// The memory object; null for an absent tensor.
    pub handle: MemHandle,
    /// Bytes.
    pub offset: u64,
}

impl Memory {
    /// The argument for an absent tensor.
    pub const ABSENT: Self = Self { handle: MemHandle::NULL, offset: 0 };
}

/// One argument of a kernel, borrowed for a launch.
#[derive(Clone, Copy, Debug)]
pub enum Arg<'a> {
    /// A memory object; offsets into it are passed in a struct.
    Buffer(MemHandle),
    /// Plain bytes: a scalar, a struct, a vector type.
    Bytes(&'a [u8]),
    /// Local memory of this many bytes.
    Local(usize),
}

impl<'a> Arg<'a> {
    /// Bytes that it occupies among a kernel's arguments.
    const fn size(&self) -> usize {
        match self {
            Self::Bytes(bytes) => bytes.len(),
            Self::Buffer(_) | Self::Local(_) => size_of::<u64>(),
        }
    }

    /// A struct by value.
    pub fn of<T: NoUninit>(value: &'a T) -> Self {
        Self::Bytes(bytes_of(value))
    }
}

/// An owning `cl_kernel`.
///
/// Arguments are state of the kernel object, so setting them and enqueueing is one critical section.
#[derive(Debug)]
pub struct Kernel {
    handle: Mutex<KernelHandle>,
    /// A graph makes copies of the kernel. Intel's driver refuses that once every reference to the program is released.
    _program: ProgramReference,
    name: String,
    c_name: CString,
    /// Work-items of the largest work-group that the device can run it with.
    largest_group: usize,
    /// The driver's work at the first launch of a group shape, and a bit set with the hashes of the shapes launched.
    shapes: Option<(FirstLaunch, AtomicU64)>,
}

/// A reference to a program.
#[derive(Debug)]
pub(super) struct ProgramReference(cl_program);

// SAFETY: programs are reference counted by the driver and may be used from any thread.
unsafe impl Send for ProgramReference {}
// SAFETY: as above.
unsafe impl Sync for ProgramReference {}

impl ProgramReference {
    /// # Safety
    /// The program is live.
    pub unsafe fn new(program: cl_program) -> Result<Self> {
        // SAFETY: promised by the caller.
        check("clRetainProgram", unsafe { retain_program(program) }).map(|()| Self(program))
    }
}

impl Drop for ProgramReference {
    fn drop(&mut self) {
        // SAFETY: the reference is owned and released once.
        let _ = unsafe { release_program(self.0) };
    }
}

#[derive(Debug)]
pub(super) struct KernelHandle(pub(super) cl_kernel);

// SAFETY: the handle is only used under the mutex of its `Kernel`.
unsafe impl Send for KernelHandle {}

impl Kernel {
    pub(super) fn new(program: cl_program, device: DeviceId, name: &str, first: Option<FirstLaunch>) -> Result<Self> {
        let c_name =
            CString::new(name).map_err(|_| Error::Invalid(format!("kernel name contains a NUL byte: {name:?}")))?;
        let handle = KernelHandle(check("clCreateKernel", create_kernel(program, &c_name))?);
        // Less than the device's limit if the compiler has assigned many registers to each work-item.
        let size = get_kernel_work_group_info(handle.0, device.0, CL_KERNEL_WORK_GROUP_SIZE);
        let largest_group = check("clGetKernelWorkGroupInfo", size)?.to_size().max(1);
        // A size declared in the kernel takes precedence, as the compiler respects it. NVIDIA's driver reports 256 for
        // a kernel that is declared for 512.
        let declared = get_kernel_work_group_info(handle.0, device.0, CL_KERNEL_COMPILE_WORK_GROUP_SIZE);
        let declared: usize = declared.map_or(0, |sizes| sizes.to_vec_size().iter().product());
        let largest_group = largest_group.max(declared);
        // Checked here, as a driver may abort at the launch. A driver that does not know the size reports 0, or
        // nothing.
        let info = get_kernel_work_group_info(handle.0, device.0, CL_KERNEL_LOCAL_MEM_SIZE);
        let local = info.map_or(0, |size| size.to_ulong());
        let most = get_device_info(device.0, CL_DEVICE_LOCAL_MEM_SIZE).map_or(0, |size| size.to_ulong());
        if most > 0 && local > most {
            return Err(Error::Unsupported(format!(
                "OpenCL: the kernel {name} takes {local} bytes of local memory, and this device has {most} for a work-group"
            )));
        }
        let shapes = first.map(|first| (first, AtomicU64::default()));
        // SAFETY: the kernel has just been created from it.
        let _program = unsafe { ProgramReference::new(program)? };
        Ok(Self { handle: Mutex::new(handle), _program, name: name.to_owned(), c_name, largest_group, shapes })
    }

    /// The driver's action if a launch needs code for groups of a shape that has not run before: PoCL has separate code
    /// for each group size, and for grids of 65536 items and more.
    pub(super) fn first_launch(&self, grid: &Grid<'_>) -> Option<FirstLaunch> {
        let (first, shapes) = self.shapes.as_ref()?;
        let is_large = grid.global.iter().any(|size| *size > usize::from(u16::MAX));
        let local = grid
            .local
            .unwrap_or_default()
            .iter()
            .fold(usize::from(is_large), |hash, size| (hash ^ size).wrapping_mul(0x9e37_79b9_7f4a_7c15));
        let bit = 1 << (local >> 58 ^ usize::from(is_large));
        let is_first = shapes.load(Ordering::Relaxed) & bit == 0 && shapes.fetch_or(bit, Ordering::Relaxed) & bit == 0;
        is_first.then_some(*first)
    }

    /// Work-items of the largest work-group that the device can run the kernel with.
    pub fn largest_group(&self) -> usize {
        self.largest_group
    }

    /// Refuses invalid grids, and work-groups as [`Self::check_group`] does.
    pub(super) fn check_grid(&self, grid: &Grid<'_>) -> Result<()> {
        let Grid { first, global, local } = *grid;
        let fits = |sizes: Option<&[usize]>| sizes.is_none_or(|sizes| sizes.len() == global.len());
        if !fits(local) || !fits(first) || !(1..=3).contains(&global.len()) {
            return Err(Error::Invalid(format!(
                "kernel {}: invalid ND-range: global size {global:?}, offset {first:?}, local size {local:?}",
                self.name
            )));
        }
        self.check_group(local.unwrap_or_default())
    }

    /// Refuses work-groups that are larger than the device can run the kernel with.
    pub(super) fn check_group(&self, local: &[usize]) -> Result<()> {
        let asked: usize = local.iter().product();
        if asked <= self.largest_group {
            return Ok(());
        }
        Err(Error::Unsupported(format!(
            "OpenCL: the kernel {} is written for groups of {asked} work-items {local:?}, and this device runs it in groups \
             of {} at most",
            self.name, self.largest_group
        )))
    }

    /// Refuses arguments that some device would not accept. Structs that launchers write as bytes have sizes that are
    /// not known at compile time.
    pub(super) fn check_size(&self, args: &[Arg<'_>]) -> Result<()> {
        let size: usize = args.iter().map(Arg::size).sum();
        if size <= MOST_ARGUMENT_BYTES {
            return Ok(());
        }
        Err(Error::Invalid(format!(
            "OpenCL: the kernel {} has {size} bytes of arguments, and devices need not support more than \
             {MOST_ARGUMENT_BYTES}",
            self.name
        )))
    }

    /// Name of the kernel function for the driver.
    pub(super) fn c_name(&self) -> &CString {
        &self.c_name
    }

    /// Name of the kernel function.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Sets the arguments and runs `enqueue` while no other thread can change them.
    pub(super) fn with_args<R>(&self, args: &[Arg<'_>], enqueue: impl FnOnce(cl_kernel) -> Result<R>) -> Result<R> {
        self.check_size(args)?;
        let kernel = self.handle.lock().unwrap_or_else(PoisonError::into_inner);
        let mut index = 0;
        for arg in args {
            index = kernel.set(index, arg)?;
        }
        enqueue(kernel.0)
    }
}

impl KernelHandle {
    /// Sets one argument; returns the index of the next.
    pub(super) fn set(&self, index: u32, arg: &Arg<'_>) -> Result<u32> {
        let mut next = index;
        let mut put = |size: usize, value: *const c_void| {
            // SAFETY: `value` points to `size` readable bytes for the time of the call, or is null for local
            // memory. The driver checks the size against the kernel's own signature.
            let result = unsafe { set_kernel_arg(self.0, next, size, value) };
            next += 1;
            check("clSetKernelArg", result)
        };
        match arg {
            Arg::Buffer(memory) => put(size_of_val(&memory.0), std::ptr::from_ref(&memory.0).cast())?,
            Arg::Bytes(bytes) => put(bytes.len(), bytes.as_ptr().cast())?,
            Arg::Local(size) => put(*size, std::ptr::null())?,
        }
        Ok(next)
    }
}

impl Drop for KernelHandle {
    fn drop(&mut self) {
        // SAFETY: the handle is owned and released once.
        let _ = unsafe { release_kernel(self.0) };
    }
}
