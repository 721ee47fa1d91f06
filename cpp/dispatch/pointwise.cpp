#include "dispatch/pointwise.h"

#include <ATen/Dispatch.h>
#include <ATen/OpMathType.h>
#include <c10/util/SmallVector.h>
#include <limits>

#include "runtime/compat.h"
#include "runtime/error.h"
#include "torch_opencl/rust/ops/pointwise/mod.rs.h"

namespace torch_opencl {
namespace {

// The dtype of the tensor that the row names, else the dtype that PyTorch promoted the inputs to.
at::ScalarType named_dtype(const at::TensorIteratorBase& iter, PointwiseOp op) {
  switch (class_from(op)) {
    case ClassFrom::Out:
      return iter.dtype(0);
    case ClassFrom::In0:
      return iter.input_dtype(0);
    case ClassFrom::Common:
      break;
  }
  // Iterations without type promotion have no common dtype: fill, and ops of one input.
  if (const auto common = compat::maybe_common_dtype(iter); common.has_value()) return *common;
  return iter.ninputs() > 0 ? iter.input_dtype(0) : iter.dtype(0);
}

// Returns true if the CPU's iterator would cast an input to a dtype that may not hold its value. Wider dtypes hold the
// value: kernels that compute in them convert it on load.
bool must_cast(const at::TensorIteratorBase& iter, PointwiseOp op, int index) {
  const std::optional<at::ScalarType> common = compat::maybe_common_dtype(iter);
  if (class_from(op) != ClassFrom::Common || !common.has_value() || iter.dtype(index) == *common) return false;
  if (c10::isIntegralType(*common, /*includeBool=*/false)) return true;
  if (!at::isReducedFloatingType(*common)) return false;
  return (opmath(op) >> (index - iter.noutputs()) & 1) == 0 || !iter.is_scalar(index);
}

double greatest(at::ScalarType dtype) {
  return AT_DISPATCH_FLOATING_TYPES_AND2(at::kHalf, at::kBFloat16, dtype, "nan_to_num", [] {
    return static_cast<double>(std::numeric_limits<scalar_t>::max());
  });
}

} // namespace

at::ScalarType compute_dtype(const at::TensorIteratorBase& iter, PointwiseOp op) {
  const at::ScalarType dtype = named_dtype(iter, op);
  // Comparing float16 with a complex scalar promotes to complex32, which kernels do not support.
  return dtype == at::kComplexHalf ? at::kComplexFloat : dtype;
}

Casts casts_of(PointwiseOp op) {
  return class_from(op) == ClassFrom::Common ? Casts::ToCommon : Casts::No;
}

at::ScalarType scalar_dtype(const at::TensorIteratorBase& iter, PointwiseOp op, int index, at::ScalarType dtype) {
  if ((opmath(op) >> (4 + index) & 1) != 0) return at::toOpMathType(dtype);
  // If the base is float32, pow takes a double exponent.
  return op == PointwiseOp::pow_Tensor_Scalar && dtype == at::kFloat ? at::kDouble : dtype;
}

c10::Scalar one_element_value(const at::TensorIteratorBase& iter, const c10::Scalar& value) {
  const at::ScalarType dtype = iter.dtype(0);
  if (iter.numel() != 1 || value.isComplex() || !(at::isReducedFloatingType(dtype) || c10::isFloat8Type(dtype)))
    return value;
  return cast_to(arg(value), dtype).real;
}

std::array<bridge::Scalar, 3> replacements(
    at::ScalarType dtype, std::optional<double> nan, std::optional<double> posinf, std::optional<double> neginf) {
  const double bound = greatest(dtype);
  return {arg(nan.value_or(0.0)), arg(posinf.value_or(bound)), arg(neginf.value_or(-bound))};
}

void run_pointwise(at::TensorIteratorBase& iter, PointwiseOp op, at::ArrayRef<bridge::Scalar> scalars) {
  if (iter.numel() == 0) return;
  c10::SmallVector<bridge::Operand, 5> operands;
  uint32_t casts = 0;
  for (int i = 0; i < iter.ntensors(); i++) {
    operands.push_back(operand(iter, i));
    if (i < iter.noutputs() || !must_cast(iter, op, i)) continue;
    if (operands.back().address == 0) {
      operands.back().value = cast_to(operands.back().value, *compat::maybe_common_dtype(iter));
    } else {
      casts |= 1u << (i - iter.noutputs());
    }
  }
  const at::IntArrayRef shape = iter.shape();
  checked([&] {
    bridge::pointwise(
        static_cast<uint32_t>(op), arg(compute_dtype(iter, op)), arg(shape), iter.noutputs(),
        rust::Slice<const bridge::Operand>(operands.data(), operands.size()),
        rust::Slice<const bridge::Scalar>(scalars.data(), scalars.size()), casts);
  });
}

} // namespace torch_opencl
