//! PyTorch's own product on the CPU, on the device's memory.
//!
//! Where host and device share memory nothing is copied: the operands are mapped, and PyTorch sees them with their
//! strides, so a transposed operand is not copied either. Mapping waits for the stream, and the product is done when
//! the call returns.

use tch::{Device, Kind, TchError, Tensor as HostTensor};

use super::mapped::Mapped;
use super::Product;
use crate::cl::DeviceInfo;
use crate::error::{Error, Result};
use crate::kernels::DType;
use crate::ops::Tensor;

/// Why it cannot be used on a device.
pub fn obstacle(info: &DeviceInfo) -> Option<String> {
    (!info.host_unified).then(|| "the device does not share its memory with the host".to_owned())
}

/// Floating dtypes. Integers PyTorch multiplies without a library, complex factors `tch` does not pass on.
pub fn serves(product: &Product<'_>) -> bool {
    product.dtype().and_then(kind).is_some() && !product.overwrites_input()
}

/// Threads that PyTorch computes with.
pub fn threads() -> i32 {
    tch::get_num_threads()
}

const fn kind(dtype: DType) -> Option<Kind> {
    Some(match dtype {
        DType::F16 => Kind::Half,
        DType::BF16 => Kind::BFloat16,
        DType::F32 => Kind::Float,
        DType::F64 => Kind::Double,
        _ => return None,
    })
}

/// Computes a product.
///
/// # Errors
/// As the driver and PyTorch report.
pub fn matmul(product: &Product<'_>) -> Result<()> {
    let separate = product.addend.filter(|_| !product.adds_in_place());
    let mapped = Mapped::open([
        (&product.out, true),
        (&product.a, false),
        (&product.b, false),
        (separate.as_ref().unwrap_or(&Tensor::ABSENT), false),
    ])?;
    let [out, a, b, addend] = mapped.pointers();
    let addend = product.addend.map(|tensor| (tensor, if separate.is_some() { addend } else { out }));
    // SAFETY: the tensors are mapped until the end of this function, the result for writing.
    unsafe {
        let (result, first, second) = (view(&product.out, out)?, view(&product.a, a)?, view(&product.b, b)?);
        let addend = addend.map(|(tensor, pointer)| view(&tensor, pointer)).transpose()?;
        product_of(product, &result, &first, &second, addend.as_ref()).map_err(|error| failed(&error))?;
    }
    mapped.close()
}

/// The variants that write their result, except for factors other than 1, which `tch` passes on only to the one that
/// allocates it. No gradient is recorded: none of these tensors asks for one.
fn product_of(
    product: &Product<'_>,
    out: &HostTensor,
    a: &HostTensor,
    b: &HostTensor,
    addend: Option<&HostTensor>,
) -> std::result::Result<(), TchError> {
    let is_batch = product.out.ndim() > 2;
    let (alpha, beta) = (product.alpha.real, product.beta.real);
    let _same_as_out = match addend {
        None if alpha == 1.0 && is_batch => a.f_bmm_out(out, b)?,
        None if alpha == 1.0 => a.f_mm_out(out, b)?,
        Some(addend) if alpha == 1.0 && beta == 1.0 && is_batch => addend.f_baddbmm_out(out, a, b)?,
        Some(addend) if alpha == 1.0 && beta == 1.0 => addend.f_addmm_out(out, a, b)?,
        _ => {
            let beta = if addend.is_some() { beta } else { 0.0 };
            let batch = |matrix: &HostTensor| if is_batch { Ok(matrix.shallow_clone()) } else { matrix.f_unsqueeze(0) };
            let sum = batch(addend.unwrap_or(out))?.f_baddbmm(&batch(a)?, &batch(b)?, beta, alpha)?;
            batch(out)?.f_copy_(&sum)?;
            sum
        }
    };
    Ok(())
}

/// PyTorch's tensor over mapped memory.
///
/// # Safety
/// The memory of the tensor is mapped at `pointer` for as long as the view lives.
unsafe fn view(tensor: &Tensor<'_>, pointer: *const u8) -> Result<HostTensor> {
    let kind = kind(tensor.dtype)
        .ok_or_else(|| Error::Unsupported(format!("OpenCL: the host product has no {}", tensor.dtype.name())))?;
    // SAFETY: promised by the caller.
    unsafe { HostTensor::f_from_blob(pointer, tensor.sizes, tensor.strides, kind, Device::Cpu) }
        .map_err(|error| failed(&error))
}

fn failed(error: &TchError) -> Error {
    Error::Invalid(format!("OpenCL: the matrix product on the host failed: {error}"))
}
