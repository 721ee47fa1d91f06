// Decides if the kernel, ATen's CPU kernel or the fallback runs a call.
#pragma once

#include "dispatch/op_row.h"
#include "runtime/tensor_args.h"

namespace torch_opencl {

enum class Route : uint8_t {
  Kernel,
  SmallCall, // as the row's `small` says, if the call has few elements and the stream is idle
  Cpu,       // ATen's CPU kernel, as the row declares
  Fallback,  // ATen's CPU kernel with a warning: no kernel supports the dtypes
};

// Raises if the tensors are on different devices, if elements of an output share memory, or if the generator belongs to
// another device.
Route route(const OpInfo& op, const TensorArgs& args);

} // namespace torch_opencl
