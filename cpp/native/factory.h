// Tensors made from a rule.
#pragma once

#include <ATen/TensorIterator.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/pow_meta.h>

namespace torch_opencl::native {

// Kernels of ATen's stubs.
void arange(at::TensorIterator& iter, const at::Scalar& start, const at::Scalar& end, const at::Scalar& step);
void linspace(at::TensorIterator& iter, const at::Scalar& start, const at::Scalar& end, int64_t steps);

// Whole ops.

// A number to the power of each element. ATen would first make the number a tensor of float64 on the device.
struct pow_scalar_out : at::meta::structured_pow_Scalar {
  void impl(const at::Scalar& base, const at::Tensor& exponent, const at::Tensor& out);
};

at::Tensor& logspace_out(const at::Scalar& start, const at::Scalar& end, int64_t steps, double base, at::Tensor& out);
at::Tensor& range_out(const at::Scalar& start, const at::Scalar& end, const at::Scalar& step, at::Tensor& out);
at::Tensor& eye_out(int64_t n, at::Tensor& out);
at::Tensor& eye_m_out(int64_t n, int64_t m, at::Tensor& out);
at::Tensor tril_indices(
    int64_t rows,
    int64_t columns,
    int64_t offset,
    std::optional<at::ScalarType> dtype,
    std::optional<at::Layout> layout,
    std::optional<at::Device> device,
    std::optional<bool> pin_memory);
at::Tensor triu_indices(
    int64_t rows,
    int64_t columns,
    int64_t offset,
    std::optional<at::ScalarType> dtype,
    std::optional<at::Layout> layout,
    std::optional<at::Device> device,
    std::optional<bool> pin_memory);

} // namespace torch_opencl::native
