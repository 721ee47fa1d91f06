// Fake quantisation: values are rounded to those that integers represent, and stay floating-point.
#include "entries/binary.h"
#include "entries/ternary.h"
#include "entries/unary.h"

#include <ATen/TensorIterator.h>
#include <ATen/TensorOperators.h>
#include <ATen/native/quantized/FakeQuantAffine.h>
#include <ATen/ops/_aminmax.h>
#include <ATen/ops/clamp.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/fake_quantize_per_channel_affine_cachemask.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/scalar_tensor.h>
#include <ATen/ops/where.h>
#include <limits>

#include "dispatch/pointwise.h"

namespace torch_opencl::native {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

void check_bounds(int64_t quant_min, int64_t quant_max) {
  TORCH_CHECK(quant_min <= quant_max, "`quant_min` should be less than or equal to `quant_max`.");
}

void check_floating(const at::Tensor& self) {
  TORCH_CHECK_NOT_IMPLEMENTED(
      at::isFloatingType(self.scalar_type()), "fake quantization is not implemented for '", self.scalar_type(), "'");
}

struct Result {
  explicit Result(const at::Tensor& self)
      : output(at::empty_like(self, self.options(), at::MemoryFormat::Preserve)),
        mask(at::empty_like(self, self.options().dtype(at::kBool), at::MemoryFormat::Preserve)) {}

  at::Tensor output, mask;
};

// Quantises with a scale and a zero point that are broadcast. An infinite scale leaves elements as they are.
void quantize(
    const Result& result,
    const at::Tensor& self,
    const at::Tensor& scale,
    const at::Tensor& zero_point,
    int64_t quant_min,
    int64_t quant_max) {
  auto iter = at::TensorIteratorConfig()
                  .check_all_same_dtype(false)
                  .add_output(result.output)
                  .add_output(result.mask)
                  .add_const_input(self)
                  .add_const_input(scale)
                  .add_const_input(zero_point)
                  .build();
  const std::array<bridge::Scalar, 3> scalars{arg(quant_min), arg(quant_max), arg(zero_point.is_floating_point())};
  run_pointwise(iter, PointwiseOp::_fake_quantize_per_tensor_affine_cachemask_tensor_qparams, scalars);
}

// A scale that quantises only where `enabled` is not zero.
at::Tensor where_enabled(const at::Tensor& enabled, const at::Tensor& scale) {
  return at::where(enabled.ne(0), scale, at::scalar_tensor(kInfinity, scale.options().device(at::kCPU)));
}

void quantize_channels(at::TensorIterator& iter, at::TensorIterator& mask, int64_t quant_min, int64_t quant_max) {
  Result result(iter.tensor(0));
  result.output = iter.tensor(0);
  result.mask = mask.tensor(0);
  quantize(result, iter.tensor(1), iter.tensor(2), iter.tensor(3), quant_min, quant_max);
}

// Gradients of each element with respect to itself, the scale and the zero point: Esser et al., Learned Step Size
// Quantization (ICLR 2020), and Bhalgat et al., LSQ+ (CVPR Workshops 2020).
void learnable_gradients(
    const at::TensorIterator& iter,
    const at::Tensor& scale,
    const at::Tensor& inverse,
    const at::Tensor& zero_point,
    int64_t quant_min,
    int64_t quant_max,
    double grad_factor) {
  const at::Tensor self = iter.tensor(3), grad = iter.tensor(4);
  const at::Tensor rounded = (self * inverse).add_(zero_point).round_();
  const at::Tensor bounded = rounded.clamp(quant_min, quant_max), is_within = rounded.eq(bounded);
  const at::Tensor steps = bounded - zero_point;
  const at::Tensor slope = at::where(is_within, (steps * scale).sub_(self).mul_(inverse), steps);
  iter.tensor(0).copy_(grad * is_within);
  iter.tensor(1).copy_((grad * slope).mul_(grad_factor));
  iter.tensor(2).copy_((grad * scale).mul_(-grad_factor).mul_(is_within.logical_not()));
}

void learnable_tensor_gradients(
    at::TensorIterator& iter,
    float scale,
    float inverse,
    int64_t zero_point,
    int64_t quant_min,
    int64_t quant_max,
    float grad_factor) {
  const auto number = [](double value) { return at::scalar_tensor(value, at::TensorOptions(at::kFloat)); };
  learnable_gradients(
      iter, number(scale), number(inverse), number(static_cast<double>(zero_point)), quant_min, quant_max, grad_factor);
}

void learnable_channel_gradients(at::TensorIterator& iter, int64_t quant_min, int64_t quant_max, float grad_factor) {
  const at::Tensor scale = iter.tensor(5);
  learnable_gradients(iter, scale, scale.reciprocal(), iter.tensor(6), quant_min, quant_max, grad_factor);
}

// A moving average, which begins with the first value.
void observe(const at::Tensor& running, const at::Tensor& value, const at::Tensor& observer_on, double constant) {
  const at::Tensor average = at::where(running.isinf(), value, running + (value - running).mul_(constant));
  running.copy_(at::where(observer_on.ne(0), average, running));
}

} // namespace

