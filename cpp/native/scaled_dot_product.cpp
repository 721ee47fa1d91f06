#include "native/scaled_dot_product.h"

#include <ATen/Context.h>
#include <ATen/ExpandUtils.h>
#include <ATen/SDPBackend.h>
#include <ATen/ScalarOps.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>
#include <cmath>

#include "native/check.h"
#include "native/host_attention.h"
#include "runtime/error.h"
#include "runtime/generator.h"
#include "runtime/tensor_arg.h"
#include "torch_opencl/rust/ops/attention/backward.rs.h"

namespace torch_opencl::native {
namespace {

constexpr const char* kOp = "scaled_dot_product_attention";

// Returns true inside a transform of torch.func. The fused operator has no batching rule and no second derivative;
// composed attention can be mapped and derived any number of times.
bool is_transformed(const at::Tensor& tensor) {
  constexpr c10::DispatchKeySet transforms(
      {c10::DispatchKey::FuncTorchBatched, c10::DispatchKey::FuncTorchGradWrapper});
  return tensor.key_set().has_any(transforms);
}

// The reason why kernels cannot take these arguments; empty if they can. In a graph with symbolic sizes each comparison
// becomes a guard, and the width of rows is specialized to its current value.
std::string obstacle(
    const at::Tensor& query, const at::Tensor& key, const at::Tensor& value, const std::optional<at::Tensor>& mask) {
  if (query.is_nested() || key.is_nested() || value.is_nested()) return "nested tensors";
  for (const at::Tensor& tensor : {query, key, value, mask.value_or(at::Tensor())}) {
    if (tensor.defined() && is_transformed(tensor)) return "transforms of torch.func";
  }
  const int64_t dims = query.dim();
  if ((dims != 3 && dims != 4) || key.dim() != dims || value.dim() != dims)
    return "tensors of other than 3 or 4 dimensions";
  if (query.scalar_type() != key.scalar_type() || query.scalar_type() != value.scalar_type()) return "different dtypes";
  if (!query.is_floating_point()) return "a dtype that is not floating";
  const c10::SymInt heads = key.sym_size(-3);
  if (heads != value.sym_size(-3) || heads == 0 || query.sym_size(-3) % heads != 0)
    return "numbers of heads that do not divide";
  if (dims == 4 && (query.sym_size(0) != key.sym_size(0) || query.sym_size(0) != value.sym_size(0)))
    return "different batches";
  if (key.sym_size(-2) != value.sym_size(-2)) return "different numbers of keys and values";
  if (query.sym_size(-1) != key.sym_size(-1)) return "different widths of queries and keys";
  const c10::SymInt batch = dims == 4 ? query.sym_size(0) : c10::SymInt(1);
  const std::array<c10::SymInt, 4> scores{batch, query.sym_size(-3), query.sym_size(-2), key.sym_size(-2)};
  if (mask.has_value() && mask->defined() && !at::is_expandable_to(mask->sym_sizes(), scores))
    return "a mask of another shape";
  const int64_t width = query.sym_size(-1).guard_int(__FILE__, __LINE__),
                value_width = value.sym_size(-1).guard_int(__FILE__, __LINE__);
  const bool fits = checked(
      [&] { return bridge::attention_fits(query.device().index(), arg(query.scalar_type()), width, value_width); });
  return fits ? "" : "rows that do not fit the local memory of the device";
}

// [batch, heads, length, head_dim] with dense rows.
at::Tensor rows(const at::Tensor& tensor) {
  const at::Tensor batched = tensor.dim() == 3 ? tensor.unsqueeze(0) : tensor;
  return batched.stride(-1) == 1 ? batched : batched.contiguous();
}

// Query, key, value and bias of one call, as the kernels take them.
struct Operands {
  at::Tensor query, key, value, bias;

  Operands(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const at::Tensor& added) {
    const std::string problem = obstacle(q, k, v, added.defined() ? std::optional(added) : std::nullopt);
    TORCH_CHECK(problem.empty(), kOp, ": no fused implementation for ", problem);
    query = rows(q);
    key = rows(k);
    value = rows(v);
    if (added.defined()) bias = added.expand({query.size(0), query.size(1), query.size(2), key.size(2)});
  }

