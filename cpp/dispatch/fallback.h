// Ops without a kernel run on the CPU: results are correct, calls are counted, the first call warns, and the user can
// have such ops raise instead.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>
#include <map>
#include <string>

namespace torch_opencl {

// The boxed fallback of the dispatcher.
void cpu_fallback(const c10::OperatorHandle& op, torch::jit::Stack* stack);

// Runs ops that are declared to run on the host (family host of the table): no warning, no count, never an error.
void host_kernel(const c10::OperatorHandle& op, torch::jit::Stack* stack);

// Raises for an invalid value of TORCH_OPENCL_FALLBACK.
void check_fallback_policy();

// Calls per op since the start or the last reset.
std::map<std::string, int64_t> fallback_counts();
void reset_fallback_counts();

} // namespace torch_opencl
