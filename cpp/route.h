// Which of the kernel, ATen's CPU kernel and the fallback runs a call.
#pragma once

#include "op_row.h"
#include "tensor_args.h"

namespace torch_opencl {

enum class Route : uint8_t {
  Kernel,
  SmallCall, // as the row's `small` says, if the call has few elements and the stream is idle
  Cpu,       // ATen's CPU kernel by declaration of the row
  Fallback,  // ATen's CPU kernel with a warning: no kernel has the dtypes
};

// Raises if the tensors are on different devices, if elements of an output share memory, or if the generator is another
// device's.
Route route(const OpInfo& op, const TensorArgs& args);

} // namespace torch_opencl
