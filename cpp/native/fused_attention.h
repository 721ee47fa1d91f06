// The common part of flash and memory-efficient attention, as libraries for CUDA call them.
#pragma once

#include <ATen/ScalarOps.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/full.h>
#include <limits>

#include "native/scaled_dot_product.h"

namespace torch_opencl::native {

// The keys that queries see: query i sees keys i + first to i + last. Without a bound, it sees all keys on that side.
struct Band {
  std::optional<int64_t> first, last;

  // For flash attention, which aligns the last query with the last key; windows below 0 have no bound.
  static Band of_windows(bool is_causal, int64_t left, int64_t right, int64_t queries, int64_t keys) {
    Band band;
    if (left >= 0) band.first = keys - queries - left;
    if (is_causal || right >= 0) band.last = keys - queries + (is_causal ? 0 : right);
    return band.needed(queries, keys);
  }

  // For memory-efficient attention: mask types are none, causal, and causal with the last query aligned with the last
  // key.
  static Band of_mask(int64_t type, std::optional<int64_t> window, int64_t queries, int64_t keys) {
    TORCH_CHECK(type >= 0 && type <= 2, "invalid value for `custom_mask_type`: ", type);
    Band band;
    if (type == 0) return band;
    band.last = type == 1 ? 0 : keys - queries;
    if (window.value_or(0) > 0) band.first = *band.last - *window + 1;
    return band.needed(queries, keys);
  }

  // Drops bounds that hide nothing.
  Band needed(int64_t queries, int64_t keys) const {
    Band band = *this;
    if (first.value_or(0) <= 1 - queries) band.first.reset();
    if (last.value_or(0) >= keys - 1) band.last.reset();
    return band;
  }
};

// Adds masks that kernels do not support to the bias.
inline FusedAttention restricted(FusedAttention call, const Band& band) {
  call.options.is_causal = band.last == 0;
  const auto hidden = [&] {
    constexpr double kHidden = -std::numeric_limits<double>::infinity();
    return at::full({call.query.size(-2), call.key.size(-2)}, kHidden, call.query.options());
  };
  const auto add = [&](const at::Tensor& mask) { call.bias = call.bias.defined() ? call.bias + mask : mask; };
  if (band.first.has_value()) add(hidden().tril_(*band.first - 1));
  if (band.last.has_value() && !call.options.is_causal) add(hidden().triu_(*band.last + 1));
  return call;
}

} // namespace torch_opencl::native
