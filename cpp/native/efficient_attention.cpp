// Memory-efficient attention, under the names by which libraries call PyTorch's implementation for CUDA.
#include <ATen/ExpandUtils.h>

#include "fused_attention.h"

namespace torch_opencl::native {
namespace {

// Seed and offset of dropout as scalars on the host.
Tensors2 scalars(const bridge::RandomStream& stream) {
  return {
      at::scalar_to_tensor(static_cast<int64_t>(stream.seed)),
      at::scalar_to_tensor(static_cast<int64_t>(stream.offset))};
}

bridge::RandomStream stream_of(const at::Tensor& seed, const at::Tensor& offset, double dropout_p) {
  if (dropout_p == 0) return {0, 0};
  return {static_cast<uint64_t>(seed.item<int64_t>()), static_cast<uint64_t>(offset.item<int64_t>())};
}

// logsumexp [batch, heads, queries] as memory-efficient attention returns it, with room for a multiple of 32 queries.
at::Tensor padded(const at::Tensor& logsumexp, bool is_wanted) {
  constexpr int64_t kAlignment = 32;
  const int64_t queries = logsumexp.size(2), room = (queries + kAlignment - 1) / kAlignment * kAlignment;
  if (!is_wanted) return logsumexp.new_empty({logsumexp.size(0), logsumexp.size(1), 0});
  if (room == queries) return logsumexp;
  at::Tensor result = at::full(
      {logsumexp.size(0), logsumexp.size(1), room}, std::numeric_limits<double>::infinity(), logsumexp.options());
  result.narrow(2, 0, queries).copy_(logsumexp);
  return result;
}

} // namespace

// Tensors are [batch, length, heads, head_dim]; sequences behind one another in a batch of one are not supported, as
// flash attention takes them.
std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor, c10::SymInt, c10::SymInt> efficient_attention_forward(
    const at::Tensor& query,
    const at::Tensor& key,
    const at::Tensor& value,
    const std::optional<at::Tensor>& bias,
    const std::optional<at::Tensor>& cu_seqlens_q,
    const std::optional<at::Tensor>& cu_seqlens_k,
    std::optional<int64_t>,
    std::optional<int64_t>,
    double dropout_p,
    int64_t custom_mask_type,
    bool compute_log_sumexp,
    std::optional<double> scale,
    const std::optional<at::Tensor>& seqlen_k,
    std::optional<int64_t> window_size) {
  constexpr const char* op = "_efficient_attention_forward";
  TORCH_CHECK(query.dim() == 4, op, ": expected queries [batch, length, heads, head_dim], but got ", query.sizes());
  TORCH_CHECK(
      !cu_seqlens_q.has_value() && !cu_seqlens_k.has_value() && !seqlen_k.has_value(), op,
      ": cu_seqlens_q, cu_seqlens_k and seqlen_k are not supported");
  Call call{
      query.transpose(1, 2),
      key.transpose(1, 2),
      value.transpose(1, 2),
      bias.value_or(at::Tensor()),
      {dropout_p, false, scale}};
  if (dropout_p > 0) call.options.stream = attention_stream(query, attention_counters(call.query, call.key));
  call.restrict_to(Band::of_mask(custom_mask_type, window_size, query.size(1), key.size(1)));
  const auto [out, logsumexp] = call.forward();
  auto [seed, offset] = scalars(call.options.stream);
  return {out.transpose(1, 2), padded(logsumexp, compute_log_sumexp), std::move(seed), std::move(offset), query.size(1),
          key.size(1)};
}

Tensors4 efficient_attention_backward(
    const at::Tensor& grad_out,
    const at::Tensor& query,
    const at::Tensor& key,
    const at::Tensor& value,
    const std::optional<at::Tensor>& bias,
    const at::Tensor& out,
    const std::optional<at::Tensor>& cu_seqlens_q,
    const std::optional<at::Tensor>& cu_seqlens_k,
    int64_t,
    int64_t,
    const at::Tensor& logsumexp,
    double dropout_p,
    const at::Tensor& philox_seed,
    const at::Tensor& philox_offset,
    int64_t custom_mask_type,
    bool bias_requires_grad,
    std::optional<double> scale,
    std::optional<int64_t>,
    std::optional<int64_t> window_size,
    bool) {
  if (!grad_out.defined()) return {};
  constexpr const char* op = "_efficient_attention_backward";
  TORCH_CHECK(
      !cu_seqlens_q.has_value() && !cu_seqlens_k.has_value(), op, ": cu_seqlens_q and cu_seqlens_k are not supported");
  Call call{
      query.transpose(1, 2),
      key.transpose(1, 2),
      value.transpose(1, 2),
      bias.value_or(at::Tensor()),
      {dropout_p, false, scale, stream_of(philox_seed, philox_offset, dropout_p)}};
  const bool wants_bias = bias_requires_grad && call.bias.defined();
  call.restrict_to(Band::of_mask(custom_mask_type, window_size, query.size(1), key.size(1)));
  TORCH_CHECK(
      logsumexp.dim() == 3 && logsumexp.size(2) >= query.size(1), op, ": logsumexp of shape ", logsumexp.sizes(),
      " does not belong to queries of shape ", query.sizes());
  const auto [grad_query, grad_key, grad_value, grad_bias] =
      call.backward(grad_out.transpose(1, 2), out.transpose(1, 2), logsumexp.narrow(2, 0, query.size(1)), wants_bias);
  return {
      grad_query.transpose(1, 2), grad_key.transpose(1, 2), grad_value.transpose(1, 2),
      wants_bias ? at::sum_to(grad_bias, bias->sizes()) : at::Tensor()};
}

// Tensors are [batch, heads, length, head_dim].
std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor> scaled_dot_product_efficient_attention(
    const at::Tensor& query,
    const at::Tensor& key,
    const at::Tensor& value,
    const std::optional<at::Tensor>& attn_bias,
    bool compute_log_sumexp,
    double dropout_p,
    bool is_causal,
    std::optional<double> scale) {
  const auto [out, logsumexp, seed, offset, queries, keys] = native::efficient_attention_forward(
      query.transpose(1, 2), key.transpose(1, 2), value.transpose(1, 2), attn_bias, {}, {}, {}, {}, dropout_p,
      is_causal ? 1 : 0, compute_log_sumexp, scale, {}, {});
  return {out.transpose(1, 2), logsumexp, seed, offset};
}

Tensors4 scaled_dot_product_efficient_attention_backward(
    const at::Tensor& grad_out,
    const at::Tensor& query,
    const at::Tensor& key,
    const at::Tensor& value,
    const at::Tensor& attn_bias,
    const at::Tensor& out,
    const at::Tensor& logsumexp,
    const at::Tensor& philox_seed,
    const at::Tensor& philox_offset,
    double dropout_p,
    std::array<bool, 4> grad_input_mask,
    bool is_causal,
    std::optional<double> scale) {
  if (!grad_out.defined()) return {};
  const auto [grad_query, grad_key, grad_value, grad_bias] = native::efficient_attention_backward(
      grad_out.transpose(1, 2), query.transpose(1, 2), key.transpose(1, 2), value.transpose(1, 2),
      attn_bias.defined() ? std::make_optional(attn_bias) : std::nullopt, out.transpose(1, 2), {}, {}, query.size(2),
      key.size(2), logsumexp, dropout_p, philox_seed, philox_offset, is_causal ? 1 : 0, grad_input_mask[3], scale, {},
      {}, false);
  return {grad_query.transpose(1, 2), grad_key.transpose(1, 2), grad_value.transpose(1, 2), grad_bias};
}

} // namespace torch_opencl::native
