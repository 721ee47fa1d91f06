// Nested tensors, which this device does not have.
#pragma once

#include <ATen/core/Tensor.h>

namespace torch_opencl::native {

// Whether a mask only cuts off the ends of rows, which torch.nn.TransformerEncoder asks before it packs its input into
// a nested tensor: never, so that it stays with the padded one.
inline bool nested_tensor_from_mask_left_aligned(const at::Tensor&, const at::Tensor&) {
  return false;
}

} // namespace torch_opencl::native
