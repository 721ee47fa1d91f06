//! The libraries that can compute matmuls.
//!
//! * `opencl`: our own kernels ([`crate::ops::matmul`]), which support every matmul.
//! * `host`: PyTorch's CPU matmul (MKL, oneDNN), on mapped memory if host and device share it.
//! * `cublas`: NVIDIA's library, for NVIDIA devices, on memory that OpenCL and CUDA share.
//!
//! The user's [`Preference`] selects one; with `auto` the choice is measured ([`auto`]). Matmuls that the selected
//! library does not support use `opencl`.

pub mod auto;
mod host;
mod mapped;
mod matmul;
mod preference;

#[cfg_attr(not(feature = "cublas"), path = "absent.rs")]
mod cublas;
#[cfg(feature = "cublas")]
mod cublas_lt;

use serde_json::Value;

use crate::error::{catch_panic, Error, Result};
use crate::ops;
use crate::ops::matmul::epilogue::Activation;
use crate::ops::matmul::has_int8_instructions;
use crate::ops::{Scalar, Tensor};
use crate::runtime::{current_stream, device, device_of_address, Device};

pub use matmul::{Matmul, MatmulSize};
pub use preference::{preference, set_preference, Preference};

#[cxx::bridge(namespace = "torch_opencl::bridge")]
mod ffi {
    unsafe extern "C++" {
        include!("torch_opencl/rust/abi.rs.h");
        include!("torch_opencl/rust/ops/matmul/epilogue.rs.h");
        type Activation = crate::ops::matmul::epilogue::Activation;
        type Scalar = crate::abi::Scalar;
        type Tensor<'a> = crate::abi::Tensor<'a>;
    }

    extern "Rust" {
        fn matmul(
            out: &Tensor,
            a: &Tensor,
            b: &Tensor,
            bias: &Tensor,
            alpha: Scalar,
            beta: Scalar,
            activation: Activation,
        ) -> Result<bool>;
        fn int8_product(out: &Tensor, a: &Tensor, b: &Tensor) -> Result<bool>;
        fn has_int8_instructions(out: &Tensor, k: i64) -> Result<bool>;
        fn preferred_blas_library() -> Result<String>;
        fn set_preferred_blas_library(name: &str) -> Result<()>;
        fn blas_choices_json(device: i32) -> String;
        fn blas_obstacles_json(device: i32) -> Result<String>;
    }
}

/// One of the libraries.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Library {
    /// Our own kernels.
    OpenCl,
    /// PyTorch's CPU matmul.
    Host,
    /// NVIDIA's library.
    Cublas,
}

impl Library {
    /// All libraries.
    pub const ALL: [Self; 3] = [Self::OpenCl, Self::Host, Self::Cublas];

    /// Its name in the user's interface.
    pub const fn name(self) -> &'static str {
        match self {
            Self::OpenCl => "opencl",
            Self::Host => "host",
            Self::Cublas => "cublas",
        }
    }

    /// The reason why the library cannot be used on a device, if there is one.
    pub fn obstacle(self, device: &Device) -> Option<String> {
        match self {
            Self::OpenCl => None,
            Self::Host => host::obstacle(device),
            Self::Cublas => cublas::obstacle(device),
        }
    }

    /// Checks that the library can be used on a device.
    ///
    /// # Errors
    /// [`Error::Invalid`] with the reason and a remedy.
    pub fn check(self, device: &Device) -> Result<()> {
        match self.obstacle(device) {
            None => Ok(()),
            Some(reason) => Err(Error::Invalid(format!(
                "OpenCL: the BLAS library '{}' cannot be used on '{}': {reason}. Choose another one: 'auto' and \
                 'opencl' are always there (torch.backends.opencl.preferred_blas_library, TORCH_OPENCL_BLAS).",
                self.name(),
                device.info.name
            ))),
        }
    }

    /// Returns true if the library supports this kind of matmul: dtype, strides, overlaps.
    pub fn serves(self, matmul: &Matmul<'_>) -> bool {
        match self {
            Self::OpenCl => true,
            Self::Host => host::serves(matmul),
            Self::Cublas => cublas::serves(matmul),
        }
    }

    /// Computes a matmul. Returns false, and computes nothing, if the library does not support it.
    ///
    /// # Errors
    /// Errors of the library, the allocator and the driver.
    pub fn run(self, matmul: &Matmul<'_>) -> Result<bool> {
        match self {
            Self::OpenCl => ours(matmul, Activation::None).map(|()| true),
            Self::Host => host::matmul(matmul).map(|()| true),
            Self::Cublas => catch_panic("the BLAS library 'cublas'", || cublas::matmul(matmul)),
        }
    }
}