std::tuple<at::Tensor, at::Tensor> fake_quantize_per_tensor(
    const at::Tensor& self, double scale, int64_t zero_point, int64_t quant_min, int64_t quant_max) {
  check_bounds(quant_min, quant_max);
  TORCH_CHECK(
      zero_point >= quant_min && zero_point <= quant_max, "`zero_point` must be between `quant_min` and `quant_max`.");
  const Result result(self);
  auto iter = at::TensorIteratorConfig()
                  .check_all_same_dtype(false)
                  .add_output(result.output)
                  .add_output(result.mask)
                  .add_const_input(self)
                  .build();
  const float narrow = static_cast<float>(scale);
  const std::array<bridge::Scalar, 4> scalars{
      arg(static_cast<double>(narrow)), arg(static_cast<double>(1.0f / narrow)), arg(quant_min - zero_point),
      arg(quant_max - zero_point)};
  run_pointwise(iter, PointwiseOp::fake_quantize_per_tensor_affine_cachemask, scalars);
  return {result.output, result.mask};
}

std::tuple<at::Tensor, at::Tensor> fake_quantize_tensor_qparams(
    const at::Tensor& self,
    const at::Tensor& scale,
    const at::Tensor& zero_point,
    const at::Tensor& fake_quant_enabled,
    int64_t quant_min,
    int64_t quant_max) {
  check_floating(self);
  check_bounds(quant_min, quant_max);
  TORCH_CHECK(
      scale.numel() == 1 && zero_point.numel() == 1 && fake_quant_enabled.numel() == 1,
      "fake_quantize_per_tensor_affine: scale, zero_point and fake_quant_enabled must have one element each");
  const Result result(self);
  // The CPU takes the integer part of a zero point here.
  quantize(
      result, self, where_enabled(fake_quant_enabled, scale).view(at::IntArrayRef{}),
      zero_point.to(at::kInt).view(at::IntArrayRef{}), quant_min, quant_max);
  return {result.output, result.mask};
}

// The host reads neither flag, so it does not wait.
std::tuple<at::Tensor, at::Tensor> fused_moving_avg_obs_fq_helper(
    const at::Tensor& self,
    const at::Tensor& observer_on,
    const at::Tensor& fake_quant_on,
    at::Tensor& running_min,
    at::Tensor& running_max,
    at::Tensor& scale,
    at::Tensor& zero_point,
    double averaging_const,
    int64_t quant_min,
    int64_t quant_max,
    int64_t ch_axis,
    bool per_row_fake_quant,
    bool symmetric_quant) {
  check_floating(self);
  TORCH_CHECK(quant_min < quant_max, "In ChooseQuantizationParams, qmin should be less than qmax");
  if (per_row_fake_quant) {
    TORCH_CHECK(
        ch_axis == 0, "Per-channel FakeQuant in fused_moving_avg_obs_fake_quant is only supported on axis == 0");
    if (running_min.numel() == 0) {
      const int64_t channels = self.size(ch_axis);
      running_min.resize_(channels).fill_(kInfinity);
      running_max.resize_(channels).fill_(-kInfinity);
      scale.resize_(channels);
      zero_point.resize_(channels);
    }
  }
  const auto [least, greatest] = per_row_fake_quant ? at::_aminmax(self.flatten(1), 1) : at::_aminmax(self);
  observe(running_min, least.view_as(running_min), observer_on, averaging_const);
  observe(running_max, greatest.view_as(running_max), observer_on, averaging_const);

  const at::Tensor new_scale = at::empty_like(scale), new_zero_point = at::empty_like(zero_point);
  auto iter = at::TensorIteratorConfig()
                  .check_all_same_dtype(false)
                  .add_output(new_scale)
                  .add_output(new_zero_point)
                  .add_owned_const_input(running_min.view_as(scale))
                  .add_owned_const_input(running_max.view_as(scale))
                  .build();
  const std::array<bridge::Scalar, 3> scalars{arg(quant_min), arg(quant_max), arg(symmetric_quant)};
  run_pointwise(iter, PointwiseOp::_fused_moving_avg_obs_fq_helper, scalars);
  scale.copy_(at::where(fake_quant_on.ne(0), new_scale, scale));
  zero_point.copy_(at::where(fake_quant_on.ne(0), new_zero_point, zero_point));

  const Result result(self);
  at::DimVector shape(self.dim(), 1);
  if (per_row_fake_quant) shape[0] = self.size(0);
  quantize(result, self, where_enabled(fake_quant_on, scale).view(shape), zero_point.view(shape), quant_min, quant_max);
  return {result.output, result.mask};
}

} // namespace torch_opencl::native

namespace at::native {
REGISTER_PRIVATEUSE1_DISPATCH(fake_quant_per_channel_cachemask_stub, &torch_opencl::native::quantize_channels)
REGISTER_PRIVATEUSE1_DISPATCH(fake_quant_grad_learnable_tensor_stub, &torch_opencl::native::learnable_tensor_gradients)
REGISTER_PRIVATEUSE1_DISPATCH(
    fake_quant_grad_learnable_channel_stub, &torch_opencl::native::learnable_channel_gradients)
} // namespace at::native
