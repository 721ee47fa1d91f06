#include "host_attention.h"

#include <ATen/ExpandUtils.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/_scaled_dot_product_flash_attention_for_cpu_backward_ops.h>
#include <ATen/ops/_scaled_dot_product_flash_attention_for_cpu_ops.h>
#include <ATen/ops/aminmax.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/softmax.h>
#include <cmath>
#include <limits>

#include "../host_call.h"

namespace torch_opencl::native {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

// Numbers of scores up to which the CPU's fused operator, or the composed form, takes less time than waiting for a
// queue (some 50 us, PoCL, 2 cores).
constexpr int64_t kMaxFusedScores = int64_t{1} << 15, kMaxComposedScores = int64_t{1} << 13;

// Returns true if rows are dense, and do not overlap.
bool has_separate_rows(const at::Tensor& tensor) {
  return tensor.stride(3) == 1 && (tensor.size(2) == 1 || tensor.stride(2) >= tensor.size(3));
}

// Returns true if the host takes the operands. The CPU's fused attention assumes dense rows, which PyTorch checks when
// it chooses an implementation and not in the operator.
bool fits(const FusedAttention& call) {
  const at::Tensor &q = call.query, &k = call.key, &v = call.value, &bias = call.bias;
  const bool has_shapes = call.options.dropout_p == 0 && q.dim() == 4 && k.dim() == 4 && v.dim() == 4 &&
      q.size(0) == k.size(0) && q.size(0) == v.size(0) && k.size(1) == v.size(1) && k.size(1) > 0 &&
      q.size(1) % k.size(1) == 0 && q.size(3) == k.size(3) && k.size(2) == v.size(2) && !call.is_empty() &&
      k.scalar_type() == q.scalar_type() && v.scalar_type() == q.scalar_type();
  return has_shapes && has_separate_rows(q) && has_separate_rows(k) && has_separate_rows(v) &&
      (!bias.defined() ||
       (bias.dim() == 4 && bias.stride(-1) == 1 && bias.scalar_type() == q.scalar_type() &&
        at::is_expandable_to(bias.sizes(), {q.size(0), q.size(1), q.size(2), k.size(2)})));
}

// Returns true if the CPU's fused attention takes the operands, which fit.
bool is_fused(const FusedAttention& call) {
  return call.query.size(1) == call.key.size(1) && call.query.size(3) == call.value.size(3);
}

bool has_few_scores(const FusedAttention& call, bool is_composed) {
  const int64_t scores = call.query.numel() / call.query.size(3) * call.key.size(2);
  return scores <= (is_composed ? kMaxComposedScores : kMaxFusedScores);
}

std::optional<at::Tensor> optional(const at::Tensor& tensor) {
  return tensor.defined() ? std::optional<at::Tensor>(tensor) : std::nullopt;
}

// Attention on the host, composed of matmuls.
struct Composed {
  const AttentionOptions& options;
  // Key and value have the heads of the query.
  at::Tensor query, key, value, bias;

  Composed(
      const AttentionOptions& given, const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, at::Tensor added)
      : options(given), query(q), key(repeated(k)), value(repeated(v)), bias(std::move(added)) {}

  at::Tensor repeated(const at::Tensor& heads) const {
    const int64_t groups = query.size(1) / heads.size(1);
    return groups == 1 ? heads : heads.repeat_interleave(groups, 1);
  }

  double scale() const {
    return options.scale.value_or(1 / std::sqrt(static_cast<double>(query.size(3))));
  }

  at::Tensor scores() const {
    at::Tensor result = at::matmul(query, key.transpose(2, 3)).mul_(scale());
    if (bias.defined()) result.add_(bias);
    if (options.is_causal) {
      const at::Tensor visible = at::ones({query.size(2), key.size(2)}, result.options().dtype(at::kBool)).tril_();
      result.masked_fill_(visible.logical_not_(), -kInfinity);
    }
    return result;
  }

  // Weights of a query that sees no key are 0.
  static at::Tensor weights(const at::Tensor& visible) {
    return at::softmax(visible, 3).masked_fill_(visible == -kInfinity, 0);
  }

  // Output and logsumexp. A query that sees no key has an output of 0 and, as in kernels, a logsumexp of infinity.
  Tensors2 forward() const {
    const at::Tensor visible = scores();
    at::Tensor logsumexp = visible.logsumexp(3);
    logsumexp.masked_fill_(logsumexp == -kInfinity, kInfinity);
    return {at::matmul(weights(visible), value), logsumexp};
  }

