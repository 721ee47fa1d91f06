#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/zeros.h>

#include "native/check.h"
#include "native/contiguous.h"
#include "native/norm.h"
#include "runtime/error.h"
#include "runtime/tensor_arg.h"
#include "torch_opencl/rust/ops/norm/batch_norm.rs.h"

namespace torch_opencl::native {
namespace {

// A running statistic that the kernel updates: itself, or a dense copy that is written back.
class Running {
 public:
  explicit Running(const at::Tensor& given) : given_(given) {
    materialize(given);
    dense_ = contiguous(given);
  }
  const at::Tensor& tensor() const {
    return dense_;
  }
  void finish() const {
    if (given_.defined() && !dense_.is_same(given_)) given_.copy_(dense_);
  }

 private:
  at::Tensor given_, dense_;
};

// Two vectors with a value for each channel: mean and invstd (or variance), or weight and bias.
void check_channels(
    const char* op, const at::Tensor& input, const char* names, const at::Tensor& a, const at::Tensor& b) {
  TORCH_CHECK(input.dim() >= 2, op, ": expected at least 2 dimensions, got ", input.sizes());
  check_numel(op, names, a, input.size(1));
  check_numel(op, names, b, input.size(1));
  if (a.defined()) check_dtype(op, names, b, a.scalar_type());
}

// Takes the arguments that all forms share.
template <class Op>
Tensors3 forward(
    const Arguments<Op>& args, const at::Tensor& running_mean, const at::Tensor& running_var, bool training) {
  const at::Tensor& input = args.input;
  const at::Tensor weight = value_of(args.weight), bias = value_of(args.bias);
  check_channels("batch_norm", input, "weight and bias", weight, bias);
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
          {arg(mean.tensor()), arg(var.tensor())}, shape, {args.momentum, args.eps});
    } else {
      bridge::batch_norm_evaluation(
          arg(x), {arg(scale), arg(shift)}, arg(output), {arg(mean.tensor()), arg(var.tensor())}, shape, args.eps);
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
Tensors3 native_batch_norm(const Arguments<at::_ops::native_batch_norm>& args) {
  return forward(args, value_of(args.running_mean), value_of(args.running_var), args.training);
}

Tensors3 native_batch_norm_legit(const Arguments<at::_ops::_native_batch_norm_legit>& args) {
  return forward(args, args.running_mean, args.running_var, args.training);
}

Tensors3 native_batch_norm_legit_no_stats(const Arguments<at::_ops::_native_batch_norm_legit_no_stats>& args) {
  return forward(args, {}, {}, args.training);
}

Returns<at::_ops::_batch_norm_with_update> batch_norm_with_update(
    const Arguments<at::_ops::_batch_norm_with_update>& args) {
  auto [output, save_mean, save_rstd] = forward(args, args.running_mean, args.running_var, /*training=*/true);
  at::Tensor reserve = at::empty({0}, args.input.options().dtype(at::kByte));
  return {std::move(output), std::move(save_mean), std::move(save_rstd), std::move(reserve)};
}

Tensors3 native_batch_norm_backward(const Arguments<at::_ops::native_batch_norm_backward>& args) {
  const at::Tensor &input = args.input, &grad_out = args.grad_out;
  const bool training = args.train;
  const at::MemoryFormat format = input.suggest_memory_format();
  const at::Tensor grad = grad_out.contiguous(format), x = input.contiguous(format), scale = contiguous(args.weight);
  // Saved statistics in training, running ones in evaluation.
  const at::Tensor mean = contiguous(training ? args.save_mean : args.running_mean), absent,
                   invstd = training ? contiguous(args.save_invstd) : absent,
                   var = training ? absent : contiguous(args.running_var);
  constexpr const char* op = "batch_norm_backward";
  check_sizes(op, "grad_out", grad_out, input.sizes());
  check_dtype(op, "grad_out", grad_out, input.scalar_type());
  check_channels(op, input, "weight", scale, {});
  check_channels(op, input, "statistics", mean, training ? invstd : var);
  TORCH_CHECK(mean.defined() && (invstd.defined() || var.defined()), op, ": mean and variance must be given");
  const auto parameter = (scale.defined() ? scale : x).options().memory_format(at::MemoryFormat::Contiguous);
  const auto sums = [&](bool wanted) { return wanted ? at::zeros({input.size(1)}, parameter) : at::Tensor(); };
  at::Tensor grad_input = args.output_mask[0] ? at::empty_like(x) : at::Tensor(),
             grad_weight = sums(args.output_mask[1]), grad_bias = sums(args.output_mask[2]);
  checked([&] {
    bridge::batch_norm_backward(
        arg(grad), arg(x), arg(scale), {{arg(mean), arg(invstd)}, {arg(mean), arg(var)}, training, args.eps},
        arg(grad_input), {arg(grad_weight), arg(grad_bias)}, channels_of(x));
  });
  return {std::move(grad_input), std::move(grad_weight), std::move(grad_bias)};
}

Tensors3 batch_norm_backward(const Arguments<at::_ops::batch_norm_backward>& args) {
  return native::native_batch_norm_backward(
      {args.grad_out, args.input, args.weight, args.running_mean, args.running_var, args.save_mean, args.save_var,
       args.update, args.eps, args.output_mask});
}

} // namespace torch_opencl::native
