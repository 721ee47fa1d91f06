// What a function of ATen for the CPU has turned out not to do.
#pragma once

#include <c10/core/ScalarType.h>
#include <atomic>
#include <cstdint>

namespace torch_opencl {

// The dtypes for which a function has raised NotImplementedError, so that it is not asked again.
class RefusedDtypes {
 public:
  bool has(c10::ScalarType dtype) const {
    return (dtypes_.load(std::memory_order_relaxed) >> code(dtype) & 1u) != 0;
  }
  void add(c10::ScalarType dtype) {
    dtypes_.fetch_or(uint64_t{1} << code(dtype), std::memory_order_relaxed);
  }

 private:
  static unsigned code(c10::ScalarType dtype) {
    return static_cast<unsigned>(dtype) % 64;
  }

  std::atomic<uint64_t> dtypes_{0};
};

} // namespace torch_opencl
