#include "structured.h"

#include <ATen/native/Resize.h>
#include <ATen/ops/empty_strided.h>

#include "native/memory.h"

namespace torch_opencl {

at::Tensor create_output(at::IntArrayRef sizes, at::IntArrayRef strides, const at::TensorOptions& options) {
  // An operand may be a 0-dim tensor on the host; results are on the device.
  TORCH_CHECK(
      options.device().is_privateuseone(),
      "Expected all tensors to be on the same device, but found at least two devices, ", c10::DeviceType::PrivateUse1,
      " and ", options.device(), "!");
  return strides.empty() ? native::empty(sizes, options) : native::empty_strided(sizes, strides, options);
}

void resize_given_output(
    const at::Tensor& out, at::IntArrayRef sizes, at::IntArrayRef strides, const at::TensorOptions& options) {
  TORCH_CHECK(
      options.dtype() == out.dtype(), "Expected out tensor to have dtype ", options.dtype(), ", but got ", out.dtype(),
      " instead");
  TORCH_CHECK(
      options.device() == out.device(), "Expected out tensor to have device ", options.device(), ", but got ",
      out.device(), " instead");
  if (at::native::resize_output(out, sizes)) {
    if (!strides.empty()) {
      TORCH_INTERNAL_ASSERT(!options.memory_format_opt().has_value());
      out.as_strided_(sizes, strides);
    } else if (options.memory_format_opt().has_value()) {
      out.unsafeGetTensorImpl()->empty_tensor_restride(*options.memory_format_opt());
    }
  }
}

void store_result(const at::Tensor& out, const at::Tensor& result) {
  TORCH_INTERNAL_ASSERT(result.defined(), "an entry whose results its row stores by `out` has returned none");
  at::native::resize_output(out, result.sizes());
  out.copy_(result);
}

void check_inplace(const at::Tensor& self, at::IntArrayRef sizes, const at::TensorOptions& options) {
  TORCH_CHECK(
      options.dtype() == self.dtype(), "Bad in-place call: input tensor dtype ", self.dtype(),
      " and output tensor dtype ", options.dtype(), " should match");
  TORCH_CHECK(
      options.device() == self.device(), "Bad in-place call: input tensor device ", self.device(),
      " and output tensor device ", options.device(), " should match");
  TORCH_CHECK(
      sizes == self.sizes(), "Bad in-place call: input tensor size ", self.sizes(), " and output tensor size ", sizes,
      " should match");
}

std::optional<at::Tensor> make_proxy(const at::Tensor& out, at::IntArrayRef strides) {
  if (out.strides() == strides) return std::nullopt;
  return native::empty_strided(out.sizes(), strides, out.options());
}

} // namespace torch_opencl
