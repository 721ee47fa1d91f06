//! Structs that several kernel families take from C++, declared once: cxx generates the C++ struct for each, and
//! launchers take them unchanged. Structs of one family are in that family's file (docs/decisions/006).
//!
//! C++ knows ATen and not OpenCL; Rust knows OpenCL and not ATen. Only plain data crosses: an address, a dtype, slices
//! of sizes and strides. Every function returns a `Result` whose error string starts with its kind (see `error.rs`);
//! code that C++ calls must not panic, as a panic across the bridge ends the process.

use crate::error::Error;
use crate::kernels::DType;

#[cxx::bridge(namespace = "torch_opencl::bridge")]
mod ffi {
    /// A borrowed description of a strided tensor in device memory.
    #[derive(Clone, Copy, Debug)]
    pub struct Tensor<'a> {
        /// Address of the first element; 0 for an absent optional tensor or one without elements.
        pub address: usize,
        /// Storage dtype; not read for an absent tensor.
        pub dtype: DType,
        /// Sizes, outermost dimension first, as in Python.
        pub sizes: &'a [i64],
        /// Strides in elements.
        pub strides: &'a [i64],
    }

    /// One operand of an iteration (`at::TensorIterator`).
    #[derive(Clone, Copy, Debug)]
    pub struct Operand<'a> {
        /// Address of its first element; 0 for a scalar from the host.
        pub address: usize,
        /// Storage dtype.
        pub dtype: DType,
        /// Strides in bytes, innermost dimension first; 0 repeats an element.
        pub strides: &'a [i64],
        /// The scalar, if `address` is 0.
        pub value: Scalar,
    }

    /// A scalar in every form that a compute class may need.
    #[derive(Clone, Copy, Debug, Default, PartialEq)]
    pub struct Scalar {
        /// As a real value, or the real part.
        pub real: f64,
        /// Imaginary part.
        pub imag: f64,
        /// As an exact integer; from 2^63, the bits of a uint64.
        pub integer: i64,
    }

    /// The tensors of one operand of an operation on lists: dense; the n-th tensors of all operands have the same
    /// layout.
    #[derive(Clone, Copy, Debug)]
    pub struct TensorList<'a> {
        /// Addresses of their first elements.
        pub addresses: &'a [usize],
        /// Their dtype.
        pub dtype: DType,
        /// True for one scalar in device memory, used for all tensors.
        pub is_one: bool,
    }

    /// The part of a generator's stream that a launch reads.
    #[derive(Clone, Copy, Debug)]
    pub struct RandomStream {
        /// Seed of the generator: the key of Philox.
        pub seed: u64,
        /// First counter value of the launch.
        pub offset: u64,
    }

    unsafe extern "C++" {
        include!("runtime/dtype.h");
        type DType = crate::kernels::DType;
    }

    extern "Rust" {
        fn known_dtypes() -> u64;
        fn refuse_dtype(code: i32) -> Result<()>;
    }
}

pub use ffi::{Operand, RandomStream, Scalar, Tensor, TensorList};

/// The dtype of an absent tensor, whose struct C++ leaves empty.
const _: () = assert!(DType::U8 as i32 == 0);

// SAFETY: `cpp/runtime/dtype.h` declares an enum of this name with the same underlying type. C++ creates its values
// from codes in `known_dtypes`, and from 0, the code of `U8`.
unsafe impl cxx::ExternType for DType {
    type Id = cxx::type_id!("torch_opencl::bridge::DType");
    type Kind = cxx::kind::Trivial;
}

/// The codes of `c10::ScalarType` that are a [`DType`], one bit each.
fn known_dtypes() -> u64 {
    DType::ALL.iter().fold(0, |codes, dtype| codes | 1 << dtype.code())
}

/// The error for any other code.
fn refuse_dtype(code: i32) -> crate::error::Result<()> {
    Err(Error::Unsupported(format!("OpenCL: no kernel supports tensors of {}", DType::unsupported_name(code))))
}
