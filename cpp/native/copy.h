// Copies in every direction, with dtype casts and any strides.
#pragma once

#include <ATen/core/Tensor.h>

namespace torch_opencl::native {

// Copies `self` into `dst`, broadcasting; one of them is an opencl tensor. Returns `dst`.
at::Tensor _copy_from(const at::Tensor& self, const at::Tensor& dst, bool non_blocking);
// The same after giving `dst` the shape of `self`.
at::Tensor _copy_from_and_resize(const at::Tensor& self, const at::Tensor& dst);

} // namespace torch_opencl::native
