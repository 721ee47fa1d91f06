// Attention with few elements on a device that is the CPU: by ATen's fused operator for the CPU where that takes the
// arguments, else composed of matmuls.
#pragma once

#include <optional>

#include "scaled_dot_product.h"

namespace torch_opencl::native {

// Memory for the gradient of a tensor, laid out as the tensor is where its rows are dense.
at::Tensor attention_gradient_like(const at::Tensor& tensor);

// `FusedAttention::forward`, or nothing where the host may not compute it now. Results are laid out as those of
// kernels: compiled graphs count on it.
std::optional<Tensors2> attention_on_host(const FusedAttention& call);

// The same of `FusedAttention::backward`.
std::optional<Tensors4> attention_backward_on_host(
    const FusedAttention& call,
    const at::Tensor& grad_out,
    const at::Tensor& out,
    const at::Tensor& logsumexp,
    bool wants_bias);

} // namespace torch_opencl::native