/// A matmul with our own kernels.
fn ours(matmul: &Matmul<'_>, activation: Activation) -> Result<()> {
    let Matmul { out, a, b, bias, alpha, beta } = matmul;
    ops::matmul::matmul(out, a, b, bias.as_ref().unwrap_or(&Tensor::ABSENT), *alpha, *beta, activation)
}

/// `out = activation(alpha * a @ b + beta * bias)` for matrices, or batches of them, with the preferred library.
/// Returns true if the activation has been applied: our own kernels apply it, other libraries leave it to the caller.
///
/// # Errors
/// [`Error::Invalid`] if shapes do not match or the preferred library cannot be used on the device; otherwise errors of
/// the library, the allocator and the driver.
pub fn matmul(
    out: &Tensor<'_>,
    a: &Tensor<'_>,
    b: &Tensor<'_>,
    bias: &Tensor<'_>,
    alpha: Scalar,
    beta: Scalar,
    activation: Activation,
) -> Result<bool> {
    let bias = Some(*bias).filter(Tensor::is_present);
    let matmul = Matmul { out: *out, a: *a, b: *b, bias, alpha, beta };
    let library = library(&matmul)?;
    if library != Library::OpenCl && library.run(&matmul)? {
        return Ok(activation == Activation::None);
    }
    ours(&matmul, activation)?;
    Ok(true)
}

/// `out = a @ b` for int8 matrices and a contiguous int32 result, with exact sums modulo 2^32. Returns false, and computes
/// nothing, if the device has no instructions for operands of this size and layout. With `auto`, cuBLAS computes large
/// products that it supports, without a measurement.
///
/// # Errors
/// Errors of the library, the allocator and the driver.
fn int8_product(out: &Tensor<'_>, a: &Tensor<'_>, b: &Tensor<'_>) -> Result<bool> {
    let alpha = Scalar { real: 1.0, imag: 0.0, integer: 1 };
    let matmul = Matmul { out: *out, a: *a, b: *b, bias: None, alpha, beta: Scalar::default() };
    let device = device_of_address(out.address)?;
    let is_usable = || Library::Cublas.obstacle(device).is_none() && Library::Cublas.serves(&matmul);
    let is_done = match preference()? {
        _ if is_captured(device)? => false,
        Preference::Only(Library::Cublas) => is_usable() && Library::Cublas.run(&matmul)?,
        // A library that fails is not chosen.
        Preference::Auto => {
            auto::is_worth(&matmul.size()) && is_usable() && Library::Cublas.run(&matmul).unwrap_or(false)
        }
        Preference::Only(_) => false,
    };
    Ok(is_done || ops::matmul::int8_product(out, a, b)?)
}

/// Returns true while a graph is captured, which holds only our own kernels.
fn is_captured(device: &Device) -> Result<bool> {
    Ok(current_stream(device.index)?.capture().is_some())
}

/// The library for a matmul.
fn library(matmul: &Matmul<'_>) -> Result<Library> {
    let preference = preference()?;
    if preference == Preference::Only(Library::OpenCl) || matmul.size().volume() == 0 {
        return Ok(Library::OpenCl);
    }
    if is_captured(device_of_address(matmul.out.address)?)? {
        return Ok(Library::OpenCl);
    }
    match preference {
        Preference::Auto => auto::library(matmul),
        Preference::Only(library) => {
            library.check(device_of_address(matmul.out.address)?)?;
            Ok(if library.serves(matmul) { library } else { Library::OpenCl })
        }
    }
}

/// "auto" or the name of a library.
fn preferred_blas_library() -> Result<String> {
    preference().map(|preference| preference.name().to_owned())
}

fn set_preferred_blas_library(name: &str) -> Result<()> {
    set_preference(name)
}

/// The choices of `auto` so far on a device: {class of matmuls: library}.
fn blas_choices_json(device: i32) -> String {
    let choices = auto::choices(device).into_iter();
    choices.map(|(class, library)| (class, Value::from(library.name()))).collect::<Value>().to_string()
}

/// The reasons why libraries cannot be used on a device: {library: reason}.
fn blas_obstacles_json(index: i32) -> Result<String> {
    let device = device(index)?;
    let found = Library::ALL.into_iter().filter_map(|library| Some((library.name(), library.obstacle(device)?)));
    Ok(found.map(|(name, reason)| (name.to_owned(), Value::from(reason))).collect::<Value>().to_string())
}
