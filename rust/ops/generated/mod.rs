//! Kernels whose source is written at run time: by `torch.compile`, and by users.

use std::sync::{Arc, PoisonError, RwLock};

use crate::cl::{Arg, Kernel, Start, INVALID_KERNEL_NAME};
use crate::error::{Error, Result};
use crate::kernels::{generated_program, CachedProgram, Family};
use crate::ops::Target;
use crate::runtime::message_index;

/// Maximum number of buffers of a kernel: with an offset for each, they fit the arguments that every device supports.
const MOST_BUFFERS: usize = 60;
/// Maximum number of 64-bit values of a kernel, offsets of buffers included.
const MOST_VALUES: usize = 64;

#[cxx::bridge(namespace = "torch_opencl::bridge")]
mod ffi {
    extern "Rust" {
        fn build_kernels(device: i32, source: &str, names: Vec<String>) -> Result<Vec<i64>>;
        fn build_user_kernel(device: i32, source: &str, name: &str) -> Result<i64>;
        fn launch_user_kernel(
            kernel: i64,
            global: &[i64],
            local: &[i64],
            buffers: &[usize],
            values: &[i64],
        ) -> Result<()>;
        fn release_kernels(kernels: &[i64]);
        fn fault_message(text: &str) -> i64;
        fn launch_function() -> usize;
    }
}

/// A kernel that can be launched by its id.
#[derive(Debug)]
struct Generated {
    device: i32,
    kernel: Arc<Kernel>,
    /// The record of faults is its last argument.
    reports_faults: bool,
    /// Keeps the kernel's code in memory.
    _program: Arc<CachedProgram>,
}

/// Kernels by id; released kernels leave a gap.
static KERNELS: RwLock<Vec<Option<Arc<Generated>>>> = RwLock::new(Vec::new());

/// Builds the kernels of a source, or loads the program that an earlier process built.
///
/// The source follows `generated.cl`. Each kernel takes its buffers, then one struct of 64-bit values by value: the
/// buffers' offsets in bytes and its scalars; then, if its name ends in `_faults`, the record of faults.
///
/// # Errors
/// [`Error::Build`] with the compiler's log.
pub fn build_kernels(device: i32, source: &str, names: Vec<String>) -> Result<Vec<i64>> {
    build(device, Family::Generated, source, &names)
}

/// Builds a user's kernel, as [`build_kernels`]. The source follows `user.cl`; python/torch_opencl/_kernel_source.py
/// has given the kernel the parameters that [`build_kernels`] describes.
///
/// # Errors
/// [`Error::Build`] with the compiler's log.
pub fn build_user_kernel(device: i32, source: &str, name: &str) -> Result<i64> {
    let named = |error| match error {
        Error::Build { device, log, .. } => Error::Build { program: name.to_owned(), device, log },
        // The compiler has taken the kernel for another overload of its own function.
        Error::OpenCl { code: INVALID_KERNEL_NAME, .. } => Error::Invalid(format!(
            "OpenCL: the compiled program has no kernel '{name}'. A kernel cannot have the name of a function of \
             OpenCL C, such as rotate: choose another name."
        )),
        other => other,
    };
    let kernels = build(device, Family::User, source, &[name.to_owned()]).map_err(named)?;
    kernels.first().copied().ok_or_else(|| Error::Invalid(format!("OpenCL: {name} was not built")))
}

fn build(device: i32, family: Family, source: &str, names: &[String]) -> Result<Vec<i64>> {
    let program = Arc::new(generated_program(crate::runtime::device(device)?, family, source)?);
    let built = names
        .iter()
        .map(|name| {
            let kernel = program.generated_kernel(name)?;
            let reports_faults = family == Family::Generated && name.ends_with("_faults");
            Ok(Arc::new(Generated { device, kernel, reports_faults, _program: Arc::clone(&program) }))
        })
        .collect::<Result<Vec<_>>>()?;
    let mut kernels = KERNELS.write().unwrap_or_else(PoisonError::into_inner);
    let first = kernels.len() as i64;
    kernels.extend(built.into_iter().map(Some));
    Ok((first..kernels.len() as i64).collect())
}

/// Releases kernels after their enqueued launches have run.
pub fn release_kernels(released: &[i64]) {
    let mut kernels = KERNELS.write().unwrap_or_else(PoisonError::into_inner);
    for number in released {
        if let Some(kernel) = usize::try_from(*number).ok().and_then(|number| kernels.get_mut(number)) {
            *kernel = None;
        }
    }
}

