// Dispatcher arguments as ATen's kernels take them: symbolic integers become integers, optional tensors references.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/OptionalRef.h>
#include <c10/core/SymIntArrayRef.h>
#include <c10/util/OptionalArrayRef.h>

namespace torch_opencl {

template <class T>
const T& convert(const T& value) {
  return value;
}
inline at::Tensor& convert(at::Tensor& value) {
  return value;
}
inline int64_t convert(const c10::SymInt& value) {
  return value.guard_int(__FILE__, __LINE__);
}
inline at::IntArrayRef convert(const c10::SymIntArrayRef& value) {
  return C10_AS_INTARRAYREF_SLOW(value);
}
inline std::optional<int64_t> convert(const std::optional<c10::SymInt>& value) {
  return value.has_value() ? std::optional<int64_t>(convert(*value)) : std::nullopt;
}
inline at::OptionalIntArrayRef convert(const at::OptionalSymIntArrayRef& value) {
  return value.has_value() ? at::OptionalIntArrayRef(C10_AS_INTARRAYREF_SLOW(*value)) : std::nullopt;
}

// Structured kernels take optional tensors and scalars by reference, other arguments unchanged.
template <class T>
decltype(auto) convert_structured(T& value) {
  if constexpr (std::is_same_v<std::remove_const_t<T>, std::optional<at::Tensor>>) {
    return value.has_value() && value->defined() ? at::OptionalTensorRef(*value) : at::OptionalTensorRef();
  } else if constexpr (std::is_same_v<std::remove_const_t<T>, std::optional<at::Scalar>>) {
    return value.has_value() ? at::OptionalScalarRef(*value) : at::OptionalScalarRef();
  } else {
    return convert(value);
  }
}

} // namespace torch_opencl
