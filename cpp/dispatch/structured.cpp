#include "dispatch/structured.h"

#include <ATen/native/Resize.h>
#include <ATen/ops/empty_strided.h>
#include <algorithm>

#include "native/memory.h"

namespace torch_opencl {
namespace {

at::Tensor create_output(at::IntArrayRef sizes, at::IntArrayRef strides, const at::TensorOptions& options) {
  // An operand may be a 0-dim tensor on the host, but results are on the device.
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

} // namespace

void store_result(const at::Tensor& out, const at::Tensor& result) {
  TORCH_INTERNAL_ASSERT(result.defined(), "an entry whose results its row stores by `out` has returned none");
  TORCH_CHECK(
      at::canCast(result.scalar_type(), out.scalar_type()), "result type ", result.scalar_type(),
      " can't be cast to the desired output type ", out.scalar_type());
  at::native::resize_output(out, result.sizes());
  out.copy_(result);
}

void Outputs::set(
    int64_t i, at::IntArrayRef sizes, at::IntArrayRef strides, const at::TensorOptions& options, bool exact) {
  at::Tensor& output = tensors_[static_cast<size_t>(i)];
  switch (source_) {
    case Source::New:
      output = create_output(sizes, strides, options);
      break;
    case Source::ShapeOnly:
      output = native::empty({}, options).expand(sizes);
      return;
    case Source::Self:
      check_inplace(output, sizes, options);
      break;
    case Source::Given:
      resize_given_output(output, sizes, strides, options);
      break;
  }
  if (!exact || output.strides() == strides) return;
  proxies_.resize(tensors_.size());
  proxies_[static_cast<size_t>(i)] = native::empty_strided(output.sizes(), strides, output.options());
}

const at::Tensor& Outputs::proxy(int64_t i) const {
  static const at::Tensor none;
  return proxies_.empty() ? none : proxies_[static_cast<size_t>(i)];
}

bool Outputs::are_contiguous() const {
  return proxies_.empty() &&
      std::all_of(tensors_.begin(), tensors_.end(), [](const at::Tensor& output) { return output.is_contiguous(); });
}

void Outputs::finish() const {
  for (size_t i = 0; i < proxies_.size(); i++) {
    if (proxies_[i].defined()) tensors_[i].copy_(proxies_[i]);
  }
}

} // namespace torch_opencl
