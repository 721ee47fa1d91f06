// Memory-efficient attention, under the names by which libraries call PyTorch's implementation for CUDA.
#include <ATen/ExpandUtils.h>

#include "native/fused_attention.h"

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

// The operators take and return lengths before heads.
at::Tensor swapped(const at::Tensor& tensor) {
  return tensor.transpose(1, 2);
}

// Output, logsumexp, seed and offset.
Tensors4 forward(FusedAttention call, int64_t mask_type, std::optional<int64_t> window, bool compute_log_sumexp) {
  call.draw();
  const Band band = Band::of_mask(mask_type, window, call.query.size(-2), call.key.size(-2));
  const auto [out, logsumexp] = restricted(call, band).forward();
  auto [seed, offset] = scalars(call.options.stream);
  return {out, padded(logsumexp, compute_log_sumexp), std::move(seed), std::move(offset)};
}

// Takes the arguments that all backward operators share. The gradient of the bias has the bias's sizes.
template <class Op>
Tensors4 backward(
    const Arguments<Op>& args,
    FusedAttention call,
    int64_t mask_type,
    std::optional<int64_t> window,
    const at::Tensor& grad_out,
    const at::Tensor& out,
    bool wants_bias) {
  const at::Tensor bias = call.bias, &logsumexp = args.logsumexp;
  const int64_t queries = call.query.size(-2);
  TORCH_CHECK(
      logsumexp.dim() == 3 && logsumexp.size(2) >= queries, "memory-efficient attention: logsumexp of shape ",
      logsumexp.sizes(), " does not match queries of shape ", args.query.sizes());
  call.options.stream = stream_of(args.philox_seed, args.philox_offset, args.dropout_p);
  const Band band = Band::of_mask(mask_type, window, queries, call.key.size(-2));
  auto grads = restricted(call, band).backward(grad_out, out, logsumexp.narrow(2, 0, queries), wants_bias);
  if (wants_bias) std::get<3>(grads) = at::sum_to(std::get<3>(grads), bias.sizes());
  return grads;
}

void check_dims(const at::Tensor& query) {
  TORCH_CHECK(
      query.dim() == 4, "memory-efficient attention: expected queries of 4 dimensions, but got shape ", query.sizes());
}

} // namespace

// Tensors are [batch, length, heads, head_dim]. Unlike in flash attention, concatenated sequences in a batch of one are
// not supported.
Returns<at::_ops::_efficient_attention_forward> efficient_attention_forward(
    const Arguments<at::_ops::_efficient_attention_forward>& args) {
  check_dims(args.query);
  TORCH_CHECK(
      !args.cu_seqlens_q.has_value() && !args.cu_seqlens_k.has_value() && !args.seqlen_k.has_value(),
      "_efficient_attention_forward: cu_seqlens_q, cu_seqlens_k and seqlen_k are not supported");
  auto [out, logsumexp, seed, offset] = forward(
      {swapped(args.query),
       swapped(args.key),
       swapped(args.value),
       args.bias.value_or(at::Tensor()),
       {args.dropout_p, false, args.scale}},
      args.custom_mask_type, args.window_size, args.compute_log_sumexp);
  return {swapped(out), std::move(logsumexp), std::move(seed), std::move(offset), args.query.size(1), args.key.size(1)};
}

Tensors4 efficient_attention_backward(const Arguments<at::_ops::_efficient_attention_backward>& args) {
  if (!args.grad_out_.defined()) return {};
  TORCH_CHECK(
      !args.cu_seqlens_q.has_value() && !args.cu_seqlens_k.has_value(),
      "_efficient_attention_backward: cu_seqlens_q and cu_seqlens_k are not supported");
  const at::Tensor bias = args.bias.value_or(at::Tensor());
  const auto [grad_query, grad_key, grad_value, grad_bias] = backward(
      args, {swapped(args.query), swapped(args.key), swapped(args.value), bias, {args.dropout_p, false, args.scale}},
      args.custom_mask_type, args.window_size, swapped(args.grad_out_), swapped(args.out),
      args.bias_requires_grad && bias.defined());
  return {swapped(grad_query), swapped(grad_key), swapped(grad_value), grad_bias};
}

// Tensors are [batch, heads, length, head_dim].
Tensors4 scaled_dot_product_efficient_attention(
    const Arguments<at::_ops::_scaled_dot_product_efficient_attention>& args) {
  check_dims(args.query);
  return forward(
      {args.query, args.key, args.value, args.attn_bias.value_or(at::Tensor()), {args.dropout_p, false, args.scale}},
      args.is_causal ? 1 : 0, std::nullopt, args.compute_log_sumexp);
}

Tensors4 scaled_dot_product_efficient_attention_backward(
    const Arguments<at::_ops::_scaled_dot_product_efficient_attention_backward>& args) {
  if (!args.grad_out_.defined()) return {};
  return backward(
      args, {args.query, args.key, args.value, args.attn_bias, {args.dropout_p, false, args.scale}},
      args.is_causal ? 1 : 0, std::nullopt, args.grad_out_, args.out,
      args.grad_input_mask[3] && args.attn_bias.defined());
}

} // namespace torch_opencl::native
