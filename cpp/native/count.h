// How often values occur, and what else is asked of whole tensors.
#pragma once

#include <ATen/core/Tensor.h>

namespace torch_opencl::native {

at::Tensor bincount(const at::Tensor& self, const std::optional<at::Tensor>& weights, int64_t minlength);
at::Tensor histc(const at::Tensor& self, int64_t bins, const at::Scalar& min, const at::Scalar& max);
at::Tensor& histc_out(
    const at::Tensor& self, int64_t bins, const at::Scalar& min, const at::Scalar& max, at::Tensor& out);
bool equal(const at::Tensor& self, const at::Tensor& other);
at::Tensor trace(const at::Tensor& self);
at::Tensor nonzero_static(const at::Tensor& self, int64_t size, int64_t fill_value);
at::Tensor& nonzero_static_out(const at::Tensor& self, int64_t size, int64_t fill_value, at::Tensor& out);

// Kernels of ATen's stubs.
void isin(const at::Tensor& elements, const at::Tensor& test_elements, bool invert, const at::Tensor& out);
void cross(const at::Tensor& result, const at::Tensor& a, const at::Tensor& b, int64_t dim);

} // namespace torch_opencl::native
