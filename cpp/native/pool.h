// Pooling: ops on planes and volumes share their code; those on rows are composed of them by ATen.
#pragma once

#include <ATen/core/Tensor.h>
#include <tuple>

namespace torch_opencl::native {

// Base of the two- and three-dimensional classes of one op; `Meta` is ATen's class, `kSpatial` 2 or 3.
template <class Meta, int64_t kSpatial>
struct MaxPool : Meta {
  void impl(
      const at::Tensor& self,
      at::IntArrayRef kernel_size,
      at::IntArrayRef stride,
      at::IntArrayRef padding,
      at::IntArrayRef dilation,
      bool ceil_mode,
      const at::Tensor& output,
      const at::Tensor& indices);
};
template <class Meta, int64_t kSpatial>
struct MaxPoolBackward : Meta {
  void impl(
      const at::Tensor& grad_output,
      const at::Tensor& self,
      at::IntArrayRef kernel_size,
      at::IntArrayRef stride,
      at::IntArrayRef padding,
      at::IntArrayRef dilation,
      bool ceil_mode,
      const at::Tensor& indices,
      const at::Tensor& grad_input);
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
      const at::Tensor& output);
};
template <class Meta, int64_t kSpatial>
struct AvgPoolBackward : Meta {
  void impl(
      const at::Tensor& grad_output,
      const at::Tensor& self,
      at::IntArrayRef kernel_size,
      at::IntArrayRef stride,
      at::IntArrayRef padding,
      bool ceil_mode,
      bool count_include_pad,
      std::optional<int64_t> divisor_override,
      const at::Tensor& grad_input);
};
template <class Meta, int64_t kSpatial>
struct AdaptiveMaxPool : Meta {
  void impl(const at::Tensor& self, at::IntArrayRef output_size, const at::Tensor& output, const at::Tensor& indices);
};
template <class Meta, int64_t kSpatial>
struct AdaptiveMaxPoolBackward : Meta {
  void impl(
      const at::Tensor& grad_output, const at::Tensor& self, const at::Tensor& indices, const at::Tensor& grad_input);
};

} // namespace torch_opencl::native