  bridge::AttentionInputs args() const {
    return {arg(query), arg(key), arg(value), arg(bias)};
  }

  double scale(std::optional<double> given) const {
    return given.value_or(1 / std::sqrt(static_cast<double>(query.size(-1))));
  }
};

// The shape of a result without the batch that the arguments lack.
at::Tensor unbatched(at::Tensor result, const at::Tensor& like) {
  return like.dim() == 3 ? result.squeeze(0) : result;
}

uint64_t number(const at::Tensor& tensor) {
  return tensor.defined() ? static_cast<uint64_t>(tensor.item<int64_t>()) : 0;
}

} // namespace

bridge::RandomStream attention_stream(const at::Tensor& query, uint64_t counters) {
  const PhiloxArgs random = philox(std::nullopt, query.device(), counters);
  return {random.seed, random.offset};
}

uint64_t attention_counters(const at::Tensor& query, const at::Tensor& key) {
  const int64_t batch = query.dim() == 4 ? query.size(0) : 1;
  return bridge::attention_counters(batch, query.size(-3), query.size(-2), key.size(-2));
}

Tensors2 FusedAttention::forward() const {
  const double dropout_p = options.dropout_p;
  TORCH_CHECK(dropout_p >= 0 && dropout_p <= 1, kOp, ": expected 0 <= dropout_p <= 1, but got ", dropout_p);
  if (auto results = attention_on_host(*this)) return *std::move(results);
  const Operands operands(query, key, value, bias);
  const at::Tensor& q = operands.query;
  const int64_t batch = q.size(0), heads = q.size(1), queries = q.size(2);
  // Models join the heads next, so the heads of a query are adjacent in memory.
  at::Tensor out = at::empty({batch, queries, heads, operands.value.size(3)}, q.options()).transpose(1, 2);
  at::Tensor logsumexp = at::empty({batch, heads, queries}, statistics_options(q));
  const bridge::AttentionMode mode{operands.scale(options.scale), options.is_causal, dropout_p, options.stream};
  checked([&] { bridge::attention(operands.args(), mode, arg(out), arg(logsumexp)); });
  return {unbatched(out, query), std::move(logsumexp)};
}

Tensors4 FusedAttention::backward(
    const at::Tensor& grad_out, const at::Tensor& out, const at::Tensor& logsumexp, bool wants_bias) const {
  const Operands operands(query, key, value, bias);
  const at::Tensor &q = operands.query, &k = operands.key, result = rows(out), grad = rows(grad_out);
  check_sizes(kOp, "out", result, {q.size(0), q.size(1), q.size(2), operands.value.size(3)});
  check_sizes(kOp, "grad_out", grad, result.sizes());
  check_dtype(kOp, "out", result, q.scalar_type());
  check_dtype(kOp, "grad_out", grad, q.scalar_type());
  const at::TensorOptions sums = statistics_options(q);
  check_sizes(kOp, "logsumexp", logsumexp, {q.size(0), q.size(1), q.size(2)});
  check_dtype(kOp, "logsumexp", logsumexp, sums.dtype().toScalarType());
  if (result.numel() == 0 || k.numel() == 0) {
    return {
        at::zeros_like(query), at::zeros_like(key), at::zeros_like(value),
        wants_bias ? at::zeros_like(bias) : at::Tensor()};
  }
  if (!wants_bias) {
    if (auto gradients = attention_backward_on_host(*this, grad, result, logsumexp)) return *std::move(gradients);
  }
  const at::Tensor grad_query = attention_gradient_like(q), grad_key = attention_gradient_like(k),
                   grad_value = attention_gradient_like(operands.value);
  const at::Tensor grad_scores =
      wants_bias ? at::zeros({q.size(0), q.size(1), q.size(2), k.size(2)}, sums) : at::Tensor();
  const bridge::AttentionMode mode{operands.scale(options.scale), options.is_causal, options.dropout_p, options.stream};
  const at::Tensor dense_logsumexp = logsumexp.contiguous();
  checked([&] {
    bridge::attention_backward(
        operands.args(), mode, arg(result), arg(dense_logsumexp), arg(grad),
        {arg(grad_query), arg(grad_key), arg(grad_value), arg(grad_scores)});
  });
  return {
      unbatched(grad_query, query), unbatched(grad_key, key), unbatched(grad_value, value),
      wants_bias ? at::sum_to(grad_scores, bias.sizes()).to(bias.scalar_type()) : at::Tensor()};
}

// The at::SDPBackend that serves torch.nn.functional.scaled_dot_product_attention: `overrideable` is the operator
// below, taken where one of PyTorch's fused implementations is enabled and the arguments fit it; `math` is composed of
// other operators; `error` means that the user has left none.
int64_t fused_sdp_choice(
    const at::Tensor& query,
    const at::Tensor& key,
    const at::Tensor& value,
    const std::optional<at::Tensor>& attn_mask,
    double dropout_p,
    bool is_causal,
    std::optional<double> scale,
    bool enable_gqa) {
  const at::Context& context = at::globalContext();
  const bool wants_fused =
      context.userEnabledFlashSDP() || context.userEnabledMemEfficientSDP() || context.userEnabledOverrideableSDP();
  // PyTorch's composed attention reports contradictory arguments, and handles empty tensors.
  const bool is_plain =
      query.sym_numel() > 0 && key.sym_numel() > 0 && value.sym_numel() > 0 && !(is_causal && attn_mask.has_value());
  if (wants_fused && is_plain && obstacle(query, key, value, attn_mask).empty() &&
      (enable_gqa || query.sym_size(-3) == key.sym_size(-3))) {
    return static_cast<int64_t>(at::SDPBackend::overrideable);
  }
  return static_cast<int64_t>(context.userEnabledMathSDP() ? at::SDPBackend::math : at::SDPBackend::error);
}

// Output, logsumexp [batch, heads, queries], two sequence bounds that stay undefined, lengths of queries and keys, seed
// and offset of the random numbers (scalars on the host), and an undefined debugging mask.
// Tensors are [batch, heads, length, head_dim] or lack the batch; query heads share key heads in equal groups.
Returns<at::_ops::_scaled_dot_product_fused_attention_overrideable> scaled_dot_product_attention(
    const Arguments<at::_ops::_scaled_dot_product_fused_attention_overrideable>& args) {
  TORCH_CHECK(!args.return_debug_mask, kOp, ": there is no debugging mask, as no matrix of weights is made");
  FusedAttention call{
      args.query,
      args.key,
      args.value,
      args.attn_bias.value_or(at::Tensor()),
      {args.dropout_p, args.is_causal, args.scale}};
  if (args.dropout_p > 0) call.draw();
  // Tensors without dropout too: compiled graphs keep them for the backward.
  at::Tensor seed = at::scalar_to_tensor(static_cast<int64_t>(call.options.stream.seed));
  at::Tensor offset = at::scalar_to_tensor(static_cast<int64_t>(call.options.stream.offset));
  auto [out, logsumexp] = call.forward();
  return {std::move(out),      std::move(logsumexp), at::Tensor(), at::Tensor(),
          args.query.size(-2), args.key.size(-2),    seed,         offset,
          at::Tensor()};
}

Tensors4 scaled_dot_product_attention_backward(
    const Arguments<at::_ops::_scaled_dot_product_fused_attention_overrideable_backward>& args) {
  // The output is not needed.
  if (!args.grad_out.defined()) return {};
  const FusedAttention call{
      args.query,
      args.key,
      args.value,
      args.attn_bias,
      {args.dropout_p, args.is_causal, args.scale, {number(args.philox_seed), number(args.philox_offset)}}};
  return call.backward(args.grad_out, args.out, args.logsumexp, args.grad_input_mask[3] && args.attn_bias.defined());
}

} // namespace torch_opencl::native
