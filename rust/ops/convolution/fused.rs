//! Convolutions fused with the element-wise operations that follow them in a graph, in the GEMM's kernel.

use super::{compute, is_gemm, ConvDirection, ConvParameters};
use crate::error::Result;
use crate::ops::matmul::fused::FusedOperands;
use crate::ops::{Target, Tensor};

#[cxx::bridge(namespace = "torch_opencl::bridge")]
mod ffi {
    unsafe extern "C++" {
        include!("torch_opencl/rust/abi.rs.h");
        include!("torch_opencl/rust/ops/convolution/mod.rs.h");
        include!("torch_opencl/rust/ops/matmul/fused.rs.h");
        type Tensor<'a> = crate::abi::Tensor<'a>;
        type ConvParameters<'a> = crate::ops::convolution::ConvParameters<'a>;
        type FusedOperands<'a> = crate::ops::matmul::fused::FusedOperands<'a>;
    }

    extern "Rust" {
        fn fused_convolution(
            out: &Tensor,
            input: &Tensor,
            weight: &Tensor,
            bias: &Tensor,
            parameters: &ConvParameters,
            fused: &FusedOperands,
        ) -> Result<()>;
        fn convolution_is_gemm(out_channels: i64, in_channels: i64) -> bool;
    }
}

/// Returns true if convolutions with so many channels in a group are computed by a GEMM on GPUs, whose kernel can apply
/// a fused epilogue.
fn convolution_is_gemm(out_channels: i64, in_channels: i64) -> bool {
    out_channels > 0 && in_channels > 0 && is_gemm(out_channels, in_channels)
}

/// Computes a convolution and applies its fused epilogue. `out` gives the dense layout of the convolution's result, and
/// any memory of the same device.
///
/// # Errors
/// [`crate::error::Error::Invalid`] for an unknown epilogue id and for channels that do not match; otherwise as the
/// compiler, the allocator and the driver report.
fn fused_convolution(
    out: &Tensor<'_>,
    input: &Tensor<'_>,
    weight: &Tensor<'_>,
    bias: &Tensor<'_>,
    parameters: &ConvParameters<'_>,
    fused: &FusedOperands<'_>,
) -> Result<()> {
    let target = Target::of(out.address)?;
    fused.with(&target, |fused| {
        compute(&target, [out, input, weight, bias], parameters, ConvDirection::Forward, Some(fused))
    })
}
