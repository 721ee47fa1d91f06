#include "entries/random.h"

#include <ATen/Dispatch.h>
#include <ATen/MemoryOverlap.h>
#include <ATen/TensorOperators.h>
#include <ATen/native/Resize.h>
#include <ATen/native/TensorFactories.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/native_dropout_backward_ops.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/searchsorted.h>
#include <ATen/ops/zeros_like.h>

#include "native/check.h"
#include "native/random.h"
#include "runtime/error.h"
#include "runtime/generator.h"
#include "runtime/tensor_arg.h"
#include "torch_opencl/rust/ops/random/mod.rs.h"

namespace torch_opencl::native {

using OptionalGenerator = std::optional<at::Generator>;
namespace {

bool is_dense(const at::TensorBase& tensor) {
  return tensor.is_non_overlapping_and_dense();
}

// The part of the generator's stream that a tensor takes.
bridge::RandomStream stream(const at::TensorBase& tensor, const OptionalGenerator& generator) {
  const PhiloxArgs args = philox(generator, tensor.device(), bridge::random_counters(tensor.numel()));
  return {args.seed, args.offset};
}

// Kernels write dense memory; another layout is filled by a copy. `fill` takes a dense tensor.
template <class Fill>
void fill_dense(const at::TensorBase& self, Fill&& fill) {
  if (self.numel() == 0) return;
  const at::Tensor target(self);
  const at::Tensor dense = is_dense(self) ? target : at::empty(target.sizes(), target.options());
  checked([&] { fill(dense); });
  if (!dense.is_same(target)) target.copy_(dense);
}

void integers(const at::TensorBase& self, uint64_t range, int64_t base, const OptionalGenerator& generator) {
  generator_for(generator, self.device());
  fill_dense(
      self, [&](const at::Tensor& out) { bridge::random_integers(arg(out), range, base, stream(out, generator)); });
}

// Range of random_() without bounds: all values of an integer from 0 on, all integers that a float tells apart.
uint64_t random_range(at::ScalarType dtype) {
  if (dtype == at::kBool) return 2;
  uint64_t range = 0;
  if (c10::isFloatingType(dtype)) {
    AT_DISPATCH_FLOATING_TYPES_AND2(at::kHalf, at::kBFloat16, dtype, "random_", [&] {
      range = (uint64_t{1} << std::numeric_limits<scalar_t>::digits) + 1;
    });
  } else {
    AT_DISPATCH_INTEGRAL_TYPES(
        dtype, "random_", [&] { range = static_cast<uint64_t>(std::numeric_limits<scalar_t>::max()) + 1; });
  }
  return range;
}

} // namespace

void sample(const at::TensorBase& self, Distribution distribution, const Draw& draw) {
  generator_for(draw.generator, self.device()); // raises, also where there is nothing to fill
  fill_dense(self, [&](const at::Tensor& out) {
    const bridge::RandomStream part = stream(out, draw.generator);
    bridge::random_sample(arg(out), static_cast<uint32_t>(distribution), draw.parameters, part);
  });
}

void bernoulli_tensor(const at::TensorBase& self, const at::TensorBase& p, OptionalGenerator generator) {
  at::assert_no_partial_overlap(self, p);
  if (self.numel() == 0) return;
  const at::Tensor target(self), out = target.contiguous();
  const at::Tensor probabilities = at::Tensor(p).expand(out.sizes()).contiguous();
  checked([&] { bridge::random_bernoulli(arg(out), arg(probabilities), stream(out, generator)); });
  if (!out.is_same(target)) target.copy_(out);
}

void random(at::TensorIteratorBase& iter, OptionalGenerator generator) {
  integers(iter.tensor(0), random_range(iter.dtype(0)), 0, generator);
}

void random_from_to(at::TensorIteratorBase& iter, uint64_t range, int64_t base, OptionalGenerator generator) {
  integers(iter.tensor(0), range, base, generator);
}

void random_full_64_bits_range(at::TensorIteratorBase& iter, OptionalGenerator generator) {
  integers(iter.tensor(0), /*range=*/0, 0, generator);
}

void multinomial_with_replacement(
    at::Tensor& result, const at::Tensor& self, int64_t samples, OptionalGenerator generator) {
  const bool is_narrow = self.scalar_type() == at::kHalf || self.scalar_type() == at::kBFloat16;
  const at::Tensor totals = self.to(is_narrow ? at::kFloat : self.scalar_type()).cumsum(-1);
  at::DimVector sizes(self.sizes());
  sizes.back() = samples;
  const at::Tensor heights = at::empty(sizes, totals.options()).uniform_(0, 1, std::move(generator));
  // The first category whose cumulative sum is above the height; one of probability 0 never is.
  heights.mul_(totals.narrow(-1, totals.size(-1) - 1, 1));
  result.copy_(at::searchsorted(totals, heights, /*out_int32=*/false, /*right=*/true));
}

namespace {

// Keeps elements with a probability, and says which: masks are bool or uint8.
std::tuple<at::Tensor, at::Tensor> dropout(
    const at::Tensor& input, double keep_prob, at::ScalarType mask_dtype, const OptionalGenerator& generator) {
  const at::Tensor dense = is_dense(input) ? input : input.clone(); // whose dimensions lie in the same order
  at::Tensor out = at::empty_like(dense), mask = at::empty_like(dense, input.options().dtype(mask_dtype));
  if (input.numel() > 0) {
    const bridge::RandomStream part = stream(dense, generator);
    checked([&] { bridge::dropout(arg(out), arg(mask), arg(dense), keep_prob, part); });
  }
  return {std::move(out), std::move(mask)};
}

} // namespace

std::tuple<at::Tensor, at::Tensor> native_dropout(const at::Tensor& input, double p, std::optional<bool> train) {
  const auto bools = input.options().dtype(at::kBool);
  if (!train.value_or(true) || p == 0) return {input.clone(), at::ones_like(input, bools)};
  if (p == 1) return {at::zeros_like(input), at::zeros_like(input, bools)};
  return dropout(input, 1 - p, at::kBool, std::nullopt);
}

// Autograd's dropout calls this where a tensor needs its mask; `p` is the probability to keep an element.
std::tuple<at::Tensor, at::Tensor> fused_dropout(const at::Tensor& self, double p, OptionalGenerator generator) {
  generator_for(generator, self.device());
  return dropout(self, p, at::kByte, generator);
}

at::Tensor native_dropout_backward(const at::Tensor& grad_output, const at::Tensor& mask, double scale) {
  if (!grad_output.is_floating_point()) return grad_output * (mask * scale);
  check_sizes("native_dropout_backward", "mask", mask, grad_output.sizes());
  check_dtype("native_dropout_backward", "mask", mask, at::kBool);
  const bool alike = is_dense(mask) && grad_output.strides() == mask.strides();
  const at::Tensor grad = alike ? grad_output : grad_output.contiguous();
  const at::Tensor kept = alike ? mask : mask.contiguous();
  at::Tensor out = at::empty_like(grad);
  checked([&] { bridge::dropout_backward(arg(out), arg(grad), arg(kept), scale); });
  return out;
}

at::Tensor& randperm_out(int64_t n, OptionalGenerator generator, at::Tensor& out) {
  TORCH_CHECK(n >= 0, "n must be non-negative, got", n);
  at::native::check_supported_max_int_with_precision(n, out);
  at::native::resize_output(out, {n});
  const at::Tensor keys = at::empty({n}, out.options().dtype(at::kLong)).random_(std::move(generator));
  if (n == 0) return out;
  if (!checked([&] { return bridge::uses_swap_kernel(arg(keys)); })) {
    // The order of random keys. With 63 bits ties, which would favour the lower index, do not happen.
    return out.copy_(keys.argsort());
  }
  const bool is_target = out.scalar_type() == at::kLong && out.is_contiguous();
  const at::Tensor order = is_target ? out : at::empty_like(keys);
  checked([&] { bridge::permutation(arg(order), arg(keys)); });
  return is_target ? out : out.copy_(order);
}

} // namespace torch_opencl::native
