//! NVIDIA's cuBLAS, found at run time.
//!
//! CUDA and OpenCL share no memory, so every operand is copied: OpenCL maps it into the driver's pinned memory, CUDA
//! copies it from there, and the result returns the same way. `docs/decisions/004-blas-libraries.md` says when that can
//! pay.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use cudarc::cublas::sys::cublasOperation_t;
use cudarc::cublas::{CudaBlas, Gemm, GemmConfig, StridedBatchedConfig};
use cudarc::driver::result::device::{get, get_uuid};
use cudarc::driver::{CudaContext, CudaStream, DeviceRepr};
use half::{bf16, f16};

use super::mapped::Mapped;
use super::{Matmul, MatmulSize};
use crate::cl::DeviceInfo;
use crate::error::{Error, Result};
use crate::kernels::DType;
use crate::ops::matmul as ours;
use crate::ops::matmul::epilogue::Activation;
use crate::ops::{Scalar, Tensor};
use crate::runtime::device_of_address;

/// The reason why it cannot be used on a device.
pub fn obstacle(info: &DeviceInfo) -> Option<String> {
    let is_in_use = info.uuid.is_some_and(|uuid| sessions().contains_key(&uuid));
    if is_in_use {
        return None;
    }
    ordinal(info).err()
}

/// The CUDA index of an OpenCL device.
fn ordinal(info: &DeviceInfo) -> std::result::Result<usize, String> {
    if !info.vendor.contains("NVIDIA") {
        return Err("it is not an NVIDIA device".to_owned());
    }
    let uuid = info.uuid.ok_or("its OpenCL driver does not report a UUID (cl_khr_device_uuid)")?;
    // SAFETY: loading NVIDIA's libraries only runs their initialisers. Checked before any other call, because those
    // panic if the library is missing.
    let (driver, library) =
        unsafe { (cudarc::driver::sys::is_culib_present(), cudarc::cublas::sys::is_culib_present()) };
    if !driver {
        return Err("libcuda, which comes with NVIDIA's driver, is not found".to_owned());
    }
    if !library {
        return Err(
            "libcublas is not found: install the CUDA toolkit, or put its folder into LD_LIBRARY_PATH".to_owned()
        );
    }
    let count = CudaContext::device_count().map_err(|error| format!("CUDA cannot be initialised: {error}"))?;
    let is_it =
        |ordinal: &i32| get(*ordinal).and_then(get_uuid).is_ok_and(|known| known.bytes.map(|byte| byte as u8) == uuid);
    let found = (0..count).find(is_it).and_then(|ordinal| usize::try_from(ordinal).ok());
    found.ok_or_else(|| "CUDA does not list this device: see CUDA_VISIBLE_DEVICES".to_owned())
}

/// Returns true for floating dtypes, and strides that cuBLAS supports.
pub fn serves(matmul: &Matmul<'_>) -> bool {
    let is_known = matches!(matmul.dtype(), Some(DType::F16 | DType::BF16 | DType::F32 | DType::F64));
    is_known && !matmul.overwrites_input() && Layout::of(matmul).is_some()
}

/// Computes a matmul.
///
/// # Errors
/// Errors of the drivers and of cuBLAS.
pub fn matmul(matmul: &Matmul<'_>) -> Result<()> {
    let session = session(&device_of_address(matmul.out.address)?.info)?;
    let layout = Layout::of(matmul)
        .ok_or_else(|| Error::Unsupported(format!("cuBLAS: unsupported strides of {}", matmul.out.describe())))?;
    match matmul.out.dtype {
        DType::F16 => run(&session, matmul, &layout, f16::from_f64),
        DType::BF16 => run(&session, matmul, &layout, bf16::from_f64),
        DType::F64 => run(&session, matmul, &layout, |value| value),
        _ => run(&session, matmul, &layout, |value| value as f32),
    }
}

/// The stream and the handle of a device; created on first use, kept as long as the process lives.
struct Session {
    stream: Arc<CudaStream>,
    blas: CudaBlas,
}

/// Keyed by the device's UUID.
static SESSIONS: Mutex<BTreeMap<[u8; 16], Arc<Session>>> = Mutex::new(BTreeMap::new());

fn sessions() -> MutexGuard<'static, BTreeMap<[u8; 16], Arc<Session>>> {
    SESSIONS.lock().unwrap_or_else(PoisonError::into_inner)
}

fn session(info: &DeviceInfo) -> Result<Arc<Session>> {
    let uuid = info.uuid.unwrap_or_default();
    let mut sessions = sessions();
    if let Some(session) = sessions.get(&uuid) {
        return Ok(Arc::clone(session));
    }
    let stream = CudaContext::new(ordinal(info).map_err(failed)?).map_err(failed)?.default_stream();
    let session = Arc::new(Session { blas: CudaBlas::new(Arc::clone(&stream)).map_err(failed)?, stream });
    sessions.insert(uuid, Arc::clone(&session));
    Ok(session)
}

fn failed(cause: impl Display) -> Error {
    Error::Invalid(format!("cuBLAS: {cause}"))
}

