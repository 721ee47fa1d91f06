// Generated from native_functions.yaml by rust/codegen.
#pragma once

#include <cstdint>

namespace torch_opencl {

// Distributions of the random kernels.
enum class Distribution : uint32_t {
  exponential_ = 0,
};

}  // namespace torch_opencl
