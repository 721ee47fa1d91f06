// Converts ATen values for the bridge.
#pragma once

#include <ATen/core/Tensor.h>
#include <optional>

#include "runtime/bridge.h"

namespace torch_opencl {

// Raises for a tensor whose storage was freed: in the bridge, a null address means an empty or absent tensor.
inline void check_memory(const at::TensorBase& tensor) {
  TORCH_CHECK(
      tensor.storage().data() != nullptr, "The tensor of shape ", tensor.sizes(), " and dtype ", tensor.scalar_type(),
      " on ", tensor.device(), " has no memory: its storage was freed or resized to 0 bytes");
}

// The address of a tensor's first element; 0 for an empty tensor.
inline size_t address_of(const at::TensorBase& tensor) {
  if (tensor.numel() == 0) return 0;
  check_memory(tensor);
  return reinterpret_cast<size_t>(tensor.const_data_ptr());
}

// Gives a tensor its own memory before it is written to, if it still shares another's memory (copy-on-write).
inline void materialize(const at::TensorBase& tensor) {
  if (tensor.defined() && tensor.has_storage()) tensor.storage().mutable_data();
}

// Raises for a dtype that no kernel supports.
[[noreturn]] void refuse_dtype(at::ScalarType dtype);

inline bridge::DType arg(at::ScalarType dtype) {
  static const uint64_t known = bridge::known_dtypes();
  const auto code = static_cast<uint8_t>(dtype);
  if (code >= 64 || (known >> code & 1) == 0) refuse_dtype(dtype);
  return static_cast<bridge::DType>(code);
}

// The slices borrow from the tensor: it must outlive the argument.
inline bridge::Tensor arg(const at::TensorBase& tensor) {
  if (!tensor.defined()) return {};
  const at::IntArrayRef sizes = tensor.sizes(), strides = tensor.strides();
  return {
      address_of(tensor), arg(tensor.scalar_type()), rust::Slice<const int64_t>(sizes.data(), sizes.size()),
      rust::Slice<const int64_t>(strides.data(), strides.size())};
}

inline bridge::Tensor arg(const std::optional<at::Tensor>& tensor) {
  return tensor.has_value() ? arg(*tensor) : bridge::Tensor{};
}

// The slice borrows from the list: it must outlive the argument.
inline rust::Slice<const int64_t> arg(at::IntArrayRef list) {
  return {list.data(), list.size()};
}

inline bridge::Scalar arg(double value) {
  // A value that does not fit a long is never used as one. Zero avoids an undefined conversion.
  const bool fits = value > -9.2e18 && value < 9.2e18;
  return {value, 0.0, fits ? static_cast<int64_t>(value) : 0};
}

inline bridge::Scalar arg(int64_t value) {
  return {static_cast<double>(value), 0.0, value};
}

inline bridge::Scalar arg(bool value) {
  return arg(static_cast<int64_t>(value));
}

inline bridge::Scalar arg(const at::Scalar& value) {
  if (value.isComplex()) {
    const c10::complex<double> number = value.toComplexDouble();
    return {number.real(), number.imag(), 0};
  }
  if (value.isFloatingPoint()) return arg(value.toDouble());
  if (value.isBoolean()) return arg(value.toBool());
  if (value.type() == at::kUInt64) {
    // From 2^63 on. Kernels for uint64 use the bits of `integer`.
    const uint64_t number = value.toUInt64();
    return {static_cast<double>(number), 0.0, static_cast<int64_t>(number)};
  }
  return arg(value.to<int64_t>());
}

} // namespace torch_opencl
