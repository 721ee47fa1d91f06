//! NVIDIA's cuBLAS, found at run time. It computes on the tensors' own memory, which OpenCL and CUDA share
//! ([`crate::cl::cuda`]).

use std::collections::BTreeMap;
use std::ffi::c_void;
use std::fmt::Display;
use std::sync::{Arc, Mutex, PoisonError};

use cudarc::cublas::result::gemm_strided_batched_ex;
use cudarc::cublas::sys::{
    cublasComputeType_t as Compute, cublasGemmAlgo_t, cublasMath_t, cublasOperation_t, cublasSetMathMode,
    cudaDataType as Data,
};
use cudarc::cublas::CudaBlas;

use super::{Matmul, MatmulSize};
use crate::cl::cuda::Link;
use crate::cl::Queue;
use crate::error::{Error, Result};
use crate::kernels::DType;
use crate::ops::matmul as ours;
use crate::ops::matmul::epilogue::Activation;
use crate::ops::matmul::gemm_tile::allows_tf32;
use crate::ops::{Scalar, Tensor};
use crate::runtime::{current_stream, device_of_address, Device};

/// The reason why it cannot be used on a device.
pub fn obstacle(device: &Device) -> Option<String> {
    match device.state() {
        Ok(state) => state.context.cuda().err().map(str::to_owned),
        Err(error) => Some(error.message()),
    }
}

/// Returns true for floating and complex dtypes, strides that cuBLAS supports, and memory that CUDA uses too.
pub fn serves(matmul: &Matmul<'_>) -> bool {
    matmul.dtype().and_then(Numbers::of).is_some()
        && !matmul.overwrites_input()
        && Layout::of(matmul).is_some()
        && Addresses::of(matmul).is_some()
}

/// Enqueues a matmul.
///
/// # Errors
/// Errors of the drivers and of cuBLAS.
pub fn matmul(matmul: &Matmul<'_>) -> Result<()> {
    let device = device_of_address(matmul.out.address)?;
    let context = &device.state()?.context;
    let link = context.cuda().map_err(failed)?;
    let queue = current_stream(device.index)?.queue(context)?;
    let blas = session(link, queue)?;
    let (Some(layout), Some(numbers), Some(addresses)) =
        (Layout::of(matmul), matmul.dtype().and_then(Numbers::of), Addresses::of(matmul))
    else {
        return Err(Error::Unsupported(format!("cuBLAS: unsupported matmul of {}", matmul.out.describe())));
    };
    let alpha = Scale::of(matmul.alpha, &numbers);
    let beta = Scale::of(if matmul.adds_in_place() { matmul.beta } else { scale_bias(matmul)? }, &numbers);
    let (first, second) = if layout.exchanged { (addresses.b, addresses.a) } else { (addresses.a, addresses.b) };
    let Layout { rows, columns, k, batches, left, right, out, exchanged } = layout;
    link.run(context, queue, || {
        // SAFETY: the layout was checked against the tensors at these addresses, which the queue's order keeps alive.
        let done = unsafe {
            gemm_strided_batched_ex(
                *blas.handle(),
                left.operation(exchanged),
                right.operation(exchanged),
                rows,
                columns,
                k,
                alpha.pointer(),
                first as *const c_void,
                numbers.data,
                left.leading,
                left.batch_stride,
                second as *const c_void,
                numbers.data,
                right.leading,
                right.batch_stride,
                beta.pointer(),
                addresses.out as *mut c_void,
                numbers.data,
                out.leading,
                out.batch_stride,
                batches,
                numbers.compute,
                cublasGemmAlgo_t::CUBLAS_GEMM_DEFAULT,
            )
        };
        done.map_err(failed)
    })
}

/// The handle of each stream used, by CUDA's pointer to the stream; created on first use, kept as long as the process
/// lives. Streams do not share a handle, because its workspace is for one matmul at a time.
static SESSIONS: Mutex<BTreeMap<usize, Arc<CudaBlas>>> = Mutex::new(BTreeMap::new());

