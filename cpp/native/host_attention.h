// Small attention calls on CPU devices: run ATen's fused operator for the CPU if it takes the arguments.
#pragma once

#include <optional>

#include "native/scaled_dot_product.h"

namespace torch_opencl::native {

// Memory for the gradient of a tensor, laid out like the tensor if its rows are dense.
at::Tensor attention_gradient_like(const at::Tensor& tensor);

// `FusedAttention::forward`, or nothing if the host may not compute it now. Results are laid out as those of kernels:
// compiled graphs rely on it.
std::optional<Tensors2> attention_on_host(const FusedAttention& call);

// `FusedAttention::backward` without the gradient of the bias, or nothing if the host may not compute it now.
std::optional<Tensors4> attention_backward_on_host(
    const FusedAttention& call, const at::Tensor& grad_out, const at::Tensor& out, const at::Tensor& logsumexp);

} // namespace torch_opencl::native
