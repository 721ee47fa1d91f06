// Dtypes as the Rust core takes them.
#pragma once

#include <cstdint>

namespace torch_opencl::bridge {

// The `DType` of rust/kernels/dtype.rs, whose values are those of c10::ScalarType: `arg(at::ScalarType)` of
// tensor_arg.h makes them.
enum class DType : int32_t;

} // namespace torch_opencl::bridge
