#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/zeros.h>

#include "../error.h"
#include "../tensor_arg.h"
#include "check.h"
#include "contiguous.h"
#include "norm.h"
#include "torch_opencl/rust/ops/norm/batch_norm.rs.h"

namespace torch_opencl::native {
namespace {

// A running statistic that the kernel updates: itself, or a dense copy that is written back.
class Running {
 public:
  explicit Running(const at::Tensor& given) : given_(given), dense_(given.defined() ? given.contiguous() : given) {}
  const at::Tensor& tensor() const {
    return dense_;
  }
  void finish() const {
    if (given_.defined() && !dense_.is_same(given_)) given_.copy_(dense_);
  }

 private:
  at::Tensor given_, dense_;
};

at::Tensor value_of(const std::optional<at::Tensor>& tensor) {
  return tensor.has_value() ? *tensor : at::Tensor();
}

// Two vectors with a value for each channel: mean and invstd (or variance), or weight and bias.
void check_channels(
    const char* op, const at::Tensor& input, const char* names, const at::Tensor& a, const at::Tensor& b) {
  TORCH_CHECK(input.dim() >= 2, op, ": expected at least 2 dimensions, got ", input.sizes());
  check_numel(op, names, a, input.size(1));
  check_numel(op, names, b, input.size(1));
  if (a.defined()) check_dtype(op, names, b, a.scalar_type());
}

Tensors3 forward(
    const at::Tensor& input,
    const std::optional<at::Tensor>& weight,
    const std::optional<at::Tensor>& bias,
    const at::Tensor& running_mean,
    const at::Tensor& running_var,
    bool training,
    double momentum,
    double eps) {
  check_channels("batch_norm", input, "weight and bias", value_of(weight), value_of(bias));
  check_channels("batch_norm", input, "running statistics", running_mean, running_var);
  TORCH_CHECK(
      training || (running_mean.defined() && running_var.defined()),
      "batch_norm: running_mean and running_var must be given in evaluation mode");
  const at::Tensor x = input.contiguous(input.suggest_memory_format()), scale = contiguous(weight),
                   shift = contiguous(bias);
  at::Tensor output = at::empty_like(x);
  const auto statistics = statistics_options(input);
  const at::DimVector sizes{training ? input.size(1) : 0};
  at::Tensor save_mean = at::empty(sizes, statistics), save_rstd = at::empty(sizes, statistics);
  const Running mean(running_mean), var(running_var);
  const bridge::NormShape shape = channels_of(x);
  checked([&] {
    if (training) {
      bridge::batch_norm_training(
          arg(x), {arg(scale), arg(shift)}, arg(output), {arg(save_mean), arg(save_rstd)},
          {arg(mean.tensor()), arg(var.tensor())}, shape, {momentum, eps});
    } else {
      bridge::batch_norm_evaluation(
          arg(x), {arg(scale), arg(shift)}, arg(output), {arg(mean.tensor()), arg(var.tensor())}, shape, eps);
    }
  });
  if (training) {
    mean.finish();
    var.finish();
  }
  return {std::move(output), std::move(save_mean), std::move(save_rstd)};
}

} // namespace

bridge::NormShape channels_of(const at::Tensor& dense) {
  const int64_t channels = dense.size(1), per_channel = channels == 0 ? 0 : dense.numel() / channels;
  if (dense.is_contiguous()) return {dense.size(0), channels, dense.size(0) == 0 ? 0 : per_channel / dense.size(0)};
  return {per_channel, channels, 1};
}

// Batch norm in the forms that autograd and the compiler call.
Tensors3 native_batch_norm(
    const at::Tensor& input,
    const std::optional<at::Tensor>& weight,
    const std::optional<at::Tensor>& bias,
    const std::optional<at::Tensor>& running_mean,
    const std::optional<at::Tensor>& running_var,
    bool training,
    double momentum,
    double eps) {
  return forward(input, weight, bias, value_of(running_mean), value_of(running_var), training, momentum, eps);
}

Tensors3 native_batch_norm_legit(
    const at::Tensor& input,
    const std::optional<at::Tensor>& weight,
    const std::optional<at::Tensor>& bias,
    at::Tensor& running_mean,
    at::Tensor& running_var,
    bool training,
    double momentum,
    double eps) {
  return forward(input, weight, bias, running_mean, running_var, training, momentum, eps);
}

Tensors3 native_batch_norm_legit_no_stats(
    const at::Tensor& input,
    const std::optional<at::Tensor>& weight,
    const std::optional<at::Tensor>& bias,
    bool training,
    double momentum,
    double eps) {
  return forward(input, weight, bias, {}, {}, training, momentum, eps);
}

std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor> batch_norm_with_update(
    const at::Tensor& input,
    const std::optional<at::Tensor>& weight,
    const std::optional<at::Tensor>& bias,
    at::Tensor& running_mean,
    at::Tensor& running_var,
    double momentum,
    double eps) {
  auto [output, save_mean, save_rstd] =
      forward(input, weight, bias, running_mean, running_var, /*training=*/true, momentum, eps);
  at::Tensor reserve = at::empty({0}, input.options().dtype(at::kByte));
  return {std::move(output), std::move(save_mean), std::move(save_rstd), std::move(reserve)};
}

Tensors3 native_batch_norm_backward(
    const at::Tensor& grad_out,
    const at::Tensor& input,
    const std::optional<at::Tensor>& weight,
    const std::optional<at::Tensor>& running_mean,
    const std::optional<at::Tensor>& running_var,
    const std::optional<at::Tensor>& save_mean,
    const std::optional<at::Tensor>& save_invstd,
    bool training,
    double eps,
    std::array<bool, 3> output_mask) {
  const at::MemoryFormat format = input.suggest_memory_format();
  const at::Tensor grad = grad_out.contiguous(format), x = input.contiguous(format), scale = contiguous(weight);
  // In training the saved statistics, in evaluation the running ones.
  const at::Tensor mean = contiguous(training ? save_mean : running_mean), absent,
                   invstd = training ? contiguous(save_invstd) : absent,
                   var = training ? absent : contiguous(running_var);
  constexpr const char* op = "batch_norm_backward";
  check_sizes(op, "grad_out", grad_out, input.sizes());
  check_dtype(op, "grad_out", grad_out, input.scalar_type());
  check_channels(op, input, "weight", scale, {});
  check_channels(op, input, "statistics", mean, training ? invstd : var);
  TORCH_CHECK(mean.defined() && (invstd.defined() || var.defined()), op, ": mean and variance must be given");
  const auto parameter = (scale.defined() ? scale : x).options().memory_format(at::MemoryFormat::Contiguous);
  const auto sums = [&](bool wanted) { return wanted ? at::zeros({input.size(1)}, parameter) : at::Tensor(); };
  at::Tensor grad_input = output_mask[0] ? at::empty_like(x) : at::Tensor(), grad_weight = sums(output_mask[1]),
             grad_bias = sums(output_mask[2]);
  checked([&] {
    bridge::batch_norm_backward(
        arg(grad), arg(x), arg(scale), {{arg(mean), arg(invstd)}, {arg(mean), arg(var)}, training, eps},
        arg(grad_input), {arg(grad_weight), arg(grad_bias)}, channels_of(x));
  });
  return {std::move(grad_input), std::move(grad_weight), std::move(grad_bias)};
}

Tensors3 batch_norm_backward(
    const at::Tensor& grad_out,
    const at::Tensor& input,
    const at::Tensor& weight,
    const std::optional<at::Tensor>& running_mean,
    const std::optional<at::Tensor>& running_var,
    const std::optional<at::Tensor>& save_mean,
    const std::optional<at::Tensor>& save_var,
    bool update,
    double eps,
    std::array<bool, 3> output_mask,
    const at::Tensor&) {
  return native::native_batch_norm_backward(
      grad_out, input, weight, running_mean, running_var, save_mean, save_var, update, eps, output_mask);
}

} // namespace torch_opencl::native
