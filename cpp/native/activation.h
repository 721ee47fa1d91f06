// Activations whose ATen kernels do not go through a stub that another device can fill.
#pragma once

#include <ATen/core/Generator.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/gelu_backward_meta.h>
#include <ATen/ops/gelu_meta.h>

namespace torch_opencl::native {

struct gelu_out : at::meta::structured_gelu {
  void impl(const at::Tensor& self, std::string_view approximate, const at::Tensor& out);
};

struct gelu_backward_out : at::meta::structured_gelu_backward {
  void impl(const at::Tensor& grad, const at::Tensor& self, std::string_view approximate, const at::Tensor& grad_input);
};

// The second result, which CPU code uses to save exp(-|x|) for the backward, is empty here: it costs less to compute it
// again than to store and load it.
std::tuple<at::Tensor, at::Tensor> log_sigmoid_forward(const at::Tensor& self);
std::tuple<at::Tensor&, at::Tensor&> log_sigmoid_forward(
    const at::Tensor& self, at::Tensor& output, at::Tensor& buffer);
at::Tensor log_sigmoid_backward(const at::Tensor& grad, const at::Tensor& self, const at::Tensor& buffer);
at::Tensor& log_sigmoid_backward(
    const at::Tensor& grad, const at::Tensor& self, const at::Tensor& buffer, at::Tensor& grad_input);

std::tuple<at::Tensor, at::Tensor> prelu_backward(
    const at::Tensor& grad_output, const at::Tensor& self, const at::Tensor& weight);

at::Tensor rrelu_with_noise(
    const at::Tensor& self,
    at::Tensor& noise,
    const at::Scalar& lower,
    const at::Scalar& upper,
    bool training,
    std::optional<at::Generator> generator);
at::Tensor& rrelu_with_noise_out(
    const at::Tensor& self,
    at::Tensor& noise,
    const at::Scalar& lower,
    const at::Scalar& upper,
    bool training,
    std::optional<at::Generator> generator,
    at::Tensor& out);
at::Tensor& rrelu_with_noise_(
    at::Tensor& self,
    at::Tensor& noise,
    const at::Scalar& lower,
    const at::Scalar& upper,
    bool training,
    std::optional<at::Generator> generator);

} // namespace torch_opencl::native
