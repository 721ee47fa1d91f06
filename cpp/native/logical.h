// The functional forms of and, or and xor.
#pragma once

#include <ATen/core/Tensor.h>

namespace torch_opencl::native {

at::Tensor logical_and(const at::Tensor& self, const at::Tensor& other);
at::Tensor logical_or(const at::Tensor& self, const at::Tensor& other);
at::Tensor logical_xor(const at::Tensor& self, const at::Tensor& other);

} // namespace torch_opencl::native
