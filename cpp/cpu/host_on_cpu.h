// Calls of ATen's CPU kernels from entries for which they are faster, on a device that is the CPU.
#pragma once

#include <ATen/native/CPUFallback.h>

#include "dispatch/fallback.h"

namespace torch_opencl {

// Returns true if a tensor's device is the CPU: ATen's own functions can read its memory.
bool is_host_cpu(const at::Tensor& tensor);

// Calls ATen's CPU function.
template <class Op, class... Args>
auto call_on_host(const Args&... args) {
  return at::native::call_fallback_fn<&host_kernel, Op>::call(args...);
}

} // namespace torch_opencl
