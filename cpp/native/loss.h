// Losses that are not element-wise arithmetic alone.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/ops/nll_loss_backward_meta.h>
#include <ATen/ops/nll_loss_forward_meta.h>
#include <tuple>

namespace torch_opencl::native {

struct nll_loss_forward_out : at::meta::structured_nll_loss_forward {
  void impl(
      const at::Tensor& self,
      const at::Tensor& target,
      at::OptionalTensorRef weight,
      int64_t reduction,
      int64_t ignore_index,
      const at::Tensor& output,
      const at::Tensor& total_weight);
};
struct nll_loss_backward_out : at::meta::structured_nll_loss_backward {
  void impl(
      const at::Tensor& grad_output,
      const at::Tensor& self,
      const at::Tensor& target,
      at::OptionalTensorRef weight,
      int64_t reduction,
      int64_t ignore_index,
      const at::Tensor& total_weight,
      const at::Tensor& grad_input);
};

std::tuple<at::Tensor, at::Tensor> nll_loss2d_forward(
    const at::Tensor& self,
    const at::Tensor& target,
    const std::optional<at::Tensor>& weight,
    int64_t reduction,
    int64_t ignore_index);
std::tuple<at::Tensor&, at::Tensor&> nll_loss2d_forward_out(
    const at::Tensor& self,
    const at::Tensor& target,
    const std::optional<at::Tensor>& weight,
    int64_t reduction,
    int64_t ignore_index,
    at::Tensor& output,
    at::Tensor& total_weight);
at::Tensor& nll_loss2d_backward_out(
    const at::Tensor& grad_output,
    const at::Tensor& self,
    const at::Tensor& target,
    const std::optional<at::Tensor>& weight,
    int64_t reduction,
    int64_t ignore_index,
    const at::Tensor& total_weight,
    at::Tensor& grad_input);
at::Tensor nll_loss2d_backward(
    const at::Tensor& grad_output,
    const at::Tensor& self,
    const at::Tensor& target,
    const std::optional<at::Tensor>& weight,
    int64_t reduction,
    int64_t ignore_index,
    const at::Tensor& total_weight);
at::Tensor binary_cross_entropy(
    const at::Tensor& self, const at::Tensor& target, const std::optional<at::Tensor>& weight, int64_t reduction);
at::Tensor& binary_cross_entropy_out(
    const at::Tensor& self,
    const at::Tensor& target,
    const std::optional<at::Tensor>& weight,
    int64_t reduction,
    at::Tensor& out);
at::Tensor binary_cross_entropy_backward(
    const at::Tensor& grad_output,
    const at::Tensor& self,
    const at::Tensor& target,
    const std::optional<at::Tensor>& weight,
    int64_t reduction);
at::Tensor& binary_cross_entropy_backward_out(
    const at::Tensor& grad_output,
    const at::Tensor& self,
    const at::Tensor& target,
    const std::optional<at::Tensor>& weight,
    int64_t reduction,
    at::Tensor& grad_input);

} // namespace torch_opencl::native
