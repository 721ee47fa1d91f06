#include "entries/loss.h"

#include <ATen/core/Reduction.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/nll_loss2d_backward_ops.h>

#include "cpu/host_call.h"
#include "native/contiguous.h"
#include "runtime/error.h"
#include "runtime/tensor_arg.h"
#include "torch_opencl/rust/ops/loss/mod.rs.h"

namespace torch_opencl::native {
namespace {

bridge::Reduction reduction_of(int64_t reduction) {
  TORCH_CHECK(
      reduction >= at::Reduction::None && reduction < at::Reduction::END, "OpenCL: ", reduction,
      " is not a reduction of losses");
  return static_cast<bridge::Reduction>(reduction);
}

// Targets and weights of the classes of `self`, of shape [classes], [samples, classes] or [samples, classes, ...].
struct Classes {
  Classes(const at::Tensor& self, const at::Tensor& target, const at::Tensor& weight, int64_t ignore_index)
      : target(target.contiguous()), weight(contiguous(weight)), ignored(ignore_index) {
    const int64_t dim = self.dim() == 1 ? 0 : 1;
    count = self.size(dim);
    for (int64_t d = dim + 1; d < self.dim(); d++) inner *= self.size(d);
  }

  bridge::Classes args() const {
    return {arg(target), arg(weight), ignored, count, inner};
  }

  at::Tensor target, weight;
  int64_t ignored, count, inner = 1;
};

void likelihood(
    const at::Tensor& self,
    const Classes& classes,
    int64_t reduction,
    const at::Tensor& output,
    const at::Tensor& total_weight) {
  // Integers among the op's dtypes are for the targets.
  TORCH_CHECK_NOT_IMPLEMENTED(
      at::isFloatingType(self.scalar_type()), "\"nll_loss\" not implemented for '", self.scalar_type(), "'");
  const ContiguousOutput loss(output);
  const at::Tensor input = self.contiguous();
  checked([&] {
    bridge::nll_loss(arg(input), classes.args(), reduction_of(reduction), arg(loss.tensor()), arg(total_weight));
  });
  loss.finish();
}

void likelihood_backward(
    const at::Tensor& grad_output,
    const Classes& classes,
    int64_t reduction,
    const at::Tensor& total_weight,
    const at::Tensor& result) {
  const ContiguousOutput grad_input(result);
  const at::Tensor grad = grad_output.contiguous();
  checked([&] {
    bridge::nll_loss_backward(
        arg(grad), classes.args(), reduction_of(reduction), arg(total_weight), arg(grad_input.tensor()));
  });
  grad_input.finish();
}

void check_nll_loss2d(const at::Tensor& self, const at::Tensor& target, const at::Tensor& weight) {
  TORCH_CHECK(
      target.dim() == 3,
      "only batches of spatial targets supported (3D tensors) but got targets of dimension: ", target.dim());
  TORCH_CHECK(
      self.dim() == 4,
      "only batches of spatial inputs supported (4D tensors), but got input of dimension: ", self.dim());
  TORCH_CHECK(
      !weight.defined() || weight.numel() == self.size(1),
      "weight tensor should be defined either for all or no classes");
  TORCH_CHECK(
      self.size(0) == target.size(0) && self.size(2) == target.size(1) && self.size(3) == target.size(2),
      "size mismatch (got input: ", self.sizes(), " , target: ", target.sizes());
}

// Operands of a binary cross entropy, as kernels take them.
struct Elements {
  Elements(const at::Tensor& self, const at::Tensor& target, const at::Tensor& given_weight)
      : input(self.contiguous()), target(target.to(self.scalar_type()).contiguous()) {
    if (given_weight.defined()) weight = given_weight.to(self.scalar_type()).expand_as(self).contiguous();
  }

