// Flash attention, under the names by which libraries call PyTorch's implementation for CUDA.
#include <ATen/ops/empty.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>
#include <algorithm>
#include <vector>

#include "native/fused_attention.h"
#include "runtime/compat.h"

namespace torch_opencl::native {
namespace {

std::vector<int64_t> values_of(const at::Tensor& tensor) {
  const at::Tensor host = tensor.cpu().to(at::kLong).contiguous();
  return {host.const_data_ptr<int64_t>(), host.const_data_ptr<int64_t>() + host.numel()};
}

// Sequences that are concatenated in tensors [total, heads, head_dim]. Reading their bounds waits for the device.
class Sequences {
 public:
  Sequences(const at::Tensor& queries, const at::Tensor& keys, const std::optional<at::Tensor>& used)
      : queries_(values_of(queries)), keys_(values_of(keys)), used_(used.has_value() ? values_of(*used) : values_t()) {
    TORCH_CHECK(
        queries_.size() == keys_.size() && !queries_.empty() && (used_.empty() || used_.size() == count()),
        "expected as many sequences of queries as of keys, but got ", queries_.size(), " and ", keys_.size(),
        " bounds");
  }

  size_t count() const {
    return queries_.size() - 1;
  }
  at::Tensor queries(const at::Tensor& tensor, size_t i) const {
    return part(tensor, queries_, i, std::nullopt);
  }
  at::Tensor keys(const at::Tensor& tensor, size_t i) const {
    return part(tensor, keys_, i, used_.empty() ? std::nullopt : std::make_optional(used_[i]));
  }
  // [heads, total]
  at::Tensor logsumexp(const at::Tensor& tensor, size_t i) const {
    return tensor.narrow(1, queries_[i], queries_[i + 1] - queries_[i]).unsqueeze(0);
  }

  // Random counters that dropout takes in all sequences.
  uint64_t counters(const at::Tensor& query, const at::Tensor& key) const {
    uint64_t sum = 0;
    for (size_t i = 0; i < count(); i++) sum += attention_counters(queries(query, i), keys(key, i));
    return sum;
  }

 private:
  using values_t = std::vector<int64_t>;

  // [heads, length, head_dim]
  static at::Tensor part(const at::Tensor& tensor, const values_t& bounds, size_t i, std::optional<int64_t> used) {
    const int64_t length = bounds[i + 1] - bounds[i];
    return tensor.narrow(0, bounds[i], std::min(length, used.value_or(length))).transpose(0, 1);
  }

  values_t queries_, keys_, used_;
};

// Arguments that several of these operators have.
struct FlashAttention {
  at::Tensor query, key, value; // [batch, length, heads, head_dim], or sequences of [total, heads, head_dim]
  AttentionOptions options;
  bool is_causal;
  int64_t left, right; // windows

  template <class Op>
  FlashAttention(const Arguments<Op>& args, double dropout_p)
      : query(args.query),
        key(args.key),
        value(args.value),
        options{dropout_p, false, args.scale},
        is_causal(args.is_causal),
        left(args.window_size_left.value_or(-1)),
        right(args.window_size_right.value_or(-1)) {}

  FusedAttention whole() const {
    return masked({query.transpose(1, 2), key.transpose(1, 2), value.transpose(1, 2), {}, options});
  }

  // Calls `use` with each sequence that has queries and keys.
  template <class Use>
  void each(const Sequences& sequences, Use&& use) const {
    AttentionOptions part = options;
    for (size_t i = 0; i < sequences.count(); i++) {
      const FusedAttention call{
          sequences.queries(query, i), sequences.keys(key, i), sequences.keys(value, i), {}, part};
      part.stream.offset += attention_counters(call.query, call.key);
      if (!call.is_empty()) use(masked(call), i);
    }
  }

