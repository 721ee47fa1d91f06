//! NVIDIA's cuBLASLt, found at run time. It computes on the tensors' own memory, which OpenCL and CUDA share
//! ([`crate::cl::cuda`]).

use std::ffi::c_void;

use cudarc::cublaslt::sys::{cublasComputeType_t as Compute, cudaDataType as Data};

use super::cublas_lt::{failed, Description, Operand, Plan, BIAS_ALIGNMENT};
use super::{Matmul, MatmulSize};
use crate::error::Result;
use crate::kernels::DType;
use crate::ops::matmul as ours;
use crate::ops::matmul::epilogue::Activation;
use crate::ops::matmul::gemm_tile::allows_tf32;
use crate::ops::{Scalar, Target, Tensor};
use crate::runtime::{current_stream, device_of_address, Device, DeviceState};

/// Terms of the longest sum of int8 products, each of at most 2^14, that fits an int32.
const LONGEST_INT8: u64 = 1 << 17;
const ONE: Scalar = Scalar { real: 1.0, imag: 0.0, integer: 1 };

/// The reason why it cannot be used on a device.
pub fn obstacle(device: &Device) -> Option<String> {
    match device.state() {
        Ok(state) => state.context.cuda().err().map(str::to_owned),
        Err(error) => Some(error.message()),
    }
}

/// Returns true for floating and complex dtypes and for int8, strides that cuBLAS has, and memory that CUDA uses too.
pub fn serves(matmul: &Matmul<'_>) -> bool {
    let state = device_of_address(matmul.out.address).ok().and_then(Device::initialised);
    !matmul.overwrites_input() && state.is_some_and(|state| Terms::of(matmul, state).is_some())
}

