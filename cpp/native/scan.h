// Running totals and extremes along a dimension.
#pragma once

#include <ATen/core/Tensor.h>

namespace torch_opencl::native {

// Kernels of ATen's stubs.
void cumsum(const at::Tensor& result, const at::Tensor& self, int64_t dim);
void cumprod(const at::Tensor& result, const at::Tensor& self, int64_t dim);
void logcumsumexp(at::Tensor& result, const at::Tensor& self, int64_t dim);

// Whole ops.
void cummax_helper(const at::Tensor& self, at::Tensor& values, at::Tensor& indices, int64_t dim);
void cummin_helper(const at::Tensor& self, at::Tensor& values, at::Tensor& indices, int64_t dim);

} // namespace torch_opencl::native
