// Dtypes as the Rust core expects them.
#pragma once

#include <cstdint>

namespace torch_opencl::bridge {

// The `DType` of rust/kernels/dtype.rs, with the values of c10::ScalarType. `arg(at::ScalarType)` of tensor_arg.h
// converts to it.
enum class DType : int32_t;

} // namespace torch_opencl::bridge
