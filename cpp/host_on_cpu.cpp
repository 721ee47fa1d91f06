#include "host_on_cpu.h"

#include <ATen/core/Tensor.h>

#include "bridge.h"
#include "error.h"
#include "fallback_arguments.h"

namespace torch_opencl {
namespace {

// Elements of a tensor from which its call takes longer than waiting for a queue (some 50 us, PoCL, 2 cores).
constexpr int64_t kMinElements = int64_t{1} << 16;

} // namespace

bool is_host_cpu(const at::Tensor& tensor) {
  return checked([&] { return bridge::is_host_cpu(tensor.get_device()); });
}

void HostOnCpu::operator()(const c10::OperatorHandle& op, c10::DispatchKeySet keys, torch::jit::Stack* stack) const {
  if (takes_host(torch::jit::last(*stack, op.schema().arguments().size()))) return host_kernel(op, stack);
  kernel_.callBoxed(op, keys, stack);
}

bool HostOnCpu::takes_host(c10::ArrayRef<c10::IValue> arguments) const {
  bool takes = false;
  for (const c10::IValue& argument : arguments) {
    for_each_tensor(argument, [&](const at::Tensor& tensor) { takes = takes || takes_host(tensor); });
  }
  return takes;
}

bool HostOnCpu::takes_host(const at::Tensor& tensor) const {
  if (!tensor.is_privateuseone()) return false;
  const auto code = static_cast<unsigned>(tensor.scalar_type());
  const auto contains = [&](uint64_t dtypes) { return code < 64 && (dtypes >> code & 1u) != 0; };
  if (choice_.calls == HostCalls::Large) {
    return tensor.numel() >= kMinElements && contains(choice_.host_dtypes) && is_host_cpu(tensor);
  }
  if (!contains(choice_.kernel_dtypes) || (contains(choice_.host_dtypes) && is_host_cpu(tensor))) return true;
  const bool is_double = tensor.scalar_type() == at::kDouble || tensor.scalar_type() == at::kComplexDouble;
  return is_double && checked([&] { return !bridge::computes_in_fp64(tensor.get_device()); });
}

} // namespace torch_opencl
