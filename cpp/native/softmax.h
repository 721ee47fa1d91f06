// Softmax and log-softmax.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/ops/_log_softmax_backward_data_meta.h>
#include <ATen/ops/_log_softmax_meta.h>
#include <ATen/ops/_softmax_backward_data_meta.h>
#include <ATen/ops/_softmax_meta.h>

namespace torch_opencl::native {

struct softmax_out : at::meta::structured__softmax {
  void impl(const at::Tensor& self, int64_t dim, bool half_to_float, const at::Tensor& result);
};
struct log_softmax_out : at::meta::structured__log_softmax {
  void impl(const at::Tensor& self, int64_t dim, bool half_to_float, const at::Tensor& result);
};
struct softmax_backward_out : at::meta::structured__softmax_backward_data {
  void impl(
      const at::Tensor& grad_output,
      const at::Tensor& output,
      int64_t dim,
      at::ScalarType input_dtype,
      const at::Tensor& grad_input);
};
struct log_softmax_backward_out : at::meta::structured__log_softmax_backward_data {
  void impl(
      const at::Tensor& grad_output,
      const at::Tensor& output,
      int64_t dim,
      at::ScalarType input_dtype,
      const at::Tensor& grad_input);
};

} // namespace torch_opencl::native
