// The bridge from ATen's dispatch stubs to the pointwise kernels: one template fills every stub of the table.
#pragma once

#include <ATen/TensorIterator.h>
#include <ATen/core/Generator.h>
#include <array>

#include "pointwise_op.h"
#include "tensor_arg.h"

namespace torch_opencl {

// Runs one op over an iteration that PyTorch has prepared: shapes broadcast, dtypes promoted, dims coalesced.
void run_pointwise(at::TensorIteratorBase& iter, PointwiseOp op, at::ArrayRef<bridge::Scalar> scalars);

// A stub's parameter behind the iterator, as the scalar that the row names.
template <class T>
bridge::Scalar stub_scalar(const T& value) {
  if constexpr (std::is_enum_v<T>) {
    return arg(static_cast<int64_t>(value));
  } else if constexpr (std::is_integral_v<T> && !std::is_same_v<T, bool>) {
    return arg(static_cast<int64_t>(value));
  } else if constexpr (std::is_floating_point_v<T>) {
    return arg(static_cast<double>(value));
  } else {
    return arg(value);
  }
}

template <class FnPtr, PointwiseOp kOp>
struct Pointwise;

template <class Iter, class... Parameters, PointwiseOp kOp>
struct Pointwise<void (*)(Iter&, Parameters...), kOp> {
  static void call(Iter& iter, Parameters... parameters) {
    const std::array<bridge::Scalar, sizeof...(Parameters)> scalars{stub_scalar(parameters)...};
    run_pointwise(iter, kOp, scalars);
  }
};

} // namespace torch_opencl
