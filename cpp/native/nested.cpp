// Called by autograd for every nested tensor. Unanswered, that ends the process: it asks where nothing may be thrown.
#include <ATen/ops/_nested_tensor_size_native.h>
#include <ATen/ops/_nested_tensor_storage_offsets_native.h>
#include <ATen/ops/_nested_tensor_strides_native.h>
#include <torch/library.h>

#include "native_entries.h"

namespace torch_opencl::native {

// Returns true for masks that only cut off the ends of rows, which torch.nn.TransformerEncoder asks before it packs its
// input into a nested tensor: never, so that it stays with the padded one.
bool nested_tensor_from_mask_left_aligned(const at::Tensor& /*t*/, const at::Tensor& /*mask*/) {
  return false;
}

} // namespace torch_opencl::native

TORCH_LIBRARY_IMPL(aten, NestedTensorPrivateUse1, m) {
  m.impl("_nested_tensor_size", &at::native::_nested_tensor_size);
  m.impl("_nested_tensor_strides", &at::native::_nested_tensor_strides);
  m.impl("_nested_tensor_storage_offsets", &at::native::_nested_tensor_storage_offsets);
}
