#include "entries/binary.h"
#include "entries/composite.h"
#include "entries/random.h"
#include "entries/unary.h"

#include <ATen/TensorIterator.h>
#include <ATen/TensorOperators.h>
#include <ATen/native/Activation.h>
#include <ATen/native/Gelu.h>
#include <ATen/ops/leaky_relu.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/where.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

#include "cpu/host_iteration.h"
#include "dispatch/pointwise.h"

namespace torch_opencl::native {
namespace {

// The row's tanh_form.
bridge::Scalar form(std::string_view approximate) {
  return arg(at::native::get_gelutype_enum(approximate) == at::native::GeluType::Tanh);
}

} // namespace

void gelu_out::impl(const at::Tensor&, std::string_view approximate, const at::Tensor&) {
  const auto type = at::native::get_gelutype_enum(approximate);
  if (ran_on_host<at::native::GeluKernel>(Casts::ToCommon, *this, type)) return;
  run_pointwise(*this, PointwiseOp::gelu, form(approximate));
}

void gelu_backward_out::impl(const at::Tensor&, const at::Tensor&, std::string_view approximate, const at::Tensor&) {
  const auto type = at::native::get_gelutype_enum(approximate);
  if (ran_on_host<at::native::GeluBackwardKernel>(Casts::ToCommon, *this, type)) return;
  run_pointwise(*this, PointwiseOp::gelu_backward, form(approximate));
}

// The CPU's function saves exp(-|x|) for the backward in the second result. It is empty here: computing it again costs
// less than storing and loading it.
std::tuple<at::Tensor&, at::Tensor&> log_sigmoid_forward_out(
    const at::Tensor& self, at::Tensor& output, at::Tensor& buffer) {
  auto iter = at::TensorIterator::unary_op(output, self);
  run_pointwise(iter, PointwiseOp::log_sigmoid_forward, {});
  return {output, buffer};
}

at::Tensor& log_sigmoid_backward_out(
    const at::Tensor& grad, const at::Tensor& self, const at::Tensor&, at::Tensor& grad_input) {
  auto iter = at::TensorIterator::borrowing_binary_op(grad_input, grad, self);
  run_pointwise(iter, PointwiseOp::log_sigmoid_backward, {});
  return grad_input;
}

// Both gradients have the sizes that all three arguments broadcast to: vmap batches only some of them.
std::tuple<at::Tensor, at::Tensor> prelu_kernel_backward(
    const at::Tensor& grad_output, const at::Tensor& self, const at::Tensor& weight) {
  at::Tensor grad_self = at::where(self.gt(0), grad_output, weight * grad_output);
  at::Tensor grad_weight = self.clamp_max(0) * grad_output;
  if (!grad_weight.sizes().equals(grad_self.sizes())) grad_weight = grad_weight.expand_as(grad_self).clone();
  return {std::move(grad_self), std::move(grad_weight)};
}

at::Tensor& rrelu_with_noise_out(
    const at::Tensor& self,
    at::Tensor& noise,
    const at::Scalar& lower,
    const at::Scalar& upper,
    bool training,
    std::optional<at::Generator> generator,
    at::Tensor& out) {
  const double low = lower.toDouble(), high = upper.toDouble();
  if (!training) return at::leaky_relu_out(out, self, (low + high) / 2);
  TORCH_CHECK(self.sizes() == noise.sizes(), "noise tensor shape must match self tensor shape");
  // Batched gradients (vmap) accept this operator, but would reject the one that it calls.
  const c10::impl::ExcludeDispatchKeyGuard in_one_operator(c10::DispatchKey::VmapMode);
  noise.uniform_(low, high, std::move(generator)).masked_fill_(self.gt(0), 1);
  return at::mul_out(out, self, noise);
}

at::Tensor& rrelu_with_noise_(
    at::Tensor& self,
    at::Tensor& noise,
    const at::Scalar& lower,
    const at::Scalar& upper,
    bool training,
    std::optional<at::Generator> generator) {
  return rrelu_with_noise_out(self, noise, lower, upper, training, std::move(generator), self);
}

} // namespace torch_opencl::native