/// Enqueues a kernel on this thread's current stream of its device.
///
/// # Errors
/// [`Error::Invalid`] for an unknown id and buffers of another device; [`Error::Unsupported`] for too many arguments.
fn launch_kernel(
    kernel: i64,
    global: &[usize],
    local: Option<&[usize]>,
    start: Start,
    buffers: &[usize],
    values: &[u64],
) -> Result<()> {
    let found = {
        let kernels = KERNELS.read().unwrap_or_else(PoisonError::into_inner);
        usize::try_from(kernel).ok().and_then(|number| kernels.get(number)?.clone())
    };
    let generated = found.ok_or_else(|| Error::Invalid(format!("OpenCL: there is no generated kernel {kernel}")))?;
    let (offsets, count) = (buffers.len(), buffers.len() + values.len());
    if offsets > MOST_BUFFERS || count > MOST_VALUES {
        return Err(Error::Unsupported(format!(
            "OpenCL: the generated kernel {} has {offsets} buffers and {} scalars; devices need not take more than \
             {MOST_BUFFERS} buffers and {MOST_VALUES} scalars and offsets",
            generated.kernel.name(),
            values.len()
        )));
    }
    let target = Target::at(generated.device)?;
    let mut packed = [0_u64; MOST_VALUES];
    let mut args = [Arg::Local(0); MOST_BUFFERS + 2];
    for ((slot, value), address) in args.iter_mut().zip(&mut packed).zip(buffers) {
        let memory = target.memory(*address)?;
        (*slot, *value) = (Arg::Buffer(memory.handle), memory.offset);
    }
    for (slot, value) in packed.iter_mut().skip(offsets).zip(values) {
        *slot = *value;
    }
    // A struct has at least one member.
    let bytes = bytemuck::cast_slice(packed.get(..count.max(1)).unwrap_or_default());
    let mut last = offsets;
    if let Some(slot) = args.get_mut(last) {
        *slot = Arg::Bytes(bytes);
    }
    if generated.reports_faults {
        last += 1;
        if let Some(slot) = args.get_mut(last) {
            *slot = Arg::Buffer(target.faults()?.handle);
        }
    }
    target.launch_generated(&generated.kernel, args.get(..=last).unwrap_or_default(), global, local, start)
}

/// Enqueues a user's kernel over up to three dimensions; without `local`, in groups that suit the device.
///
/// # Errors
/// [`Error::Invalid`] for an unknown id and buffers of another device; [`Error::Unsupported`] for too many arguments,
/// and for groups larger than the device supports.
pub fn launch_user_kernel(kernel: i64, global: &[i64], local: &[i64], buffers: &[usize], values: &[i64]) -> Result<()> {
    let sizes = |sizes: &[i64]| sizes.iter().map(|size| usize::try_from(*size).unwrap_or(0)).collect::<Vec<_>>();
    let (global, local) = (sizes(global), sizes(local));
    let local = (!local.is_empty()).then_some(local.as_slice());
    launch_kernel(kernel, &global, local, Start::Now, buffers, bytemuck::cast_slice(values))
}

/// Enqueues a kernel, with C's calling convention: `python/launch` calls it for Python.
///
/// Returns 0, or an error: 2 for an index out of range, 3 if a signal handler raised (its exception is set in Python),
/// else 1. An error writes a message of at most `size` bytes, ending with a zero.
///
/// # Safety
/// `buffers` points to the addresses of `buffer_count` tensors, `values` to `value_count` scalars, `message` to `size`
/// bytes.
#[no_mangle]
pub unsafe extern "C" fn torch_opencl_launch(
    kernel: i64,
    global: usize,
    local: usize,
    is_short: i32,
    buffers: *const usize,
    buffer_count: usize,
    values: *const u64,
    value_count: usize,
    message: *mut u8,
    size: usize,
) -> i32 {
    // SAFETY: the caller's promise.
    let (buffers, values, message) = unsafe {
        (
            std::slice::from_raw_parts(buffers, buffer_count),
            std::slice::from_raw_parts(values, value_count),
            std::slice::from_raw_parts_mut(message, size),
        )
    };
    let start = if is_short != 0 { Start::Batched } else { Start::Now };
    let Err(error) = launch_kernel(kernel, &[global], Some(&[local]), start, buffers, values) else { return 0 };
    let text = error.message();
    for (slot, byte) in message.iter_mut().zip(text.bytes().chain([0])) {
        *slot = byte;
    }
    if let Some(last) = message.last_mut() {
        *last = 0;
    }
    match error {
        Error::Index(_) => 2,
        Error::Interrupted => 3,
        _ => 1,
    }
}

/// The address of [`torch_opencl_launch`].
pub fn launch_function() -> usize {
    torch_opencl_launch as *const () as usize
}

/// The id of an assertion's message, for a kernel's scalar.
pub fn fault_message(text: &str) -> i64 {
    message_index(text)
}
