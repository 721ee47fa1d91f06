// Checks of what kernels assume: they read as many elements as the other arguments promise, and callers of
// torch.ops.aten bypass PyTorch's own checks. An undefined tensor passes.
#pragma once

#include <ATen/core/Tensor.h>

namespace torch_opencl::native {

inline void check_numel(const char* op, const char* name, const at::Tensor& tensor, int64_t expected) {
  TORCH_CHECK(
      !tensor.defined() || tensor.numel() == expected, op, ": expected ", name, " to have ", expected,
      " elements, but got shape ", tensor.sizes());
}

inline void check_sizes(const char* op, const char* name, const at::Tensor& tensor, at::IntArrayRef expected) {
  TORCH_CHECK(
      !tensor.defined() || tensor.sizes() == expected, op, ": expected ", name, " to have shape ", expected,
      ", but got ", tensor.sizes());
}

// Checks the sizes for mat1 @ mat2.
inline void check_inner_sizes(const char* names, const at::Tensor& mat1, const at::Tensor& mat2) {
  TORCH_CHECK(
      mat1.size(1) == mat2.size(0), names, " shapes cannot be multiplied (", mat1.size(0), "x", mat1.size(1), " and ",
      mat2.size(0), "x", mat2.size(1), ")");
}

inline void check_dtype(const char* op, const char* name, const at::Tensor& tensor, at::ScalarType expected) {
  TORCH_CHECK(
      !tensor.defined() || tensor.scalar_type() == expected, op, ": expected ", name, " to have dtype ", expected,
      ", but got ", tensor.scalar_type());
}

} // namespace torch_opencl::native
