// Sorting, and finding places in what is sorted.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/ops/topk_meta.h>

namespace torch_opencl::native {

// Kernels of ATen's stubs.
void sort(
    const at::TensorBase& self,
    const at::TensorBase& values,
    const at::TensorBase& indices,
    int64_t dim,
    bool descending,
    bool stable);

// Whole ops.
struct topk_out : at::meta::structured_topk {
  void impl(
      const at::Tensor& self,
      int64_t k,
      int64_t dim,
      bool largest,
      bool sorted,
      const at::Tensor& values,
      const at::Tensor& indices);
};

at::Tensor searchsorted(
    const at::Tensor& boundaries,
    const at::Tensor& self,
    bool out_int32,
    bool right,
    std::optional<c10::string_view> side,
    const std::optional<at::Tensor>& sorter);
at::Tensor& searchsorted_out(
    const at::Tensor& boundaries,
    const at::Tensor& self,
    bool out_int32,
    bool right,
    std::optional<c10::string_view> side,
    const std::optional<at::Tensor>& sorter,
    at::Tensor& out);
at::Tensor searchsorted_scalar(
    const at::Tensor& boundaries,
    const at::Scalar& self,
    bool out_int32,
    bool right,
    std::optional<c10::string_view> side,
    const std::optional<at::Tensor>& sorter);
at::Tensor bucketize(const at::Tensor& self, const at::Tensor& boundaries, bool out_int32, bool right);
at::Tensor& bucketize_out(
    const at::Tensor& self, const at::Tensor& boundaries, bool out_int32, bool right, at::Tensor& out);
at::Tensor bucketize_scalar(const at::Scalar& self, const at::Tensor& boundaries, bool out_int32, bool right);

} // namespace torch_opencl::native
