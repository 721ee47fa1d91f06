// Scaled dot-product attention without the matrix of weights, behind PyTorch's hooks for backends out of its tree.
#pragma once

#include <ATen/core/Tensor.h>
#include <array>
#include <tuple>

namespace torch_opencl::native {

// What serves torch.nn.functional.scaled_dot_product_attention, as a number of at::SDPBackend: `overrideable` is the
// operator below, taken where one of PyTorch's fused implementations is enabled and the arguments fit it; `math` is
// composed of other operators; `error` says that the user has left none.
int64_t fused_sdp_choice(
    const at::Tensor& query,
    const at::Tensor& key,
    const at::Tensor& value,
    const std::optional<at::Tensor>& attn_mask,
    double dropout_p,
    bool is_causal,
    std::optional<double> scale,
    bool enable_gqa);

// Output, logarithm of the sums of weights [batch, heads, queries], two sequence bounds that stay undefined, lengths
// of queries and keys, seed and offset of the random numbers (numbers on the host, undefined without dropout), and an
// undefined debugging mask. Tensors are [batch, heads, length, width] or lack the batch; query heads share key heads
// in equal groups.
std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor, int64_t, int64_t, at::Tensor, at::Tensor, at::Tensor>
scaled_dot_product_attention(
    const at::Tensor& query,
    const at::Tensor& key,
    const at::Tensor& value,
    const std::optional<at::Tensor>& attn_bias,
    double dropout_p,
    bool is_causal,
    bool return_debug_mask,
    std::optional<double> scale);

// Gradients of query, key, value and bias, that of the bias undefined unless it is asked for.
std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor> scaled_dot_product_attention_backward(
    const at::Tensor& grad_out,
    const at::Tensor& query,
    const at::Tensor& key,
    const at::Tensor& value,
    const at::Tensor& attn_bias,
    std::array<bool, 4> grad_input_mask,
    const at::Tensor& out,
    const at::Tensor& logsumexp,
    const at::Tensor& cum_seq_q,
    const at::Tensor& cum_seq_k,
    int64_t max_q,
    int64_t max_k,
    double dropout_p,
    bool is_causal,
    const at::Tensor& philox_seed,
    const at::Tensor& philox_offset,
    std::optional<double> scale);

} // namespace torch_opencl::native
