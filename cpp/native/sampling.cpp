// Distributions whose parameters are tensors.
#include "entries/random.h"

#include <ATen/Dispatch.h>
#include <ATen/ExpandUtils.h>
#include <ATen/OpMathType.h>
#include <ATen/ops/empty.h>
#include <limits>

#include "native/check.h"
#include "runtime/error.h"
#include "runtime/generator.h"
#include "runtime/tensor_arg.h"
#include "torch_opencl/rust/ops/random/sampling.rs.h"

namespace torch_opencl::native {

using OptionalGenerator = std::optional<at::Generator>;
namespace {

// Least positive normal number of a dtype, and the greatest below 1.
std::pair<double, double> bounds(at::ScalarType dtype) {
  return AT_DISPATCH_FLOATING_TYPES_AND2(at::kHalf, at::kBFloat16, dtype, "sampling", [] {
    using Limits = std::numeric_limits<scalar_t>;
    return std::pair{static_cast<double>(Limits::min()), 1 - static_cast<double>(Limits::epsilon()) / 2};
  });
}

at::Tensor sample(
    bridge::Sampled distribution,
    const at::Tensor& first,
    const at::Tensor& second,
    at::ScalarType dtype,
    const OptionalGenerator& generator) {
  generator_for(generator, first.device()); // raises, also where there is nothing to draw
  const at::Tensor a = first.contiguous(), b = second.defined() ? second.contiguous() : second;
  at::Tensor out = at::empty(a.sizes(), a.options().dtype(dtype));
  if (out.numel() == 0) return out;
  const PhiloxArgs stream = philox(generator, out.device(), static_cast<uint64_t>(out.numel()));
  checked([&] {
    bridge::sample_each(arg(out), distribution, arg(a), arg(b), bounds(dtype).first, {stream.seed, stream.offset});
  });
  return out;
}

at::Tensor gradient(const char* op, const at::Tensor& first, const at::Tensor& second, const at::Tensor& third) {
  const auto list = at::expand_outplace(first, second);
  at::Tensor a = *std::get<0>(list), b = *std::get<1>(list), c = third;
  check_dtype(op, "all arguments", second, first.scalar_type());
  check_dtype(op, "all arguments", third, first.scalar_type());
  if (c.defined()) {
    const auto sizes = at::infer_size_dimvector(a.sizes(), c.sizes());
    a = a.expand(sizes), b = b.expand(sizes), c = c.expand(sizes).contiguous();
  }
  a = a.contiguous(), b = b.contiguous();
  at::Tensor out = at::empty(a.sizes(), a.options());
  checked([&] { bridge::sample_grad(arg(out), arg(a), arg(b), arg(c)); });
  return out;
}

} // namespace

at::Tensor poisson(const at::Tensor& self, OptionalGenerator generator) {
  return sample(bridge::Sampled::Poisson, self, {}, self.scalar_type(), generator);
}

at::Tensor binomial(const at::Tensor& count, const at::Tensor& prob, OptionalGenerator generator) {
  TORCH_CHECK(
      count.scalar_type() == prob.scalar_type(), "Found dtype ", prob.scalar_type(), " but expected ",
      count.scalar_type());
  const auto [counts, probabilities] = at::expand_outplace(count, prob);
  return sample(bridge::Sampled::Binomial, *counts, *probabilities, count.scalar_type(), generator);
}

at::Tensor standard_gamma(const at::Tensor& self, OptionalGenerator generator) {
  return sample(bridge::Sampled::Gamma, self, {}, self.scalar_type(), generator);
}

at::Tensor standard_gamma_grad(const at::Tensor& self, const at::Tensor& output) {
  return gradient("_standard_gamma_grad", self, output, {});
}

// Gamma samples divided by their sum. With small concentrations samples underflow in any dtype; logarithms do not.
at::Tensor sample_dirichlet(const at::Tensor& self, OptionalGenerator generator) {
  const at::Tensor logarithms =
      sample(bridge::Sampled::LogGamma, self, {}, at::toOpMathType(self.scalar_type()), generator);
  const auto [least, greatest] = bounds(self.scalar_type());
  return logarithms.softmax(-1).clamp_(least, greatest).to(self.scalar_type());
}

at::Tensor dirichlet_grad(const at::Tensor& x, const at::Tensor& alpha, const at::Tensor& total) {
  return gradient("_dirichlet_grad", x, alpha, total);
}

} // namespace torch_opencl::native
