// Scaled dot-product attention by our kernels, for the operators under whose names PyTorch asks for it.
#pragma once

#include "norm.h"
#include "torch_opencl/rust/ops/attention/mod.rs.h"

namespace torch_opencl::native {

using Tensors4 = std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor>;

struct AttentionOptions {
  double dropout_p;
  bool is_causal;                    // query i sees keys 0 to i only
  std::optional<double> scale;       // of the scores: 1 / sqrt(head_dim) unless it is given
  bridge::RandomStream stream{0, 0}; // of dropout
};

// Random counters that dropout takes, and the part of the default generator's stream that has so many.
uint64_t attention_counters(const at::Tensor& query, const at::Tensor& key);
bridge::RandomStream attention_stream(const at::Tensor& query, uint64_t counters);

// Output, and logsumexp [batch, heads, queries]. Tensors are [batch, heads, length, head_dim] or lack the batch; query
// heads share key heads in equal groups. The bias, which is added to the scores, may be undefined.
Tensors2 fused_attention(
    const at::Tensor& query,
    const at::Tensor& key,
    const at::Tensor& value,
    const at::Tensor& attn_bias,
    const AttentionOptions& options);

// Gradients of query, key, value and bias, that of the bias undefined unless it is asked for.
Tensors4 fused_attention_backward(
    const at::Tensor& grad_out,
    const at::Tensor& query,
    const at::Tensor& key,
    const at::Tensor& value,
    const at::Tensor& attn_bias,
    bool wants_bias,
    const at::Tensor& out,
    const at::Tensor& logsumexp,
    const AttentionOptions& options);

} // namespace torch_opencl::native
