// Calls of ATen's CPU kernels from entries, which ask cpu_policy.h when.
#pragma once

#include <ATen/native/CPUFallback.h>

#include "cpu/cpu_policy.h"
#include "dispatch/fallback.h"

namespace torch_opencl {

// Calls ATen's CPU function.
template <class Op, class... Args>
auto call_on_host(const Args&... args) {
  return at::native::call_fallback_fn<&host_kernel, Op>::call(args...);
}

} // namespace torch_opencl
