// The matmul that every operator ends in.
#pragma once

#include "entries/matmul.h"
#include "torch_opencl/rust/blas/mod.rs.h"

namespace torch_opencl::native {

// out = activation(alpha * a @ b + beta * bias), in the dtype of `out`, which a and b may differ from but not among
// themselves; operands multiplied by zero are not read, as in BLAS, so that their NaNs do not count.
void multiply(
    const at::Tensor& out,
    const at::Tensor& a,
    const at::Tensor& b,
    const at::Tensor& bias,
    const at::Scalar& beta,
    const at::Scalar& alpha,
    bridge::Activation activation = bridge::Activation::None);

} // namespace torch_opencl::native
