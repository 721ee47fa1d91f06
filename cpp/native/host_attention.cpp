#include "native/host_attention.h"

#include <ATen/ExpandUtils.h>
#include <ATen/ops/_scaled_dot_product_flash_attention_for_cpu_backward_ops.h>
#include <ATen/ops/_scaled_dot_product_flash_attention_for_cpu_ops.h>
#include <ATen/ops/aminmax.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>

#include "cpu/host_call.h"

namespace torch_opencl::native {
namespace {

// Returns true if rows are dense, and do not overlap.
bool has_separate_rows(const at::Tensor& tensor) {
  return tensor.stride(3) == 1 && (tensor.size(2) == 1 || tensor.stride(2) >= tensor.size(3));
}

// Returns true if the CPU's fused attention takes the operands. It assumes dense rows, which PyTorch checks when it
// chooses an implementation and not in the operator.
bool fits(const FusedAttention& call) {
  const at::Tensor &q = call.query, &k = call.key, &v = call.value, &bias = call.bias;
  const bool has_shapes = call.options.dropout_p == 0 && q.dim() == 4 && k.sizes() == v.sizes() && k.dim() == 4 &&
      q.size(0) == k.size(0) && q.size(1) == k.size(1) && q.size(3) == k.size(3) && !call.is_empty() &&
      k.scalar_type() == q.scalar_type() && v.scalar_type() == q.scalar_type() &&
      cpu_policy::is_small(Cost::Attention, {.results = q.numel() / q.size(3) * k.size(2)});
  return has_shapes && has_separate_rows(q) && has_separate_rows(k) && has_separate_rows(v) &&
      (!bias.defined() ||
       (bias.dim() == 4 && bias.stride(-1) == 1 && bias.scalar_type() == q.scalar_type() &&
        at::is_expandable_to(bias.sizes(), {q.size(0), q.size(1), q.size(2), k.size(2)})));
}

std::optional<at::Tensor> optional(const at::Tensor& tensor) {
  return tensor.defined() ? std::optional<at::Tensor>(tensor) : std::nullopt;
}

// Returns true if no logsumexp is so large that it has lost the logarithm of a sum of weights, as when a mask of
// -FLT_MAX hides all keys of a query. The CPU's fused gradients take the weights from it.
bool is_precise(const at::Tensor& logsumexp) {
  constexpr double kLimit = 1 << 14;
  const auto [least, greatest] = at::aminmax(logsumexp);
  return least.item<double>() > -kLimit && greatest.item<double>() < kLimit;
}

} // namespace

at::Tensor attention_gradient_like(const at::Tensor& tensor) {
  at::Tensor gradient = at::empty_like(tensor);
  return gradient.stride(-1) == 1 ? gradient : at::empty(tensor.sizes(), tensor.options());
}

std::optional<Tensors2> attention_on_host(const FusedAttention& call) {
  if (!fits(call)) return std::nullopt;
  HostMemory memory(Cost::Attention);
  const auto views = memory.views<4>({call.query, call.key, call.value, call.bias});
  if (!views.has_value()) return std::nullopt;
  const auto& [query, key, value, bias] = *views;
  const OneThread one_thread;
  const auto [out, logsumexp] = at::_ops::_scaled_dot_product_flash_attention_for_cpu::call(
      query, key, value, /*dropout_p=*/0.0, call.options.is_causal, optional(bias), call.options.scale);
  const at::Tensor heads_together = out.transpose(1, 2).contiguous().transpose(1, 2);
  return Tensors2{memory.to_device(heads_together), memory.to_device(logsumexp.contiguous())};
}

std::optional<Tensors4> attention_backward_on_host(
    const FusedAttention& call, const at::Tensor& grad_out, const at::Tensor& output, const at::Tensor& logsumexp) {
  if (!fits(call)) return std::nullopt;
  HostMemory memory(Cost::Attention);
  const auto views = memory.views<7>({call.query, call.key, call.value, call.bias, grad_out, output, logsumexp});
  if (!views.has_value()) return std::nullopt;
  const auto& [query, key, value, bias, grad, out, sums] = *views;
  const OneThread one_thread;
  if (!is_precise(sums)) return std::nullopt;
  const auto [grad_query, grad_key, grad_value] = at::_ops::_scaled_dot_product_flash_attention_for_cpu_backward::call(
      grad, query, key, value, out, sums, /*dropout_p=*/0.0, call.options.is_causal, optional(bias),
      call.options.scale);
  const auto laid_out = [&](const at::Tensor& gradient, const at::Tensor& like) {
    return memory.to_device(attention_gradient_like(like).copy_(gradient));
  };
  return Tensors4{laid_out(grad_query, query), laid_out(grad_key, key), laid_out(grad_value, value), at::Tensor()};
}

} // namespace torch_opencl::native
