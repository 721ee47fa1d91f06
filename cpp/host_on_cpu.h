// Kernels of operators that the CPU's own functions compute better on a device that is the CPU.
#pragma once

#include <ATen/core/boxing/KernelFunction.h>
#include <ATen/native/CPUFallback.h>
#include <torch/library.h>
#include <memory>

#include "fallback.h"

namespace torch_opencl {

// Returns true if a tensor's device is the CPU, whose memory ATen's own functions can read.
bool is_host_cpu(const at::Tensor& tensor);

// Calls ATen's own function for the CPU.
template <class Op, class... Args>
auto call_on_host(const Args&... args) {
  return at::native::call_fallback_fn<&host_kernel, Op>::call(args...);
}

// The calls that a device which is the CPU leaves to the host: all, or those with a large tensor. A short call by a
// kernel is only enqueued, where the host would have to wait for what is before it.
enum class HostCalls { All, Large };

// The `on_cpu` of a row, and sets of dtypes: those of its kernel, and those of tensors that the host takes.
struct OnCpu {
  HostCalls calls;
  uint64_t kernel_dtypes, host_dtypes;
};

// A kernel, or `host_kernel` in its place on devices that are the CPU. With HostCalls::All the host also serves, on
// every device, the dtypes that the kernel does not take or the device does not compute in.
class HostOnCpu final : public c10::OperatorKernel {
 public:
  HostOnCpu(c10::KernelFunction kernel, OnCpu choice) : kernel_(std::move(kernel)), choice_(choice) {}

  void operator()(const c10::OperatorHandle& op, c10::DispatchKeySet keys, torch::jit::Stack* stack) const;

 private:
  bool takes_host(c10::ArrayRef<c10::IValue> arguments) const;
  bool takes_host(const at::Tensor& tensor) const;

  c10::KernelFunction kernel_;
  OnCpu choice_;
};

// Stands for the library `m` in the macros of registration.h, for rows with `on_cpu`.
class GpuLibrary {
 public:
  GpuLibrary(torch::Library& library, OnCpu choice) : library_(library), choice_(choice) {}

  template <class Function>
  void impl(const char* name, Function function) {
    auto kernel = std::make_unique<HostOnCpu>(c10::KernelFunction::makeFromUnboxedFunction(function), choice_);
    library_.impl(name, torch::CppFunction::makeFromBoxedKernel(c10::BoxedKernel::makeFromFunctor(std::move(kernel))));
  }

 private:
  torch::Library& library_;
  OnCpu choice_;
};

} // namespace torch_opencl
