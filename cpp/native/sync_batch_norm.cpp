// The operators of torch.nn.SyncBatchNorm: batch norm with the statistics of several processes, which exchange data
// between these operators. Statistics are in the dtype of the computation.
#include <ATen/TensorOperators.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/full.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>
#include <algorithm>
#include <limits>

#include "entries/composite.h"
#include "native/check.h"
#include "native/contiguous.h"
#include "native/norm.h"
#include "runtime/error.h"
#include "runtime/tensor_arg.h"
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

// Arguments of the backward pass, as kernels take them.
struct Backward {
  template <class Op>
  Backward(const char* op, const Arguments<Op>& args) {
    check_input(op, args.input);
    check_sizes(op, "grad_out", args.grad_out, args.input.sizes());
    check_dtype(op, "grad_out", args.grad_out, args.input.scalar_type());
    TORCH_CHECK(
        args.mean.scalar_type() == args.invstd.scalar_type(), "mean and invstd need to have the same data types");
    const at::MemoryFormat format = args.input.suggest_memory_format();
    grad = args.grad_out.contiguous(format);
    x = args.input.contiguous(format);
    mean = per_channel(op, "mean", args.mean, args.input);
    invstd = per_channel(op, "invstd", args.invstd, args.input);
  }

  at::Tensor grad, x, mean, invstd;
};

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
Tensors2 batch_norm_gather_stats_with_counts(const Arguments<at::_ops::batch_norm_gather_stats_with_counts>& args) {
  const at::Tensor &mean = args.mean, &invstd = args.invstd, &counts = args.counts;
  constexpr const char* op = "batch_norm_gather_stats_with_counts";
  TORCH_CHECK(mean.dim() == 2, op, ": expected mean to be [processes, channels], but got ", mean.sizes());
  check_sizes(op, "invstd", invstd, mean.sizes());
  check_numel(op, "counts", counts, mean.size(0));
  const auto dtype = statistics_options(mean).dtype();
  const at::Tensor means = mean.to(dtype), weights = counts.to(dtype).reshape({-1, 1}), count = weights.sum();
  const at::Tensor variances = invstd.to(dtype).pow(-2) - args.eps;
  at::Tensor center = (means * weights).sum(0) / count;
  const at::Tensor squares = ((variances + (means - center).square()) * weights).sum(0);
  update(args.running_mean, center, args.momentum);
  update(args.running_var, squares / (count - 1), args.momentum);
  return {std::move(center), (squares / count + args.eps).rsqrt()};
}

Tensors2 batch_norm_gather_stats(const Arguments<at::_ops::batch_norm_gather_stats>& args) {
  const at::Tensor& mean = args.mean;
  TORCH_CHECK(
      mean.dim() == 2, "batch_norm_gather_stats: expected mean to be [processes, channels], but got ", mean.sizes());
  const at::Tensor counts = at::full({mean.size(0)}, args.count, statistics_options(mean));
  return native::batch_norm_gather_stats_with_counts(
      {args.input, mean, args.invstd, args.running_mean, args.running_var, args.momentum, args.eps, counts});
}

// Sums of dy and of dy * (x - mean), and the gradients of weight and bias, each undefined unless it is asked for.
Returns<at::_ops::batch_norm_backward_reduce> batch_norm_backward_reduce(
    const Arguments<at::_ops::batch_norm_backward_reduce>& args) {
  const Backward of("batch_norm_backward_reduce", args);
  const at::Tensor products = at::zeros({args.input.size(1)}, of.mean.options()), sums = at::zeros_like(products),
                   absent;
  checked([&] {
    bridge::batch_norm_backward(
        arg(of.grad), arg(of.x), arg(absent), {{arg(of.mean), arg(of.invstd)}, {arg(absent), arg(absent)}, true, 0},
        arg(absent), {arg(products), arg(sums)}, channels_of(of.x));
  });
  const at::Tensor weight = value_of(args.weight);
  const at::ScalarType parameter = weight.defined() ? weight.scalar_type() : args.input.scalar_type();
  return {
      args.input_g ? sums.to(args.mean.scalar_type()) : at::Tensor(),
      args.input_g ? (products / of.invstd).to(args.mean.scalar_type()) : at::Tensor(),
      args.weight_g ? products.to(parameter) : at::Tensor(),
      args.bias_g ? sums.to(parameter, /*non_blocking=*/false, /*copy=*/true) : at::Tensor()};
}

// The gradient of the input: (dy - sum_dy / n - (x - mean) * invstd^2 * sum_dy_xmu / n) * invstd * weight, where n is
// the sum of `count`, the elements that share a channel in each process.
at::Tensor batch_norm_backward_elemt(const Arguments<at::_ops::batch_norm_backward_elemt>& args) {
  constexpr const char* op = "batch_norm_backward_elemt";
  const Backward of(op, args);
  const at::Tensor sums = per_channel(op, "sum_dy", args.sum_dy, args.input);
  const at::Tensor products = per_channel(op, "sum_dy_xmu", args.sum_dy_xmu, args.input);
  const at::Tensor scale = per_channel(op, "weight", args.weight, args.input),
                   factor = scale.defined() ? of.invstd * scale : of.invstd;
  const at::Tensor per_element = -factor / args.count.sum().to(of.mean.scalar_type());
  const at::Tensor coefficients =
      at::stack({factor, per_element * products * of.invstd.square(), of.mean, per_element * sums});
  at::Tensor grad_input = at::empty_like(of.x);
  checked([&] {
    bridge::batch_norm_apply_backward(arg(of.grad), arg(of.x), arg(coefficients), arg(grad_input), channels_of(of.x));
  });
  return grad_input;
}

} // namespace torch_opencl::native