fn session(link: &Link, queue: &Queue) -> Result<Arc<CudaBlas>> {
    let stream = link.stream(queue)?;
    let mut sessions = SESSIONS.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(session) = sessions.get(&(stream.cu_stream() as usize)) {
        return Ok(Arc::clone(session));
    }
    let _bound = link.bind()?;
    let session = Arc::new(CudaBlas::new(Arc::clone(&stream)).map_err(failed)?);
    // Sums of halves that are split stay float32.
    let math = cublasMath_t::CUBLAS_MATH_DISALLOW_REDUCED_PRECISION_REDUCTION;
    // SAFETY: the handle is live.
    unsafe { cublasSetMathMode(*session.handle(), math) }.result().map_err(failed)?;
    sessions.insert(stream.cu_stream() as usize, Arc::clone(&session));
    Ok(session)
}

fn failed(cause: impl Display) -> Error {
    Error::Invalid(format!("cuBLAS: {cause}"))
}

/// Writes `beta * bias` to the result, to which cuBLAS then adds: a matmul with K = 0. Returns the factor of the result,
/// 0 without a bias.
fn scale_bias(matmul: &Matmul<'_>) -> Result<Scalar> {
    let Some(bias) = matmul.bias else { return Ok(Scalar::default()) };
    let nothing = MatmulSize { k: 0, ..matmul.size() };
    matmul.with_corner(&nothing, |part| {
        let (a, b) = (Tensor { address: 0, ..part.a }, Tensor { address: 0, ..part.b });
        ours::matmul(&part.out, &a, &b, &bias, Scalar::default(), part.beta, Activation::None)
    })?;
    Ok(Scalar { real: 1.0, ..Scalar::default() })
}

/// CUDA's addresses of the first elements.
struct Addresses {
    out: u64,
    a: u64,
    b: u64,
}

impl Addresses {
    /// `None` if CUDA does not use the memory of one of the tensors.
    fn of(matmul: &Matmul<'_>) -> Option<Self> {
        let state = device_of_address(matmul.out.address).ok()?.initialised()?;
        let address = |tensor: &Tensor<'_>| state.cuda_address(tensor.address);
        Some(Self { out: address(&matmul.out)?, a: address(&matmul.a)?, b: address(&matmul.b)? })
    }
}

/// The dtypes of elements and of sums, as cuBLAS names them.
struct Numbers {
    data: Data,
    compute: Compute,
    is_double: bool,
}

impl Numbers {
    fn of(dtype: DType) -> Option<Self> {
        let single = if allows_tf32() { Compute::CUBLAS_COMPUTE_32F_FAST_TF32 } else { Compute::CUBLAS_COMPUTE_32F };
        let (data, compute) = match dtype {
            DType::F16 => (Data::CUDA_R_16F, Compute::CUBLAS_COMPUTE_32F),
            DType::BF16 => (Data::CUDA_R_16BF, Compute::CUBLAS_COMPUTE_32F),
            DType::F32 => (Data::CUDA_R_32F, single),
            DType::C64 => (Data::CUDA_C_32F, single),
            DType::F64 => (Data::CUDA_R_64F, Compute::CUBLAS_COMPUTE_64F),
            DType::C128 => (Data::CUDA_C_64F, Compute::CUBLAS_COMPUTE_64F),
            _ => return None,
        };
        Some(Self { data, compute, is_double: compute == Compute::CUBLAS_COMPUTE_64F })
    }
}

/// A factor in the dtype of the sums; a real matmul reads only the first number.
enum Scale {
    Single([f32; 2]),
    Double([f64; 2]),
}

impl Scale {
    fn of(value: Scalar, numbers: &Numbers) -> Self {
        if numbers.is_double {
            Self::Double([value.real, value.imag])
        } else {
            Self::Single([value.real as f32, value.imag as f32])
        }
    }

    fn pointer(&self) -> *const c_void {
        match self {
            Self::Single(parts) => parts.as_ptr().cast(),
            Self::Double(parts) => parts.as_ptr().cast(),
        }
    }
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
}