/// Enqueues a matmul. Returns false, and computes nothing, if cuBLAS does not support it.
///
/// # Errors
/// Errors of the drivers and of cuBLAS.
pub fn matmul(matmul: &Matmul<'_>) -> Result<bool> {
    let device = device_of_address(matmul.out.address)?;
    let state = device.state()?;
    let link = state.context.cuda().map_err(failed)?;
    let target = Target::of(matmul.out.address)?;
    let Some(terms) = Terms::of(matmul, state) else { return Ok(false) };
    for form in terms.with_bias(matmul, state).into_iter().chain([terms.plain(matmul)]) {
        let plan = |may_take_memory| Plan::new(link, device.index, &form.description, may_take_memory);
        let Some(mut chosen) = plan(true)? else { continue };
        let workspace = if chosen.workspace > 0 { target.workspace(chosen.workspace).ok() } else { None };
        let memory = workspace.as_ref().and_then(|workspace| state.cuda_address(workspace.address));
        if chosen.workspace > 0 && memory.is_none() {
            let Some(other) = plan(false)? else { continue };
            chosen = other;
        }
        if let Some(bias) = form.begins_with {
            scale_bias(matmul, &bias)?;
        }
        let (alpha, beta) = (Scale::of(matmul.alpha, &terms.numbers), Scale::of(form.beta, &terms.numbers));
        let queue = current_stream(device.index)?.queue(&state.context)?;
        let stream = link.stream(queue)?;
        let mut is_done = false;
        link.run(&state.context, queue, || {
            let factors = [alpha.pointer(), beta.pointer()];
            // SAFETY: `terms` has the tensors' sizes and strides; the queue's order keeps their memory alive.
            is_done = unsafe { chosen.enqueue(factors, memory.unwrap_or_default(), stream.cu_stream().cast()) }?;
            Ok(())
        })?;
        if is_done {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Writes `beta * bias` to the result, to which cuBLAS then adds: a matmul with K = 0.
fn scale_bias(matmul: &Matmul<'_>, bias: &Tensor<'_>) -> Result<()> {
    let nothing = MatmulSize { k: 0, ..matmul.size() };
    matmul.with_corner(&nothing, |part| {
        let (a, b) = (Tensor { address: 0, ..part.a }, Tensor { address: 0, ..part.b });
        ours::matmul(&part.out, &a, &b, bias, Scalar::default(), part.beta, Activation::None)
    })
}

/// The dtypes of elements, of sums and of factors, as cuBLAS names them.
#[derive(Clone, Copy)]
struct Numbers {
    data: Data,
    out: Data,
    compute: Compute,
    scale: Data,
    /// True if cuBLAS adds a bias.
    has_bias: bool,
}

impl Numbers {
    fn of(matmul: &Matmul<'_>) -> Option<Self> {
        let Matmul { out, a, b, bias, .. } = matmul;
        if [a.dtype, b.dtype, out.dtype] == [DType::I8, DType::I8, DType::I32] && bias.is_none() {
            let (out, compute) = (Data::CUDA_R_32I, Compute::CUBLAS_COMPUTE_32I);
            return Some(Self { data: Data::CUDA_R_8I, out, compute, scale: out, has_bias: false });
        }
        let single = if allows_tf32() { Compute::CUBLAS_COMPUTE_32F_FAST_TF32 } else { Compute::CUBLAS_COMPUTE_32F };
        let (data, compute, scale) = match matmul.dtype()? {
            DType::F16 => (Data::CUDA_R_16F, Compute::CUBLAS_COMPUTE_32F, Data::CUDA_R_32F),
            DType::BF16 => (Data::CUDA_R_16BF, Compute::CUBLAS_COMPUTE_32F, Data::CUDA_R_32F),
            DType::F32 => (Data::CUDA_R_32F, single, Data::CUDA_R_32F),
            DType::C64 => (Data::CUDA_C_32F, single, Data::CUDA_C_32F),
            DType::F64 => (Data::CUDA_R_64F, Compute::CUBLAS_COMPUTE_64F, Data::CUDA_R_64F),
            DType::C128 => (Data::CUDA_C_64F, Compute::CUBLAS_COMPUTE_64F, Data::CUDA_C_64F),
            _ => return None,
        };
        Some(Self { data, out: data, compute, scale, has_bias: matches!(scale, Data::CUDA_R_32F | Data::CUDA_R_64F) })
    }

    fn is_int8(&self) -> bool {
        self.data == Data::CUDA_R_8I
    }
}

/// A factor in the dtype of the scale.
enum Scale {
    Single([f32; 2]),
    Double([f64; 2]),
    Integer(i32),
}

impl Scale {
    fn of(value: Scalar, numbers: &Numbers) -> Self {
        match numbers.scale {
            Data::CUDA_R_32I => Self::Integer(value.real as i32),
            Data::CUDA_R_64F | Data::CUDA_C_64F => Self::Double([value.real, value.imag]),
            _ => Self::Single([value.real as f32, value.imag as f32]),
        }
    }

    fn pointer(&self) -> *const c_void {
        match self {
            Self::Single(parts) => parts.as_ptr().cast(),
            Self::Double(parts) => parts.as_ptr().cast(),
            Self::Integer(value) => std::ptr::from_ref(value).cast(),
        }
    }
}

/// A way to compute a matmul.
struct Form<'a> {
    description: Description,
    beta: Scalar,
    /// A bias of which our own kernels write `beta * bias` to the result first.
    begins_with: Option<Tensor<'a>>,
}

/// A matmul in cuBLAS's terms: column-major matrices. A row-major result is the transposed matmul, with the operands
/// swapped.
struct Terms {
    numbers: Numbers,
    /// True if operands are swapped.
    exchanged: bool,
    transposed: [bool; 2],
    a: Operand,
    b: Operand,
    d: Operand,
}

impl Terms {
    /// `None` if cuBLAS has no such dtype or strides, or CUDA does not use the memory of a tensor.
    fn of(matmul: &Matmul<'_>, state: &DeviceState) -> Option<Self> {
        let numbers = Numbers::of(matmul)?;
        let MatmulSize { batches, rows, columns, k } = matmul.size();
        let batches = i32::try_from(batches).ok()?;
        let (a, b, out) = (Side::of(&matmul.a)?, Side::of(&matmul.b)?, Side::of(&matmul.out)?);
        let exchanged = out.by_rows;
        let operand = |tensor: &Tensor<'_>, side: Side, data: Data, [rows, columns]: [i64; 2]| {
            let (rows, columns) = if side.by_rows { (columns, rows) } else { (rows, columns) };
            let Side { leading, batch_stride, .. } = side;
            let address = state.cuda_address(tensor.address)?;
            Some(Operand { address, data, rows: rows as u64, columns: columns as u64, leading, batches, batch_stride })
        };
        let left = operand(&matmul.a, a, numbers.data, [rows, k])?;
        let right = operand(&matmul.b, b, numbers.data, [k, columns])?;
        let d = operand(&matmul.out, out, numbers.out, [rows, columns])?;
        let [left_transposed, right_transposed] = [a, b].map(|side| side.by_rows != exchanged);
        let (a, b, transposed) = if exchanged {
            (right, left, [right_transposed, left_transposed])
        } else {
            (left, right, [left_transposed, right_transposed])
        };
        let terms = Self { numbers, exchanged, transposed, a, b, d };
        (!numbers.is_int8() || terms.suits_int8()).then_some(terms)
    }

    /// Returns true for what cuBLAS's documentation asks of int8: the first operand transposed, the second one not, and
    /// columns that begin at, and have, multiples of 4 elements. Sums must not exceed an int32.
    fn suits_int8(&self) -> bool {
        let has_aligned_columns =
            |operand: &Operand| [operand.rows, operand.leading as u64, operand.address].iter().all(|n| n % 4 == 0);
        self.transposed == [true, false]
            && self.a.rows < LONGEST_INT8
            && [&self.a, &self.b, &self.d].into_iter().all(has_aligned_columns)
    }

    /// The form in which cuBLAS adds to the result's memory, which holds the bias.
    fn plain<'a>(&self, matmul: &Matmul<'a>) -> Form<'a> {
        let Self { numbers: Numbers { compute, scale, .. }, transposed, a, b, d, .. } = *self;
        let description = Description { compute, scale, a, b, c: None, d, transposed, bias: 0 };
        let begins_with = matmul.bias.filter(|_| !matmul.adds_in_place());
        let beta = match matmul.bias {
            None => Scalar::default(),
            Some(_) if begins_with.is_some() => ONE,
            Some(_) => matmul.beta,
        };
        Form { description, beta, begins_with }
    }

    /// The form in which cuBLAS reads the bias where it lies. `None` if there is none, or cuBLAS has no such bias.
    fn with_bias<'a>(&self, matmul: &Matmul<'a>, state: &DeviceState) -> Option<Form<'a>> {
        let mut form = self.plain(matmul);
        let bias = form.begins_with.take()?;
        let address = state.cuda_address(bias.address)?;
        let is_one = matmul.beta.real == 1.0 && address % BIAS_ALIGNMENT == 0;
        if is_one && self.numbers.has_bias && self.is_of_rows(&bias) {
            form.description.bias = address;
            form.beta = Scalar::default();
        } else {
            let Side { leading, batch_stride, .. } = Side::of(&bias).filter(|side| side.by_rows == self.exchanged)?;
            form.description.c = Some(Operand { address, leading, batch_stride, ..self.d });
            form.beta = matmul.beta;
        }
        Some(form)
    }

    /// Returns true for a bias that is a value for each row of the column-major result, the same in all batches.
    fn is_of_rows(&self, bias: &Tensor<'_>) -> bool {
        let row = bias.ndim().checked_sub(if self.exchanged { 1 } else { 2 });
        (0..bias.ndim()).all(|dim| bias.size(dim) == 1 || bias.stride(dim) == i64::from(Some(dim) == row))
    }
}

/// Layout of a matrix: row-major or column-major, its leading dimension, and elements between matrices.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Side {
    by_rows: bool,
    leading: i64,
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
            Some(step).filter(|_| fits && step >= length)
        };
        let by_rows = leading(column, row).map(|leading| Self { by_rows: true, leading, batch_stride });
        by_rows.or_else(|| leading(row, column).map(|leading| Self { by_rows: false, leading, batch_stride }))
    }
}
