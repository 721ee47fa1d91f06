// Ops without a kernel run on the CPU: correct, counted, warned of once, and refused when the user asks for that.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>
#include <map>
#include <string>

namespace torch_opencl {

// The boxed fallback of the dispatcher.
void cpu_fallback(const c10::OperatorHandle& op, torch::jit::Stack* stack);

// Ops that are declared to run on the host (family host of the table): neither warned of, counted nor refused.
void host_kernel(const c10::OperatorHandle& op, torch::jit::Stack* stack);

// Refuses an invalid value of TORCH_OPENCL_FALLBACK.
void check_fallback_policy();

// Calls per op since the start or the last reset.
std::map<std::string, int64_t> fallback_counts();
void reset_fallback_counts();

} // namespace torch_opencl
