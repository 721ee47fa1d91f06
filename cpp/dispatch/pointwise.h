// The bridge from ATen's dispatch stubs to the pointwise kernels: one template fills every stub of the table.
#pragma once

#include <ATen/core/Generator.h>
#include <array>

#include "cpu/cpu_policy.h"
#include "cpu/host_iteration.h"
#include "dispatch/operand.h"
#include "pointwise_op.h"

namespace torch_opencl {

// Runs one op over an iteration that PyTorch has prepared: shapes broadcast, dtypes promoted, dims coalesced.
void run_pointwise(at::TensorIteratorBase& iter, PointwiseOp op, at::ArrayRef<bridge::Scalar> scalars);

// The dtype that the op computes in.
at::ScalarType compute_dtype(const at::TensorIteratorBase& iter, PointwiseOp op);

// The dtype that CPU kernels convert an op's scalar to.
at::ScalarType scalar_dtype(const at::TensorIteratorBase& iter, PointwiseOp op, int index, at::ScalarType dtype);

// Says if ATen casts the op's inputs. It does not if the row names a tensor whose dtype is the compute dtype.
Casts casts_of(PointwiseOp op);

// Converts a stub's parameter after the iterator to the scalar that the row names.
template <class T>
bridge::Scalar stub_scalar(const T& value, at::ScalarType dtype) {
  if constexpr (std::is_same_v<T, at::Scalar>) {
    return scalar_as(value, dtype);
  } else if constexpr (std::is_enum_v<T>) {
    return arg(static_cast<int64_t>(value));
  } else if constexpr (std::is_integral_v<T> && !std::is_same_v<T, bool>) {
    return arg(static_cast<int64_t>(value));
  } else if constexpr (std::is_floating_point_v<T>) {
    return arg(static_cast<double>(value));
  } else {
    return arg(value);
  }
}

// Fills `kStub` for this device. Small iterations run the CPU kernel of the same stub.
template <auto& kStub, PointwiseOp kOp, class FnPtr = typename std::remove_reference_t<decltype(kStub)>::FnPtr>
struct Pointwise;

// The value that `fill_` stores. As on the CPU, a value too large for a 16-bit or 8-bit float becomes infinite if the
// tensor has one element, and raises if it has more.
c10::Scalar one_element_value(const at::TensorIteratorBase& iter, const c10::Scalar& value);

template <auto& kStub, PointwiseOp kOp, class Iter, class... Parameters>
struct Pointwise<kStub, kOp, void (*)(Iter&, Parameters...)> {
  static void call(Iter& iter, Parameters... parameters) {
    if constexpr (kOp == PointwiseOp::fill__Scalar) {
      compute(iter, one_element_value(iter, parameters)...);
    } else {
      compute(iter, parameters...);
    }
  }

 private:
  static void compute(Iter& iter, Parameters... parameters) {
    if constexpr (!is_never_on_cpu(kOp)) {
      constexpr Cost kCost = is_long(kOp) ? Cost::LongIteration : Cost::Iteration;
      if (ran_on_host<kStub, kCost>(casts_of(kOp), iter, parameters...)) return;
    }
    [[maybe_unused]] const at::ScalarType dtype = compute_dtype(iter, kOp);
    [[maybe_unused]] int index = 0;
    const std::array<bridge::Scalar, sizeof...(Parameters)> scalars{
        stub_scalar(parameters, scalar_dtype(iter, kOp, index++, dtype))...};
    run_pointwise(iter, kOp, scalars);
  }
};

// Replacements of nan, +inf and -inf. The defaults are zero and the finite bounds of the dtype.
std::array<bridge::Scalar, 3> replacements(
    at::ScalarType dtype, std::optional<double> nan, std::optional<double> posinf, std::optional<double> neginf);

// nan_to_num
template <auto& kStub, PointwiseOp kOp, class Iter>
struct Pointwise<kStub, kOp, void (*)(Iter&, std::optional<double>, std::optional<double>, std::optional<double>)> {
  using Number = std::optional<double>;
  static void call(Iter& iter, Number nan, Number posinf, Number neginf) {
    if (ran_on_host<kStub>(casts_of(kOp), iter, nan, posinf, neginf)) return;
    run_pointwise(iter, kOp, replacements(iter.dtype(0), nan, posinf, neginf));
  }
};

} // namespace torch_opencl