  at::Tensor input, target, weight;
};

at::Tensor element_losses(const at::Tensor& self, const at::Tensor& target, const std::optional<at::Tensor>& weight) {
  TORCH_CHECK(
      self.sizes() == target.sizes(), "Using a target size (", target.sizes(),
      ") that is different to the input size (", self.sizes(),
      ") is deprecated. Please ensure they have the same size.");
  const Elements each(self, target, value_of(weight));
  at::Tensor loss = at::empty_like(each.input);
  checked([&] { bridge::binary_cross_entropy(arg(each.input), arg(each.target), arg(each.weight), arg(loss)); });
  return loss;
}

} // namespace

void nll_loss_forward_out::impl(
    const at::Tensor& self,
    const at::Tensor& target,
    at::OptionalTensorRef weight,
    int64_t reduction,
    int64_t ignore_index,
    const at::Tensor& output,
    const at::Tensor& total_weight) {
  likelihood(self, Classes(self, target, value_of(weight), ignore_index), reduction, output, total_weight);
}

void nll_loss_backward_out::impl(
    const at::Tensor& grad_output,
    const at::Tensor& self,
    const at::Tensor& target,
    at::OptionalTensorRef weight,
    int64_t reduction,
    int64_t ignore_index,
    const at::Tensor& total_weight,
    const at::Tensor& grad_input) {
  const Classes classes(self, target, value_of(weight), ignore_index);
  likelihood_backward(grad_output, classes, reduction, total_weight, grad_input);
}

std::tuple<at::Tensor, at::Tensor> nll_loss2d_forward(
    const at::Tensor& self,
    const at::Tensor& target,
    const std::optional<at::Tensor>& weight,
    int64_t reduction,
    int64_t ignore_index) {
  check_nll_loss2d(self, target, value_of(weight));
  const bool each = reduction == at::Reduction::None;
  at::Tensor output = at::empty(each ? target.sizes() : at::IntArrayRef{}, self.options());
  at::Tensor total_weight = at::empty({}, self.options());
  likelihood(self, Classes(self, target, value_of(weight), ignore_index), reduction, output, total_weight);
  return {std::move(output), std::move(total_weight)};
}

at::Tensor nll_loss2d_backward(const Arguments<at::_ops::nll_loss2d_backward>& args) {
  const at::Tensor weight = value_of(args.weight);
  check_nll_loss2d(args.self, args.target, weight);
  // The CPU's function rejects an input that is not contiguous and, without a reduction, does not check classes.
  if (args.self.is_contiguous() && args.reduction != at::Reduction::None) {
    auto gradient = attempt_on_host<at::_ops::nll_loss2d_backward, Cost::Table>(
        args.grad_output, args.self, args.target, args.weight, args.reduction, args.ignore_index, args.total_weight);
    if (gradient.has_value()) return std::move(*gradient);
  }
  at::Tensor grad_input = at::empty_like(args.self, at::MemoryFormat::Contiguous);
  const Classes classes(args.self, args.target, weight, args.ignore_index);
  likelihood_backward(args.grad_output, classes, args.reduction, args.total_weight, grad_input);
  return grad_input;
}

at::Tensor binary_cross_entropy(
    const at::Tensor& self, const at::Tensor& target, const std::optional<at::Tensor>& weight, int64_t reduction) {
  const at::Tensor losses = element_losses(self, target, weight);
  if (reduction == at::Reduction::Mean) return losses.mean();
  return reduction == at::Reduction::Sum ? losses.sum() : losses;
}

at::Tensor binary_cross_entropy_backward(
    const at::Tensor& grad_output,
    const at::Tensor& self,
    const at::Tensor& target,
    const std::optional<at::Tensor>& weight,
    int64_t reduction) {
  const Elements each(self, target, value_of(weight));
  // One gradient serves all elements if the loss was reduced.
  const at::Tensor grad = (grad_output.numel() == 1 ? grad_output : grad_output.expand_as(self)).contiguous();
  at::Tensor grad_input = at::empty_like(each.input);
  const double share = reduction == at::Reduction::Mean ? 1.0 / static_cast<double>(self.numel()) : 1.0;
  checked([&] {
    bridge::binary_cross_entropy_backward(
        arg(grad), arg(each.input), arg(each.target), arg(each.weight), arg(grad_input), share);
  });
  return grad_input;
}

} // namespace torch_opencl::native