fn run<T: DeviceRepr>(session: &Session, matmul: &Matmul<'_>, layout: &Layout, number: impl Fn(f64) -> T) -> Result<()>
where
    CudaBlas: Gemm<T>,
{
    let beta = if matmul.bias.is_some() { 1.0 } else { 0.0 };
    scale_bias(matmul)?;
    let (first, second) = if layout.exchanged { (&matmul.b, &matmul.a) } else { (&matmul.a, &matmul.b) };
    let mapped = Mapped::open([(&matmul.out, true), (first, false), (second, false)])?;
    let [target, left, right] = mapped.pointers();
    // SAFETY: tensors are aligned to their elements, any bits are a value, and all three stay mapped.
    let (left, right, target) =
        unsafe { (elements::<T>(left, first), elements::<T>(right, second), elements_mut::<T>(target, &matmul.out)) };
    let stream = &session.stream;
    let (left, right) = (stream.clone_htod(left).map_err(failed)?, stream.clone_htod(right).map_err(failed)?);
    // Includes the memory between the elements of a result that is not dense.
    let mut result = stream.clone_htod(&*target).map_err(failed)?;
    let config = layout.config(number(matmul.alpha.real), number(beta));
    // SAFETY: the layout was checked against the tensors that the three slices hold.
    unsafe { session.blas.gemm_strided_batched(config, &left, &right, &mut result) }.map_err(failed)?;
    stream.memcpy_dtoh(&result, target).and_then(|()| stream.synchronize()).map_err(failed)?;
    mapped.close()
}

/// # Safety
/// The memory of the tensor is mapped at `pointer` for as long as the slice lives.
unsafe fn elements<'a, T>(pointer: *mut u8, tensor: &Tensor<'_>) -> &'a [T] {
    // SAFETY: promised by the caller.
    unsafe { std::slice::from_raw_parts(pointer.cast(), tensor.span() / size_of::<T>()) }
}

/// # Safety
/// See [`elements`]; nothing else uses the memory.
unsafe fn elements_mut<'a, T>(pointer: *mut u8, tensor: &Tensor<'_>) -> &'a mut [T] {
    // SAFETY: promised by the caller.
    unsafe { std::slice::from_raw_parts_mut(pointer.cast(), tensor.span() / size_of::<T>()) }
}

/// Writes `beta * bias` to the result, to which cuBLAS then adds: a matmul with K = 0.
fn scale_bias(matmul: &Matmul<'_>) -> Result<()> {
    let Some(bias) = matmul.bias else { return Ok(()) };
    let nothing = MatmulSize { k: 0, ..matmul.size() };
    matmul.with_corner(&nothing, |part| {
        let (a, b) = (Tensor { address: 0, ..part.a }, Tensor { address: 0, ..part.b });
        ours::matmul(&part.out, &a, &b, &bias, Scalar::default(), part.beta, Activation::None)
    })
}

/// A matmul in cuBLAS's terms: column-major matrices. A row-major result is the transposed matmul, with the operands
/// swapped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Layout {
    exchanged: bool,
    rows: i32,
    columns: i32,
    k: i32,
    batches: i32,
    left: Side,
    right: Side,
    out: Side,
}

/// Layout of a matrix: row-major or column-major, its leading dimension, and elements between matrices.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Side {
    by_rows: bool,
    leading: i32,
    batch_stride: i64,
}

impl Side {
    fn of(tensor: &Tensor<'_>) -> Option<Self> {
        let dim = tensor.ndim();
        let (row, column) = (dim.checked_sub(2)?, dim.checked_sub(1)?);
        let batch_stride = dim.checked_sub(3).map_or(0, |batch| tensor.stride(batch));
        let leading = |inner: usize, outer: usize| {
            let length = tensor.size(inner).max(1);
            let fits = tensor.stride(inner) == 1 || length == 1;
            let step = if tensor.size(outer) == 1 { length } else { tensor.stride(outer) };
            i32::try_from(step).ok().filter(|_| fits && step >= length)
        };
        let by_rows = leading(column, row).map(|leading| Self { by_rows: true, leading, batch_stride });
        by_rows.or_else(|| leading(row, column).map(|leading| Self { by_rows: false, leading, batch_stride }))
    }

    /// As an operand of a matmul of column-major matrices.
    fn operation(self, exchanged: bool) -> cublasOperation_t {
        if self.by_rows == exchanged {
            cublasOperation_t::CUBLAS_OP_N
        } else {
            cublasOperation_t::CUBLAS_OP_T
        }
    }
}

impl Layout {
    fn of(matmul: &Matmul<'_>) -> Option<Self> {
        let (a, b, out) = (Side::of(&matmul.a)?, Side::of(&matmul.b)?, Side::of(&matmul.out)?);
        let size = matmul.size();
        let [rows, columns, k, batches] =
            [size.rows, size.columns, size.k, size.batches].map(|size| i32::try_from(size).ok());
        let exchanged = out.by_rows;
        let (left, right) = if exchanged { (b, a) } else { (a, b) };
        let (rows, columns) = if exchanged { (columns?, rows?) } else { (rows?, columns?) };
        Some(Self { exchanged, rows, columns, k: k?, batches: batches?, left, right, out })
    }

    fn config<T>(&self, alpha: T, beta: T) -> StridedBatchedConfig<T> {
        StridedBatchedConfig {
            gemm: GemmConfig {
                transa: self.left.operation(self.exchanged),
                transb: self.right.operation(self.exchanged),
                m: self.rows,
                n: self.columns,
                k: self.k,
                alpha,
                lda: self.left.leading,
                ldb: self.right.leading,
                beta,
                ldc: self.out.leading,
            },
            batch_size: self.batches,
            stride_a: self.left.batch_stride,
            stride_b: self.right.batch_stride,
            stride_c: self.out.batch_stride,
        }
    }
}
