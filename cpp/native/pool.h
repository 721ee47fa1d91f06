// Pooling: ops on planes and volumes share their code; those on rows are composed of them by ATen.
#pragma once

#include <ATen/core/DimVector.h>
#include <ATen/core/Tensor.h>
#include <ATen/native/CPUFallback.h>
#include <ATen/ops/avg_pool2d_ops.h>
#include <ATen/ops/avg_pool3d_ops.h>
#include <tuple>

#include "cpu/cpu_call.h"
#include "torch_opencl/rust/ops/pool/mod.rs.h"

namespace torch_opencl::native {

// Parameters of the windows; without sizes they adapt to input and output.
struct PoolWindows {
  explicit PoolWindows(int64_t spatial) : spatial(spatial) {}
  PoolWindows(
      int64_t spatial,
      at::IntArrayRef kernel_size,
      at::IntArrayRef stride,
      at::IntArrayRef padding,
      at::IntArrayRef dilation = 1);

  int64_t spatial;
  at::DimVector kernel_size, stride, padding, dilation;
};

void max_pool(const PoolWindows& windows, const at::Tensor& self, const at::Tensor& output, const at::Tensor& indices);
void max_pool_backward(
    const PoolWindows& windows, const at::Tensor& grad_output, const at::Tensor& indices, const at::Tensor& grad_input);
// Returns true on devices that are the CPU for averages over so few planes that ATen's own function is faster.
bool has_few_planes(const at::Tensor& self, int64_t spatial);
void avg_pool(
    const PoolWindows& windows, const at::Tensor& self, const at::Tensor& output, const bridge::Divisor& divisor = {});
void avg_pool_backward(
    const PoolWindows& windows,
    const at::Tensor& grad_output,
    const at::Tensor& grad_input,
    const bridge::Divisor& divisor = {});

// Two- and three-dimensional ops; `Meta` is ATen's class, `kSpatial` 2 or 3.
template <class Meta, int64_t kSpatial>
struct MaxPool : Meta {
  void impl(
      const at::Tensor& self,
      at::IntArrayRef kernel_size,
      at::IntArrayRef stride,
      at::IntArrayRef padding,
      at::IntArrayRef dilation,
      bool /*ceil_mode*/,
      const at::Tensor& output,
      const at::Tensor& indices) {
    max_pool({kSpatial, kernel_size, stride, padding, dilation}, self, output, indices);
  }
};
template <class Meta, int64_t kSpatial>
struct MaxPoolBackward : Meta {
  void impl(
      const at::Tensor& grad_output,
      const at::Tensor& /*self*/,
      at::IntArrayRef kernel_size,
      at::IntArrayRef stride,
      at::IntArrayRef padding,
      at::IntArrayRef dilation,
      bool /*ceil_mode*/,
      const at::Tensor& indices,
      const at::Tensor& grad_input) {
    max_pool_backward({kSpatial, kernel_size, stride, padding, dilation}, grad_output, indices, grad_input);
  }
};
template <class Meta, int64_t kSpatial>
struct AvgPool : Meta {
  void impl(
      const at::Tensor& self,
      at::IntArrayRef kernel_size,
      at::IntArrayRef stride,
      at::IntArrayRef padding,
      bool ceil_mode,
      bool count_include_pad,
      std::optional<int64_t> divisor_override,
      const at::Tensor& output) {
    if (has_few_planes(self, kSpatial)) {
      using Out = std::conditional_t<kSpatial == 2, at::_ops::avg_pool2d_out, at::_ops::avg_pool3d_out>;
      at::Tensor out = output;
      at::native::call_fallback_fn<&host_kernel, Out>::call(
          self, kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override, out);
      return;
    }
    avg_pool({kSpatial, kernel_size, stride, padding}, self, output, {count_include_pad, divisor_override.value_or(0)});
  }
};
template <class Meta, int64_t kSpatial>
struct AvgPoolBackward : Meta {
  void impl(
      const at::Tensor& grad_output,
      const at::Tensor& /*self*/,
      at::IntArrayRef kernel_size,
      at::IntArrayRef stride,
      at::IntArrayRef padding,
      bool /*ceil_mode*/,
      bool count_include_pad,
      std::optional<int64_t> divisor_override,
      const at::Tensor& grad_input) {
    avg_pool_backward(
        {kSpatial, kernel_size, stride, padding}, grad_output, grad_input,
        {count_include_pad, divisor_override.value_or(0)});
  }
};
template <class Meta, int64_t kSpatial>
struct AdaptiveMaxPool : Meta {
  void impl(
      const at::Tensor& self, at::IntArrayRef /*output_size*/, const at::Tensor& output, const at::Tensor& indices) {
    max_pool(PoolWindows(kSpatial), self, output, indices);
  }
};
template <class Meta, int64_t kSpatial>
struct AdaptiveMaxPoolBackward : Meta {
  void impl(
      const at::Tensor& grad_output,
      const at::Tensor& /*self*/,
      const at::Tensor& indices,
      const at::Tensor& grad_input) {
    max_pool_backward(PoolWindows(kSpatial), grad_output, indices, grad_input);
  }
};

} // namespace torch_opencl::native
