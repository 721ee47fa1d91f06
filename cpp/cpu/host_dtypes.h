// Dtypes of calls that run ATen's CPU functions instead of a kernel.
#pragma once

#include <c10/core/ScalarType.h>
#include <atomic>
#include <cstdint>

namespace torch_opencl {

// Returns true if ATen's CPU functions compute in the dtype as kernels do. Many of them accumulate 16-bit floats in 16
// bits, and kernels have their own rules for complex numbers and rarer dtypes.
constexpr bool is_same_on_host(c10::ScalarType dtype) {
  switch (dtype) {
    case c10::ScalarType::Bool:
    case c10::ScalarType::Byte:
    case c10::ScalarType::Char:
    case c10::ScalarType::Short:
    case c10::ScalarType::Int:
    case c10::ScalarType::Long:
    case c10::ScalarType::Float:
    case c10::ScalarType::Double:
      return true;
    default:
      return false;
  }
}

// The dtypes for which a function has raised NotImplementedError, so that it is not called again.
class UnsupportedDtypes {
 public:
  bool contains(c10::ScalarType dtype) const {
    return (dtypes_.load(std::memory_order_relaxed) >> code(dtype) & 1u) != 0;
  }
  void insert(c10::ScalarType dtype) {
    dtypes_.fetch_or(uint64_t{1} << code(dtype), std::memory_order_relaxed);
  }

 private:
  static unsigned code(c10::ScalarType dtype) {
    return static_cast<unsigned>(dtype) % 64;
  }

  std::atomic<uint64_t> dtypes_{0};
};

} // namespace torch_opencl