  // Gradients of query, key, value and scores, with as many heads as the query.
  Tensors4 backward(const at::Tensor& grad_out, const at::Tensor& out) const {
    const at::Tensor shares = weights(scores());
    const at::Tensor grad_value = at::matmul(shares.transpose(2, 3), grad_out);
    const at::Tensor delta = (grad_out * out).sum(3, /*keepdim=*/true);
    const at::Tensor grad_scores = at::matmul(grad_out, value.transpose(2, 3)).sub_(delta).mul_(shares);
    return {
        at::matmul(grad_scores, key).mul_(scale()), at::matmul(grad_scores.transpose(2, 3), query).mul_(scale()),
        grad_value, grad_scores};
  }
};

// Returns true if no logsumexp is so large that it has lost the logarithm of a sum of weights, as when a mask of
// -FLT_MAX hides all keys of a query. The CPU's fused gradients take the weights from it.
bool is_precise(const at::Tensor& logsumexp) {
  constexpr double kLimit = 1 << 14;
  const auto [least, greatest] = at::aminmax(logsumexp);
  return least.item<double>() > -kLimit && greatest.item<double>() < kLimit;
}

// Sums gradients over the query heads that share a key and value head (grouped-query attention).
at::Tensor shared(const at::Tensor& gradient, const at::Tensor& like) {
  if (gradient.size(1) == like.size(1)) return gradient;
  return gradient.unflatten(1, {like.size(1), gradient.size(1) / like.size(1)}).sum(2);
}

} // namespace

at::Tensor attention_gradient_like(const at::Tensor& tensor) {
  at::Tensor gradient = at::empty_like(tensor);
  return gradient.stride(-1) == 1 ? gradient : at::empty(tensor.sizes(), tensor.options());
}

std::optional<Tensors2> attention_on_host(const FusedAttention& call) {
  if (!fits(call) || !has_few_scores(call, !is_fused(call))) return std::nullopt;
  HostMemory memory;
  const auto views = memory.views<4>({call.query, call.key, call.value, call.bias});
  if (!views.has_value()) return std::nullopt;
  const auto& [query, key, value, bias] = *views;
  const OneThread one_thread;
  const auto [out, logsumexp] = is_fused(call)
      ? at::_ops::_scaled_dot_product_flash_attention_for_cpu::call(
            query, key, value, /*dropout_p=*/0.0, call.options.is_causal, optional(bias), call.options.scale)
      : Composed(call.options, query, key, value, bias).forward();
  const at::Tensor heads_together = out.transpose(1, 2).contiguous().transpose(1, 2);
  return Tensors2{memory.to_device(heads_together), memory.to_device(logsumexp.contiguous())};
}

std::optional<Tensors4> attention_backward_on_host(
    const FusedAttention& call,
    const at::Tensor& grad_out,
    const at::Tensor& output,
    const at::Tensor& logsumexp,
    bool wants_bias) {
  if (!fits(call)) return std::nullopt;
  const bool is_composed = wants_bias || !is_fused(call);
  if (!has_few_scores(call, is_composed)) return std::nullopt;
  HostMemory memory;
  const auto views = memory.views<7>({call.query, call.key, call.value, call.bias, grad_out, output, logsumexp});
  if (!views.has_value()) return std::nullopt;
  const auto& [query, key, value, bias, grad, out, sums] = *views;
  const OneThread one_thread;
  const auto laid_out = [&](const at::Tensor& gradient, const at::Tensor& like) {
    return memory.to_device(attention_gradient_like(like).copy_(gradient));
  };
  if (!is_composed && is_precise(sums)) {
    const auto [grad_query, grad_key, grad_value] =
        at::_ops::_scaled_dot_product_flash_attention_for_cpu_backward::call(
            grad, query, key, value, out, sums, /*dropout_p=*/0.0, call.options.is_causal, optional(bias),
            call.options.scale);
    return Tensors4{laid_out(grad_query, query), laid_out(grad_key, key), laid_out(grad_value, value), at::Tensor()};
  }
  const Composed composed(call.options, query, key, value, bias);
  const auto [grad_query, grad_key, grad_value, grad_scores] = composed.backward(grad, out);
  return Tensors4{
      laid_out(grad_query, query), laid_out(shared(grad_key, key), key), laid_out(shared(grad_value, value), value),
      wants_bias ? memory.to_device(at::sum_to(grad_scores, bias.sizes())) : at::Tensor()};
}

} // namespace torch_opencl::native
