// The parts of PyTorch's fused inference path of transformers.
#pragma once

#include <ATen/core/Tensor.h>
#include <tuple>

namespace torch_opencl::native {

// Query (over the root of the size of a head), key and value from their joint projection [batch, length, 3 * size] and
// its bias: [batch, heads, length, size / heads] each.
std::tuple<at::Tensor, at::Tensor, at::Tensor> transform_bias_rescale_qkv(
    const at::Tensor& qkv, const at::Tensor& qkv_bias, int64_t num_heads);

// Softmax of what the mask leaves. The type of the mask says what it is for: 0 [length, length] for all heads, 1
// [batch, length] for all queries, 2 of the sizes of `self`.
at::Tensor masked_softmax(
    const at::Tensor& self, const at::Tensor& mask, std::optional<int64_t> dim, std::optional<int64_t> mask_type);

} // namespace torch_opencl::native
