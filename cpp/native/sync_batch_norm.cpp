// The pieces of torch.nn.SyncBatchNorm: batch norm whose statistics are those of several processes, so that each step
// that they exchange something between is an operator of its own. Statistics are in the dtype that is computed in.
#include <ATen/TensorOperators.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/full.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>
#include <algorithm>
#include <limits>

#include "../error.h"
#include "../tensor_arg.h"
#include "check.h"
#include "contiguous.h"
#include "norm.h"
#include "torch_opencl/rust/ops/norm/batch_norm.rs.h"

namespace torch_opencl::native {
namespace {

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

void check_input(const char* op, const at::Tensor& input) {
  TORCH_CHECK(input.dim() >= 2, op, ": expected at least 2 dimensions, got ", input.sizes());
}

// A value for each channel, in the dtype of the statistics; undefined where none is given.
at::Tensor per_channel(const char* op, const char* name, const at::Tensor& values, const at::Tensor& input) {
  check_numel(op, name, values, input.size(1));
  return values.defined() ? values.reshape({input.size(1)}).to(statistics_options(input).dtype()) : values;
}

at::Tensor per_channel(
    const char* op, const char* name, const std::optional<at::Tensor>& values, const at::Tensor& input) {
  return per_channel(op, name, values.value_or(at::Tensor()), input);
}

// Mean and variance of each channel, the latter divided by the number of elements.
Tensors2 var_mean_of(const char* op, const at::Tensor& input) {
  check_input(op, input);
  const at::Tensor x = input.contiguous(input.suggest_memory_format());
  at::Tensor mean = at::empty({input.size(1)}, statistics_options(input)), var = at::empty_like(mean);
  if (x.numel() == 0) return {mean.fill_(kNaN), var.fill_(kNaN)};
  checked([&] { bridge::batch_norm_statistics(arg(x), {arg(mean), arg(var)}, channels_of(x)); });
  return {std::move(mean), std::move(var)};
}

// Moves a running statistic, if there is one, by `momentum`.
void update(const std::optional<at::Tensor>& running, const at::Tensor& value, double momentum) {
  if (!running.has_value() || !running->defined()) return;
  running->copy_(running->to(value.scalar_type()).lerp(value, momentum));
}

// 1 / sqrt(var + eps), and 0 where that is not finite.
at::Tensor invstd_of(const at::Tensor& var, double eps) {
  const at::Tensor sum = var + eps;
  return sum.rsqrt().masked_fill_(sum.eq(0), 0);
}

} // namespace

Tensors2 batch_norm_stats(const at::Tensor& input, double eps) {
  auto [mean, var] = var_mean_of("batch_norm_stats", input);
  return {std::move(mean), invstd_of(var, eps)};
}

Tensors2 batch_norm_update_stats(
    const at::Tensor& input,
    const std::optional<at::Tensor>& running_mean,
    const std::optional<at::Tensor>& running_var,
    double momentum) {
  auto [mean, var] = var_mean_of("batch_norm_update_stats", input);
  const double count = static_cast<double>(input.numel()) / std::max<double>(1, static_cast<double>(input.size(1)));
  update(running_mean, mean, momentum);
  update(running_var, var * (count / (count - 1)), momentum);
  return {std::move(mean), std::move(var)};
}

at::Tensor batch_norm_elemt(
    const at::Tensor& input,
    const std::optional<at::Tensor>& weight,
    const std::optional<at::Tensor>& bias,
    const at::Tensor& mean,
    const at::Tensor& invstd,
    double) {
  constexpr const char* op = "batch_norm_elemt";
  check_input(op, input);
  const at::Tensor x = input.contiguous(input.suggest_memory_format());
  const at::Tensor center = per_channel(op, "mean", mean, input), rstd = per_channel(op, "invstd", invstd, input);
  const at::Tensor scale = per_channel(op, "weight", weight, input), shift = per_channel(op, "bias", bias, input);
  const at::Tensor coefficients = at::stack(
      {center, rstd, scale.defined() ? rstd * scale : rstd, shift.defined() ? shift : at::zeros_like(center)});
  at::Tensor output = at::empty_like(x);
  checked([&] { bridge::batch_norm_apply(arg(x), arg(coefficients), arg(output), channels_of(x)); });
  return output;
}

// Joins the statistics [processes, channels] of parts of a batch: the pairwise update of Chan, Golub and LeVeque
// ("Updating formulae and a pairwise algorithm for computing sample variances", 1979), of all parts at once.
Tensors2 batch_norm_gather_stats_with_counts(
    const at::Tensor& input,
    const at::Tensor& mean,
    const at::Tensor& invstd,
    const std::optional<at::Tensor>& running_mean,
    const std::optional<at::Tensor>& running_var,
    double momentum,
    double eps,
    const at::Tensor& counts) {
  constexpr const char* op = "batch_norm_gather_stats_with_counts";
  TORCH_CHECK(mean.dim() == 2, op, ": expected mean to be [processes, channels], but got ", mean.sizes());
  check_sizes(op, "invstd", invstd, mean.sizes());
  check_numel(op, "counts", counts, mean.size(0));
  const auto dtype = statistics_options(mean).dtype();
  const at::Tensor means = mean.to(dtype), weights = counts.to(dtype).reshape({-1, 1}), count = weights.sum();
  const at::Tensor variances = invstd.to(dtype).pow(-2) - eps;
  at::Tensor center = (means * weights).sum(0) / count;
  const at::Tensor squares = ((variances + (means - center).square()) * weights).sum(0);
  update(running_mean, center, momentum);
  update(running_var, squares / (count - 1), momentum);
  return {std::move(center), (squares / count + eps).rsqrt()};
}

Tensors2 batch_norm_gather_stats(
    const at::Tensor& input,
    const at::Tensor& mean,
    const at::Tensor& invstd,
    const std::optional<at::Tensor>& running_mean,
    const std::optional<at::Tensor>& running_var,
    double momentum,
    double eps,
    int64_t count) {
  TORCH_CHECK(
      mean.dim() == 2, "batch_norm_gather_stats: expected mean to be [processes, channels], but got ", mean.sizes());
  const at::Tensor counts = at::full({mean.size(0)}, count, statistics_options(mean));
  return native::batch_norm_gather_stats_with_counts(
      input, mean, invstd, running_mean, running_var, momentum, eps, counts);
}

// Sums of dy and of dy * (x - mean), and the gradients of weight and bias, each undefined unless it is asked for.
std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor> batch_norm_backward_reduce(
    const at::Tensor& grad_out,
    const at::Tensor& input,
    const at::Tensor& mean,
    const at::Tensor& invstd,
    const std::optional<at::Tensor>& weight,
    bool input_g,
    bool weight_g,
    bool bias_g) {
  constexpr const char* op = "batch_norm_backward_reduce";
  check_input(op, input);
  check_sizes(op, "grad_out", grad_out, input.sizes());
  check_dtype(op, "grad_out", grad_out, input.scalar_type());
  TORCH_CHECK(mean.scalar_type() == invstd.scalar_type(), "mean and invstd need to have the same data types");
  const at::MemoryFormat format = input.suggest_memory_format();
  const at::Tensor grad = grad_out.contiguous(format), x = input.contiguous(format), absent;
  const at::Tensor center = per_channel(op, "mean", mean, input), rstd = per_channel(op, "invstd", invstd, input);
  const at::Tensor products = at::zeros({input.size(1)}, center.options()), sums = at::zeros_like(products);
  checked([&] {
    bridge::batch_norm_backward(
        arg(grad), arg(x), arg(absent), {{arg(center), arg(rstd)}, {arg(absent), arg(absent)}, true, 0}, arg(absent),
        {arg(products), arg(sums)}, channels_of(x));
  });
  const at::ScalarType parameter =
      weight.has_value() && weight->defined() ? weight->scalar_type() : input.scalar_type();
  return {
      input_g ? sums.to(mean.scalar_type()) : at::Tensor(),
      input_g ? (products / rstd).to(mean.scalar_type()) : at::Tensor(),
      weight_g ? products.to(parameter) : at::Tensor(),
      bias_g ? sums.to(parameter, /*non_blocking=*/false, /*copy=*/true) : at::Tensor()};
}

// The gradient of the input: (dy - sum_dy / n - (x - mean) * invstd^2 * sum_dy_xmu / n) * invstd * weight, where n is
// the sum of `count`, the elements that share a channel in each process.
at::Tensor batch_norm_backward_elemt(
    const at::Tensor& grad_out,
    const at::Tensor& input,
    const at::Tensor& mean,
    const at::Tensor& invstd,
    const std::optional<at::Tensor>& weight,
    const at::Tensor& sum_dy,
    const at::Tensor& sum_dy_xmu,
    const at::Tensor& count) {
  constexpr const char* op = "batch_norm_backward_elemt";
  check_input(op, input);
  check_sizes(op, "grad_out", grad_out, input.sizes());
  check_dtype(op, "grad_out", grad_out, input.scalar_type());
  TORCH_CHECK(mean.scalar_type() == invstd.scalar_type(), "mean and invstd need to have the same data types");
  const at::MemoryFormat format = input.suggest_memory_format();
  const at::Tensor grad = grad_out.contiguous(format), x = input.contiguous(format);
  const at::Tensor center = per_channel(op, "mean", mean, input), rstd = per_channel(op, "invstd", invstd, input);
  const at::Tensor sums = per_channel(op, "sum_dy", sum_dy, input);
  const at::Tensor products = per_channel(op, "sum_dy_xmu", sum_dy_xmu, input);
  const at::Tensor scale = per_channel(op, "weight", weight, input), factor = scale.defined() ? rstd * scale : rstd;
  const at::Tensor per_element = -factor / count.sum().to(center.scalar_type());
  const at::Tensor coefficients =
      at::stack({factor, per_element * products * rstd.square(), center, per_element * sums});
  at::Tensor grad_input = at::empty_like(x);
  checked([&] {
    bridge::batch_norm_apply_backward(arg(grad), arg(x), arg(coefficients), arg(grad_input), channels_of(x));
  });
  return grad_input;
}

} // namespace torch_opencl::native
