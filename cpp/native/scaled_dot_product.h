// Scaled dot-product attention by our kernels, for the operators under whose names PyTorch asks for it.
#pragma once

#include "entries/attention.h"
#include "native/norm.h"
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

// One call. Tensors are [batch, heads, length, head_dim] or lack the batch; query heads share key heads in equal
// groups. The bias, which is added to the scores, may be undefined.
struct FusedAttention {
  at::Tensor query, key, value, bias;
  AttentionOptions options;

  bool is_empty() const {
    return query.numel() == 0 || key.numel() == 0 || value.numel() == 0;
  }

  // Takes random numbers for dropout.
  void draw() {
    if (options.dropout_p > 0) options.stream = attention_stream(query, attention_counters(query, key));
  }

  // Output, and logsumexp [batch, heads, queries].
  Tensors2 forward() const;
  // Gradients of query, key, value and bias, that of the bias undefined unless it is requested.
  Tensors4 backward(
      const at::Tensor& grad_out, const at::Tensor& out, const at::Tensor& logsumexp, bool wants_bias) const;
};

} // namespace torch_opencl::native
