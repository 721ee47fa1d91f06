#include "native/norm.h"

#include <ATen/TensorOperators.h>
#include <ATen/native/layer_norm.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/zeros.h>
#include <limits>
#include <numeric>
#include <optional>

#include "cpu/host_call.h"
#include "native/check.h"
#include "native/contiguous.h"
#include "runtime/error.h"
#include "runtime/tensor_arg.h"
#include "torch_opencl/rust/ops/norm/mod.rs.h"

namespace torch_opencl::native {
namespace {

// A gradient of a weight or bias, if it is needed; zero where there is nothing to sum.
at::Tensor parameter_gradient(bool wanted, at::IntArrayRef sizes, const at::Tensor& like, bool is_empty) {
  if (!wanted) return {};
  const auto options = like.options().memory_format(at::MemoryFormat::Contiguous);
  return is_empty ? at::zeros(sizes, options) : at::empty(sizes, options);
}

// Groups of channels as rows.
template <class Op>
bridge::NormRows group_rows(const Arguments<Op>& args, const at::Tensor& weight, const at::Tensor& bias) {
  const int64_t samples = args.N, channels = args.C, inner = args.HxW, groups = args.group;
  TORCH_CHECK(
      groups > 0 && channels % groups == 0, "group_norm: expected the number of channels, ", channels,
      ", to be divisible by the number of groups, ", groups);
  TORCH_CHECK(samples >= 0 && channels >= 0 && inner >= 0, "group_norm: sizes must not be negative");
  check_numel("group_norm", "input", args.input, samples * channels * inner);
  check_numel("group_norm", "weight", weight, channels);
  check_numel("group_norm", "bias", bias, channels);
  return {samples * groups, channels / groups * inner, groups, inner};
}

// Raises for gradients and statistics that are not those of such rows. An undefined mean stands for rows that were not
// centred.
void check_rows(
    const char* op,
    const at::Tensor& grad_out,
    const at::Tensor& input,
    const at::Tensor& mean,
    const at::Tensor& rstd,
    const bridge::NormRows& rows) {
  check_sizes(op, "grad_out", grad_out, input.sizes());
  check_dtype(op, "grad_out", grad_out, input.scalar_type());
  check_numel(op, "rstd", rstd, rows.count);
  if (!mean.defined()) return;
  check_numel(op, "mean", mean, rows.count);
  check_dtype(op, "rstd", rstd, mean.scalar_type());
}

// Gradients of input, weight and bias; the latter two have the sizes `parameter_sizes`.
Tensors3 rows_backward(
    const char* op,
    const at::Tensor& grad_out,
    const at::Tensor& input,
    const at::Tensor& mean,
    const at::Tensor& rstd,
    const at::Tensor& weight,
    at::IntArrayRef parameter_sizes,
    const bridge::NormRows& rows,
    std::array<bool, 3> output_mask) {
  check_rows(op, grad_out, input, mean, rstd, rows);
  const at::Tensor x = input.contiguous(), grad = grad_out.contiguous(), dense_mean = contiguous(mean),
                   dense_rstd = rstd.contiguous();
  const at::Tensor& like = weight.defined() ? weight : x;
  const bool is_empty = x.numel() == 0;
  at::Tensor grad_input = output_mask[0] ? at::empty_like(x) : at::Tensor();
  at::Tensor grad_weight = parameter_gradient(output_mask[1], parameter_sizes, like, is_empty);
  at::Tensor grad_bias = parameter_gradient(output_mask[2], parameter_sizes, like, is_empty);
  checked([&] {
    bridge::norm_rows_backward(
        arg(grad), arg(x), arg(weight), {arg(dense_mean), arg(dense_rstd)}, arg(grad_input),
        {arg(grad_weight), arg(grad_bias)}, rows);
  });
  return {std::move(grad_input), std::move(grad_weight), std::move(grad_bias)};
}

// The normalised dimensions of layer norm and its like as rows.
bridge::NormRows layer_rows(
    const at::Tensor& input, at::IntArrayRef normalized_shape, const at::Tensor& weight, const at::Tensor& bias = {}) {
  const auto [rows, length] = at::native::_check_layer_norm_inputs(input, normalized_shape, weight, bias);
  return {rows, length, /*groups=*/1, /*inner=*/1};
}

// Sizes of a statistic of each row.
at::DimVector statistic_sizes(const at::Tensor& input, at::IntArrayRef normalized_shape) {
  at::DimVector sizes(input.sizes().slice(0, input.dim() - normalized_shape.size()));
  sizes.append(normalized_shape.size(), 1);
  return sizes;
}

// Memory for a statistic of each row.
at::Tensor row_statistic(const at::Tensor& input, at::IntArrayRef normalized_shape) {
  return at::empty(statistic_sizes(input, normalized_shape), statistics_options(input));
}

// Gradients of a small RMS norm: ATen has no CPU function for them, so they come from the operators that compose it.
std::optional<Tensors2> rms_norm_backward_on_host(
    const at::Tensor& grad_out,
    const at::Tensor& input,
    at::IntArrayRef normalized_shape,
    const at::Tensor& rstd,
    const at::Tensor& weight,
    std::array<bool, 2> output_mask) {
  // Kernels raise if rstd is on the CPU.
  if (!rstd.is_privateuseone()) return std::nullopt;
  HostMemory memory;
  for (const at::Tensor* tensor : {&grad_out, &input, &rstd, &weight}) memory.add(*tensor);
  if (!memory.open() || !memory.has_one_dtype()) return std::nullopt;
  const c10::impl::ExcludeDispatchKeyGuard no_autocast(c10::autocast_dispatch_keyset);
  const OneThread one_thread;
  const at::Tensor grad = memory.view(grad_out), x = memory.view(input);
  const at::Tensor scale = memory.view(rstd).reshape(statistic_sizes(input, normalized_shape));
  const at::Tensor gamma = memory.view(weight);
  at::DimVector outer(input.dim() - normalized_shape.size()), inner(normalized_shape.size());
  std::iota(outer.begin(), outer.end(), 0);
  std::iota(inner.begin(), inner.end(), static_cast<int64_t>(outer.size()));
  const at::Tensor normalized = x * scale;
  at::Tensor grad_input, grad_weight;
  if (output_mask[0]) {
    const at::Tensor grad_normalized = gamma.defined() ? grad * gamma : grad;
    const at::Tensor mean = (grad_normalized * normalized).mean(inner, /*keepdim=*/true);
    grad_input = memory.to_device((grad_normalized - normalized * mean).mul_(scale).contiguous());
  }
  if (output_mask[1]) {
    const at::Tensor summands = grad * normalized;
    grad_weight = memory.to_device((outer.empty() ? summands : summands.sum(outer)).contiguous());
  }
  return Tensors2{std::move(grad_input), std::move(grad_weight)};
}

} // namespace

at::TensorOptions statistics_options(const at::Tensor& input) {
  const at::ScalarType dtype = input.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
  return input.options().dtype(dtype).memory_format(at::MemoryFormat::Contiguous);
}

Tensors3 native_layer_norm(
    const at::Tensor& input,
    at::IntArrayRef normalized_shape,
    const std::optional<at::Tensor>& weight,
    const std::optional<at::Tensor>& bias,
    double eps) {
  const at::Tensor scale = contiguous(weight), shift = contiguous(bias);
  const bridge::NormRows rows = layer_rows(input, normalized_shape, scale, shift);
  const at::Tensor x = input.contiguous();
  at::Tensor output = at::empty_like(x);
  at::Tensor mean = row_statistic(input, normalized_shape), rstd = at::empty_like(mean);
  checked([&] { bridge::norm_rows(arg(x), {arg(scale), arg(shift)}, arg(output), {arg(mean), arg(rstd)}, rows, eps); });
  return {std::move(output), std::move(mean), std::move(rstd)};
}

Tensors3 native_layer_norm_backward(const Arguments<at::_ops::native_layer_norm_backward>& args) {
  const at::Tensor scale = contiguous(args.weight), shift = contiguous(args.bias);
  return rows_backward(
      "layer_norm_backward", args.grad_out, args.input, args.mean, args.rstd, scale, args.normalized_shape,
      layer_rows(args.input, args.normalized_shape, scale, shift), args.output_mask);
}

Tensors2 fused_rms_norm(
    const at::Tensor& input,
    at::IntArrayRef normalized_shape,
    const std::optional<at::Tensor>& weight,
    std::optional<double> eps) {
  const at::Tensor scale = contiguous(weight), absent;
  const bridge::NormRows rows = layer_rows(input, normalized_shape, scale);
  const at::Tensor x = input.contiguous();
  at::Tensor output = at::empty_like(x), rstd = row_statistic(input, normalized_shape);
  const bool is_double = rstd.scalar_type() == at::kDouble;
  const double smallest =
      eps.value_or(is_double ? std::numeric_limits<double>::epsilon() : std::numeric_limits<float>::epsilon());
  checked([&] {
    bridge::norm_rows(arg(x), {arg(scale), arg(absent)}, arg(output), {arg(absent), arg(rstd)}, rows, smallest);
  });
  return {std::move(output), std::move(rstd)};
}

Tensors2 fused_rms_norm_backward(
    const at::Tensor& grad_out,
    const at::Tensor& input,
    at::IntArrayRef normalized_shape,
    const at::Tensor& rstd,
    const std::optional<at::Tensor>& weight,
    std::array<bool, 2> output_mask) {
  const at::Tensor scale = contiguous(weight);
  const bridge::NormRows rows = layer_rows(input, normalized_shape, scale);
  check_rows("rms_norm_backward", grad_out, input, /*mean=*/{}, rstd, rows);
  if (auto gradients = rms_norm_backward_on_host(grad_out, input, normalized_shape, rstd, scale, output_mask))
    return *std::move(gradients);
  auto [grad_input, grad_weight, unused] = rows_backward(
      "rms_norm_backward", grad_out, input, /*mean=*/{}, rstd, scale, normalized_shape, rows,
      {output_mask[0], output_mask[1], false});
  return {std::move(grad_input), std::move(grad_weight)};
}

Tensors3 native_group_norm(const Arguments<at::_ops::native_group_norm>& args) {
  const at::Tensor x = args.input.contiguous(), scale = contiguous(args.weight), shift = contiguous(args.bias);
  const bridge::NormRows rows = group_rows(args, scale, shift);
  at::Tensor output = at::empty_like(x);
  at::Tensor mean = at::empty({args.N, args.group}, statistics_options(x)), rstd = at::empty_like(mean);
  checked([&] {
    bridge::norm_rows(arg(x), {arg(scale), arg(shift)}, arg(output), {arg(mean), arg(rstd)}, rows, args.eps);
  });
  return {std::move(output), std::move(mean), std::move(rstd)};
}

Tensors3 native_group_norm_backward(const Arguments<at::_ops::native_group_norm_backward>& args) {
  const at::Tensor scale = contiguous(args.weight);
  return rows_backward(
      "group_norm_backward", args.grad_out, args.input, args.mean, args.rstd, scale, args.C,
      group_rows(args, scale, {}), args.output_mask);
}

} // namespace torch_opencl::native