 private:
  FusedAttention masked(const FusedAttention& call) const {
    return restricted(call, Band::of_windows(is_causal, left, right, call.query.size(-2), call.key.size(-2)));
  }
};

// Seed and offset of dropout, as CUDA returns them: two values on the device.
at::Tensor rng_state(const bridge::RandomStream& stream, const at::Tensor& query) {
  const auto number = [](uint64_t value) { return at::scalar_to_tensor(static_cast<int64_t>(value)); };
  return at::stack({number(stream.seed), number(stream.offset)}).view(at::kUInt64).to(query.device());
}

bridge::RandomStream stream_of(const at::Tensor& rng_state, double dropout_p) {
  if (dropout_p == 0 || !rng_state.defined()) return {0, 0};
  const std::vector<int64_t> values = values_of(rng_state.view(at::kLong));
  TORCH_CHECK(values.size() == 2, "expected rng_state to have 2 elements, but got ", values.size());
  return {static_cast<uint64_t>(values[0]), static_cast<uint64_t>(values[1])};
}

void check_debug_mask(bool return_debug_mask) {
  TORCH_CHECK(!return_debug_mask, "return_debug_mask=True is not supported: the attention weights are never stored");
}

at::Tensor zero_dim(const at::Tensor& query) {
  return at::zeros({}, query.options().dtype(at::kUInt64));
}

// Results of sequences without queries or keys.
Tensors2 blank(const at::Tensor& query, const at::Tensor& value) {
  at::DimVector sizes(query.sizes());
  sizes.back() = value.size(-1);
  return {
      at::zeros(sizes, query.options()),
      at::full({query.size(1), query.size(0)}, std::numeric_limits<double>::infinity(), statistics_options(query))};
}

template <class Op>
FusedAttention unmasked(const Arguments<Op>& args) {
  return {args.query, args.key, args.value, {}, {args.dropout_p, false, args.scale}};
}

template <class Op>
Band band_of(const Arguments<Op>& args) {
  return Band::of_windows(args.is_causal, -1, -1, args.query.size(-2), args.key.size(-2));
}

} // namespace

// Tensors are [batch, heads, length, head_dim]. Sequence bounds and the debugging mask stay undefined or empty.
Returns<at::_ops::_scaled_dot_product_flash_attention> scaled_dot_product_flash_attention(
    const Arguments<at::_ops::_scaled_dot_product_flash_attention>& args) {
  check_debug_mask(args.return_debug_mask);
  FusedAttention call = unmasked(args);
  call.draw();
  auto [out, logsumexp] = restricted(call, band_of(args)).forward();
  return {
      std::move(out),
      std::move(logsumexp),
      at::Tensor(),
      at::Tensor(),
      args.query.size(-2),
      args.key.size(-2),
      rng_state(call.options.stream, args.query),
      zero_dim(args.query),
      at::empty({0}, args.query.options())};
}

Tensors3 scaled_dot_product_flash_attention_backward(
    const Arguments<at::_ops::_scaled_dot_product_flash_attention_backward>& args) {
  if (!args.grad_out.defined()) return {};
  FusedAttention call = unmasked(args);
  call.options.stream = stream_of(args.philox_seed, args.dropout_p);
  auto [grad_query, grad_key, grad_value, unused] =
      restricted(call, band_of(args)).backward(args.grad_out, args.out, args.logsumexp, /*wants_bias=*/false);
  return {std::move(grad_query), std::move(grad_key), std::move(grad_value)};
}

#if TORCH_OPENCL_TORCH_AT_LEAST(13)

namespace {

// Tensors are [batch, length, heads, head_dim], or with sequence bounds [total, heads, head_dim]. logsumexp is
// [batch, heads, length] or [heads, total].
template <class Op>
Returns<at::_ops::_flash_attention_forward> flash_forward(const Arguments<Op>& args, double dropout_p) {
  const at::Tensor &query = args.query, &key = args.key;
  check_debug_mask(args.return_debug_mask);
  TORCH_CHECK(!args.alibi_slopes.has_value(), "_flash_attention_forward: alibi_slopes are not supported");
  TORCH_CHECK(!args.block_table.has_value(), "_flash_attention_forward: block_table is not supported");
  TORCH_CHECK(
      args.cum_seq_q.has_value() == args.cum_seq_k.has_value(),
      "cum_seq_q and cum_seq_k must be both set or both not set");
  FlashAttention attention(args, dropout_p);
  at::Tensor out, logsumexp;
  if (args.cum_seq_q.has_value()) {
    TORCH_CHECK(query.dim() == 3, "expected queries [total, heads, head_dim], but got ", query.sizes());
    const Sequences sequences(*args.cum_seq_q, *args.cum_seq_k, args.seqused_k);
    if (dropout_p > 0) attention.options.stream = attention_stream(query, sequences.counters(query, key));
    std::tie(out, logsumexp) = blank(query, args.value);
    attention.each(sequences, [&](const FusedAttention& call, size_t i) {
      const auto [part, part_logsumexp] = call.forward();
      sequences.queries(out, i).copy_(part);
      sequences.logsumexp(logsumexp, i).copy_(part_logsumexp);
    });
  } else {
    TORCH_CHECK(query.dim() == 4, "expected queries [batch, length, heads, head_dim], but got ", query.sizes());
    TORCH_CHECK(!args.seqused_k.has_value(), "_flash_attention_forward: seqused_k needs cum_seq_k");
    FusedAttention call = attention.whole();
    call.draw();
    attention.options.stream = call.options.stream;
    std::tie(out, logsumexp) = call.forward();
    out = out.transpose(1, 2);
  }
  return {
      std::move(out), std::move(logsumexp), rng_state(attention.options.stream, query), zero_dim(query),
      at::empty({0}, query.options())};
}

} // namespace

Returns<at::_ops::_flash_attention_forward> flash_attention_forward(
    const Arguments<at::_ops::_flash_attention_forward>& args) {
  return flash_forward(args, args.dropout_p);
}

at::Tensor flash_attention_forward_no_dropout_inplace(
    const Arguments<at::_ops::_flash_attention_forward_no_dropout_inplace>& args) {
  const auto results = flash_forward(args, /*dropout_p=*/0);
  args.out.copy_(std::get<0>(results));
  return std::get<1>(results);
}

#endif

Tensors3 flash_attention_backward(const Arguments<at::_ops::_flash_attention_backward>& args) {
  if (!args.grad_out.defined()) return {};
  FlashAttention attention(args, args.dropout_p);
  attention.options.stream = stream_of(args.rng_state, args.dropout_p);
  if (!args.cum_seq_q.defined()) {
    const auto grads = attention.whole().backward(
        args.grad_out.transpose(1, 2), args.out.transpose(1, 2), args.logsumexp, /*wants_bias=*/false);
    return {std::get<0>(grads).transpose(1, 2), std::get<1>(grads).transpose(1, 2), std::get<2>(grads).transpose(1, 2)};
  }
  const Sequences sequences(args.cum_seq_q, args.cum_seq_k, std::nullopt);
  at::Tensor grad_query = at::zeros_like(args.query), grad_key = at::zeros_like(args.key),
             grad_value = at::zeros_like(args.value);
  attention.each(sequences, [&](const FusedAttention& call, size_t i) {
    const auto grads = call.backward(
        sequences.queries(args.grad_out, i), sequences.queries(args.out, i), sequences.logsumexp(args.logsumexp, i),
        /*wants_bias=*/false);
    sequences.queries(grad_query, i).copy_(std::get<0>(grads));
    sequences.keys(grad_key, i).copy_(std::get<1>(grads));
    sequences.keys(grad_value, i).copy_(std::get<2>(grads));
  });
  return {std::move(grad_query), std::move(grad_key), std::move(grad_value)};
}

} // namespace torch_opencl::native
