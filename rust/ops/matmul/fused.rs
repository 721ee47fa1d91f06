//! Matmuls whose results go on into element-wise operations of a graph, in the matmul's own kernel.

use super::compute;
use super::epilogue::{Activation, Epilogue};
use super::fused_text::{Fused, FusedText};
use crate::cl::Arg;
use crate::error::Result;
use crate::ops::Target;

#[cxx::bridge(namespace = "torch_opencl::bridge")]
mod ffi {
    unsafe extern "C++" {
        include!("torch_opencl/rust/abi.rs.h");
        type Tensor<'a> = crate::abi::Tensor<'a>;
        type Scalar = crate::abi::Scalar;
    }

    /// A matmul, and the memory that a text behind it reads and writes.
    #[derive(Debug)]
    pub struct FusedMatmul<'a> {
        /// The shape of the result, densely; some memory of the same device.
        pub out: Tensor<'a>,
        /// Operand A.
        pub a: Tensor<'a>,
        /// Operand B.
        pub b: Tensor<'a>,
        /// Added to the matmul, in the shape of `out`, if it is there.
        pub bias: Tensor<'a>,
        /// Scale of the matmul.
        pub alpha: Scalar,
        /// Scale of `bias`.
        pub beta: Scalar,
        /// The text's number.
        pub text: i64,
        /// Its buffers: addresses.
        pub buffers: &'a [usize],
        /// Its scalars: 64 bits each.
        pub scalars: &'a [i64],
    }

    extern "Rust" {
        fn fused_text(code: &str, reports_faults: bool) -> i64;
        fn fused_matmul(matmul: &FusedMatmul) -> Result<()>;
    }
}

use ffi::FusedMatmul;

fn fused_text(code: &str, reports_faults: bool) -> i64 {
    FusedText::register(code, reports_faults)
}

/// Computes a matmul and what its text makes of the result.
///
/// # Errors
/// [`crate::error::Error::Invalid`] for a number that is none and for shapes that do not fit; otherwise as the compiler, the allocator
/// and the driver report.
fn fused_matmul(matmul: &FusedMatmul<'_>) -> Result<()> {
    let FusedMatmul { out, a, b, bias, alpha, beta, text, buffers, scalars } = matmul;
    let text = FusedText::numbered(*text)?;
    let target = Target::of(out.address)?;
    let memories = buffers.iter().map(|address| target.memory(*address)).collect::<Result<Vec<_>>>()?;
    let offsets = memories.iter().map(|memory| memory.offset);
    let mut values: Vec<u64> = offsets.chain(scalars.iter().map(|scalar| *scalar as u64)).collect();
    if values.is_empty() {
        // A struct has one member at least.
        values.push(0);
    }
    let mut arguments: Vec<Arg<'_>> = memories.iter().map(|memory| Arg::Buffer(memory.handle)).collect();
    arguments.push(Arg::Bytes(bytemuck::cast_slice(&values)));
    if text.reports_faults {
        arguments.push(Arg::Buffer(target.faults()?.handle));
    }
    let fused = Some(Fused { text: &text, arguments: &arguments });
    let (alpha, beta) = (*alpha, *beta);
    compute(&target, [out, a, b, bias], |out, bias| Epilogue {
        alpha,
        beta,
        bias,
        activation: Activation::None,
        out,
        fused,
    })
}
