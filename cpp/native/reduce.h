// Reductions.
#pragma once

#include <ATen/TensorIterator.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/aminmax_meta.h>
#include <ATen/ops/argmax_meta.h>
#include <ATen/ops/argmin_meta.h>
#include <ATen/ops/max_meta.h>
#include <ATen/ops/mean_meta.h>
#include <ATen/ops/min_meta.h>
#include <ATen/ops/sum_meta.h>

#include "../compat.h"

namespace torch_opencl::native {

// Structured ops of our own.
struct sum_out : at::meta::structured_sum_dim_IntList {
  void impl(
      const at::Tensor& self,
      at::OptionalIntArrayRef dim,
      bool keepdim,
      std::optional<at::ScalarType> dtype,
      const at::Tensor& result);
};
struct mean_out : at::meta::structured_mean_dim {
  void impl(
      const at::Tensor& self,
      at::OptionalIntArrayRef dim,
      bool keepdim,
      std::optional<at::ScalarType> dtype,
      const at::Tensor& result);
};
struct argmax_out : at::meta::structured_argmax {
  void impl(const at::Tensor& self, std::optional<int64_t> dim, bool keepdim, const at::Tensor& result);
};
struct argmin_out : at::meta::structured_argmin {
  void impl(const at::Tensor& self, std::optional<int64_t> dim, bool keepdim, const at::Tensor& result);
};
struct max_dim_out : at::meta::structured_max_dim {
  void impl(const at::Tensor& self, int64_t dim, bool keepdim, const at::Tensor& values, const at::Tensor& indices);
};
struct min_dim_out : at::meta::structured_min_dim {
  void impl(const at::Tensor& self, int64_t dim, bool keepdim, const at::Tensor& values, const at::Tensor& indices);
};
struct aminmax_out : at::meta::structured_aminmax {
  void impl(
      const at::Tensor& self, std::optional<int64_t> dim, bool keepdim, const at::Tensor& min, const at::Tensor& max);
};

// Kernels of ATen's stubs. Operand 0 of the iterator has stride 0 along the reduced dimensions.
void nansum(at::TensorIterator& iter);
void prod(at::TensorIterator& iter);
void min_values(at::TensorIterator& iter);
void max_values(at::TensorIterator& iter);
void logical_and(at::TensorIterator& iter);
void logical_or(at::TensorIterator& iter);
void norm(at::TensorIterator& iter, const at::Scalar& power);
void powsum(at::TensorIterator& iter, const at::Scalar& power);
void std_var(at::TensorIterator& iter, double correction, bool take_sqrt);
void min_all(at::Tensor& result, const at::Tensor& self);
void max_all(at::Tensor& result, const at::Tensor& self);

// Whole ops.
at::Tensor count_nonzero(const at::Tensor& self, at::IntArrayRef dim);

#if !TORCH_OPENCL_TORCH_AT_LEAST(12)
// In the place of ATen's functions, which refuse tensors of this device before they ask the stub (variance.cpp).
using Correction = std::optional<at::Scalar>;
at::Tensor std(const at::Tensor& self, at::OptionalIntArrayRef dim, const Correction& correction, bool keepdim);
at::Tensor& std_out(
    const at::Tensor& self, at::OptionalIntArrayRef dim, const Correction& correction, bool keepdim, at::Tensor& out);
std::tuple<at::Tensor, at::Tensor> std_mean(
    const at::Tensor& self, at::OptionalIntArrayRef dim, const Correction& correction, bool keepdim);
at::Tensor var(const at::Tensor& self, at::OptionalIntArrayRef dim, const Correction& correction, bool keepdim);
at::Tensor& var_out(
    const at::Tensor& self, at::OptionalIntArrayRef dim, const Correction& correction, bool keepdim, at::Tensor& out);
std::tuple<at::Tensor, at::Tensor> var_mean(
    const at::Tensor& self, at::OptionalIntArrayRef dim, const Correction& correction, bool keepdim);
#endif

} // namespace torch_opencl::native
