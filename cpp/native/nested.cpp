// Nested tensors of strided layout: ATen's own functions, which call operators on their values and their parts.
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/ops/_native_multi_head_attention_native.h>
#include <ATen/ops/_nested_from_padded_native.h>
#include <ATen/ops/_nested_tensor_softmax_with_shape_native.h>
#include <ATen/ops/_nested_tensor_storage_offsets_native.h>
#include <ATen/ops/_nested_view_from_buffer.h>
#include <ATen/ops/_nested_view_from_buffer_native.h>
#include <ATen/ops/_transform_bias_rescale_qkv.h>
#include <ATen/ops/bmm_native.h>
#include <ATen/ops/native_layer_norm.h>
#include <ATen/ops/native_layer_norm_backward.h>
#include <ATen/ops/to_padded_tensor_native.h>
#include <torch/library.h>

namespace torch_opencl::native {
namespace {

using Tensors3 = std::tuple<at::Tensor, at::Tensor, at::Tensor>;

// HPU is an out-of-tree backend: ATen registers for it only the functions that serve every device.
constexpr c10::DispatchKey kEveryDevice = c10::DispatchKey::NestedTensorHPU;

void call_shared(const c10::OperatorHandle& op, c10::DispatchKeySet, torch::jit::Stack* stack) {
  op.redispatchBoxed(c10::DispatchKeySet(kEveryDevice), stack);
}

// The result is padded with zeros: attention hides them, and removes them from its own result.
Tensors3 padded_bias_rescale_qkv(const at::Tensor& qkv, const at::Tensor& qkv_bias, int64_t num_heads) {
  return at::_transform_bias_rescale_qkv(qkv.to_padded_tensor(0), qkv_bias, num_heads);
}

// The values of a nested tensor as one dense tensor of rows.
at::Tensor rows(const at::Tensor& nested, c10::SymIntArrayRef normalized_shape) {
  const int64_t first = nested.dim() - static_cast<int64_t>(normalized_shape.size());
  TORCH_CHECK(
      first > 0, "layer_norm: expected a nested tensor of more than ", normalized_shape.size(), " dimensions, but got ",
      nested.dim());
  std::vector<c10::SymInt> shape{-1};
  for (const c10::SymInt& size : normalized_shape) {
    const int64_t dim = first + static_cast<int64_t>(shape.size()) - 1;
    TORCH_CHECK(
        nested.size(dim) == size, "layer_norm: expected normalized_shape to end the nested tensor's sizes, but got ",
        size, " for dimension ", dim, " of size ", nested.size(dim));
    shape.push_back(size);
  }
  return nested.contiguous().values().view_symint(shape);
}

at::Tensor nested_like(const at::Tensor& values, const at::Tensor& nested) {
  if (!values.defined()) return values;
  const at::Tensor like = nested.contiguous();
  return at::_nested_view_from_buffer(
      values.reshape({-1}), like._nested_tensor_size(), like._nested_tensor_strides(),
      like._nested_tensor_storage_offsets());
}

Tensors3 native_layer_norm(
    const at::Tensor& input,
    c10::SymIntArrayRef normalized_shape,
    const std::optional<at::Tensor>& weight,
    const std::optional<at::Tensor>& bias,
    double eps) {
  auto [out, mean, rstd] =
      at::native_layer_norm_symint(rows(input, normalized_shape), normalized_shape, weight, bias, eps);
  return {nested_like(out, input), std::move(mean), std::move(rstd)};
}

Tensors3 native_layer_norm_backward(
    const at::Tensor& grad_out,
    const at::Tensor& input,
    c10::SymIntArrayRef normalized_shape,
    const at::Tensor& mean,
    const at::Tensor& rstd,
    const std::optional<at::Tensor>& weight,
    const std::optional<at::Tensor>& bias,
    std::array<bool, 3> output_mask) {
  auto [grad_input, grad_weight, grad_bias] = at::native_layer_norm_backward_symint(
      rows(grad_out, normalized_shape), rows(input, normalized_shape), normalized_shape, mean, rstd, weight, bias,
      output_mask);
  return {nested_like(grad_input, input), std::move(grad_weight), std::move(grad_bias)};
}

} // namespace

// Not rows of the table, because sizes are on the host and values on the device: the wrapper of a row checks that all
// tensors are on one device.
TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("_nested_from_padded", &at::native::nested_from_padded_generic);
  m.impl("_nested_view_from_buffer", &at::native::_nested_view_from_buffer);
}

TORCH_LIBRARY_IMPL(aten, NestedTensorPrivateUse1, m) {
  m.impl("native_layer_norm", &native_layer_norm);
  m.impl("native_layer_norm_backward", &native_layer_norm_backward);
  m.impl("_transform_bias_rescale_qkv", &padded_bias_rescale_qkv);
  m.impl("_native_multi_head_attention", &at::native::native_multi_head_attention_cpu);
  m.impl("_nested_tensor_softmax_with_shape", &at::native::NestedTensor_softmax_dropout);
  m.impl("_nested_tensor_storage_offsets", &at::native::_nested_tensor_storage_offsets);
  m.impl("bmm", &at::native::bmm_nested);
  m.impl("to_padded_tensor", &at::native::NestedTensor_to_padded_tensor_generic);
  for (const c10::OperatorName& name : c10::Dispatcher::singleton().getAllOpNames()) {
    const auto op = c10::Dispatcher::singleton().findOp(name);
    if (!op.has_value() || !op->hasKernelForDispatchKey(kEveryDevice) ||
        op->hasKernelForDispatchKey(c10::DispatchKey::NestedTensorPrivateUse1))
      continue;
    m.impl(toString(name).c_str(), torch::CppFunction::makeFromBoxedFunction<&call_shared>());
  }
}

} // namespace torch_opencl::native
