#include "dispatch/operand.h"

#include <ATen/Dispatch_v2.h>

namespace torch_opencl {
bridge::Operand operand(const at::TensorIteratorBase& iter, int index) {
  const bridge::DType dtype = arg(iter.dtype(index));
  const rust::Slice<const int64_t> strides = arg(iter.strides(index));
  // Reads iter.tensor only for a scalar on the host, because the tensors of some iterations no longer exist (glu's are
  // halves of its input).
  if (iter.device(index).is_cpu() && iter.is_cpu_scalar(index)) {
    return {0, dtype, strides, arg(iter.tensor(index).item())};
  }
  TORCH_CHECK(
      iter.numel() == 0 || iter.data_ptr(index) != nullptr, "a tensor of dtype ", iter.dtype(index),
      " in an operation over ", iter.shape(), " has no memory: its storage was freed or resized to 0 bytes");
  return {reinterpret_cast<size_t>(iter.data_ptr(index)), dtype, strides, {0.0, 0.0, 0}};
}

bridge::Scalar cast_to(const bridge::Scalar& value, at::ScalarType dtype) {
  if (c10::isIntegralType(dtype, /*includeBool=*/false)) {
    return AT_DISPATCH_V2(
        dtype, "cast", AT_WRAP([&] { return arg(at::Scalar(static_cast<scalar_t>(value.integer))); }),
        AT_EXPAND(AT_INTEGRAL_TYPES_V2));
  }
  if (!at::isReducedFloatingType(dtype)) return value;
  return AT_DISPATCH_V2(
      dtype, "cast", AT_WRAP([&] { return arg(static_cast<double>(static_cast<scalar_t>(value.real))); }), at::kHalf,
      at::kBFloat16, AT_EXPAND(AT_FLOAT8_TYPES));
}

bridge::Scalar scalar_as(const at::Scalar& value, at::ScalarType dtype) {
  return AT_DISPATCH_V2(
      dtype, "scalar", AT_WRAP([&] { return arg(at::Scalar(value.to<scalar_t>())); }), at::kBool, at::kHalf,
      at::kBFloat16, at::kComplexHalf, AT_EXPAND(AT_INTEGRAL_TYPES_V2), AT_EXPAND(AT_FLOATING_TYPES),
      AT_EXPAND(AT_FLOAT8_TYPES), AT_EXPAND(AT_COMPLEX_TYPES));
}

} // namespace torch_opencl
