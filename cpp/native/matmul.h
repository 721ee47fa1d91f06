// The matmul that all matmul operators call.
#pragma once

#include "entries/matmul.h"
#include "torch_opencl/rust/blas/mod.rs.h"

namespace torch_opencl::native {

// out = activation(alpha * a @ b + beta * bias). a and b have one dtype, which may differ from that of `out`. As in
// BLAS, operands multiplied by zero are not read, so their NaNs are ignored.
void multiply(
    const at::Tensor& out,
    const at::Tensor& a,
    const at::Tensor& b,
    const at::Tensor& bias,
    const at::Scalar& beta,
    const at::Scalar& alpha,
    bridge::Activation activation = bridge::Activation::None);

} // namespace torch_opencl::native
