//! PyTorch's own CPU matmul, on the device's memory.
//!
//! If host and device share memory, nothing is copied: the operands are mapped, and PyTorch gets them with their
//! strides, so a transposed operand is not copied either. Mapping waits for the stream, and the matmul is complete when
//! the call returns.

use super::mapped::Mapped;
use super::Matmul;
use crate::error::{Error, Result};
use crate::kernels::DType;
use crate::ops::Tensor;
use crate::runtime::Device;

/// The bridge from Rust to ATen's matmul: `cpp/cpu/host_matmul.cpp`.
#[cxx::bridge(namespace = "torch_opencl::bridge")]
mod ffi {
    unsafe extern "C++" {
        include!("cpu/host_matmul.h");
        include!("torch_opencl/rust/abi.rs.h");
        type Scalar = crate::abi::Scalar;
        type Tensor<'a> = crate::abi::Tensor<'a>;

        /// Number of threads that PyTorch uses.
        fn host_threads() -> i32;

        /// `out = alpha * a @ b`.
        ///
        /// # Safety
        /// The memory of all matrices is mapped, that of `out` for writing.
        unsafe fn host_matmul(out: Tensor, a: Tensor, b: Tensor, alpha: Scalar) -> Result<()>;

        /// `out = alpha * a @ b + beta * bias`; `bias` may be `out` itself.
        ///
        /// # Safety
        /// As for `host_matmul`.
        unsafe fn host_addmm(
            out: Tensor,
            bias: Tensor,
            a: Tensor,
            b: Tensor,
            alpha: Scalar,
            beta: Scalar,
        ) -> Result<()>;
    }
}

/// The reason why it cannot be used on a device.
pub fn obstacle(device: &Device) -> Option<String> {
    (!device.info.host_unified).then(|| "the device does not share its memory with the host".to_owned())
}

/// Returns true for floating and complex dtypes. PyTorch multiplies integers without a library.
pub fn serves(matmul: &Matmul<'_>) -> bool {
    let dtypes = [DType::F16, DType::BF16, DType::F32, DType::F64, DType::C64, DType::C128];
    matmul.dtype().is_some_and(|dtype| dtypes.contains(&dtype)) && !matmul.overwrites_input()
}

/// Number of threads that PyTorch uses.
pub fn threads() -> i32 {
    ffi::host_threads()
}

/// Computes a matmul.
///
/// # Errors
/// Errors of the driver and of PyTorch.
pub fn matmul(matmul: &Matmul<'_>) -> Result<()> {
    let separate = matmul.bias.filter(|_| !matmul.adds_in_place());
    let mapped = Mapped::open([
        (&matmul.out, true),
        (&matmul.a, false),
        (&matmul.b, false),
        (separate.as_ref().unwrap_or(&Tensor::ABSENT), false),
    ])?;
    let [out, a, b, bias] = mapped.pointers();
    let bias = matmul.bias.map(|tensor| matrix(&tensor, if separate.is_some() { bias } else { out }));
    let (result, a, b) = (matrix(&matmul.out, out), matrix(&matmul.a, a), matrix(&matmul.b, b));
    let (alpha, beta) = (matmul.alpha, matmul.beta);
    // SAFETY: the tensors are mapped until the end of this function, the result for writing.
    let done = unsafe {
        match bias {
            None => ffi::host_matmul(result, a, b, alpha),
            Some(bias) => ffi::host_addmm(result, bias, a, b, alpha, beta),
        }
    };
    done.map_err(|error| {
        let dtype = matmul.out.dtype.name();
        Error::Invalid(format!("OpenCL: the matmul on the host failed for {dtype}: {}", error.what()))
    })?;
    mapped.close()
}

/// The tensor at its address in host memory.
fn matrix<'a>(tensor: &Tensor<'a>, pointer: *mut u8) -> Tensor<'a> {
    Tensor { address: pointer as usize, ..*tensor }
}
