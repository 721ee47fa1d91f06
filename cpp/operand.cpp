#include "operand.h"

#include <ATen/Dispatch.h>

namespace torch_opencl {
namespace {

// A host number among tensors of an integer dtype wraps into that dtype, as when the CPU casts it.
bridge::Scalar wrapped(const at::Scalar& value, at::ScalarType dtype) {
  if (!value.isIntegral(/*includeBool=*/false) || !c10::isIntegralType(dtype, /*includeBool=*/false)) return arg(value);
  const auto number = value.to<int64_t>();
  int64_t result = number;
  AT_DISPATCH_INTEGRAL_TYPES(dtype, "operand", [&] { result = static_cast<scalar_t>(number); });
  return arg(result);
}

} // namespace

bridge::Operand operand(const at::TensorIteratorBase& iter, int index) {
  const auto dtype = static_cast<int32_t>(iter.dtype(index));
  const rust::Slice<const int64_t> strides = arg(iter.strides(index));
  // The tensors of some iterations are gone by now (glu's are halves of its input): only of a number from the host is
  // more asked than what the iteration holds itself.
  if (iter.device(index).is_cpu() && iter.is_cpu_scalar(index)) {
    const at::Scalar value = iter.tensor(index).item();
    return {0, dtype, strides, wrapped(value, iter.maybe_common_dtype().value_or(iter.dtype(index)))};
  }
  TORCH_CHECK(
      iter.numel() == 0 || iter.data_ptr(index) != nullptr, "a tensor of dtype ", iter.dtype(index),
      " in an operation over ", iter.shape(), " has no memory: its storage was freed or resized to 0 bytes");
  return {reinterpret_cast<size_t>(iter.data_ptr(index)), dtype, strides, {0.0, 0.0, 0}};
}

bridge::Scalar scalar_as(const at::Scalar& value, at::ScalarType dtype) {
  if (!c10::isIntegralType(dtype, /*includeBool=*/true)) return arg(value);
  int64_t result = 0;
  AT_DISPATCH_INTEGRAL_TYPES_AND(at::kBool, dtype, "scalar", [&] { result = value.to<scalar_t>(); });
  return arg(result);
}

} // namespace torch_opencl
