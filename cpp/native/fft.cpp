// Fourier transforms of 16-bit floats: ATen takes them for devices that it knows to have such kernels, and raises for
// others before any kernel is asked. They are computed in 32 bits.
#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>

#include "composite.h"

namespace torch_opencl::native {
namespace {

// Any of them: the first argument is the input, and the result is the only one.
void transform(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  c10::IValue& input = torch::jit::peek(*stack, 0, op.schema().arguments().size());
  const at::ScalarType dtype = input.toTensor().scalar_type();
  const bool is_half = dtype == at::kHalf || dtype == at::kComplexHalf;
  if (is_half) input = input.toTensor().to(dtype == at::kHalf ? at::kFloat : at::kComplexFloat);
  // The key of the function that ATen makes of other operators.
  op.redispatchBoxed(c10::DispatchKeySet(c10::DispatchKey::CPU), stack);
  if (!is_half) return;
  c10::IValue& output = torch::jit::peek(*stack, 0, 1);
  output = output.toTensor().to(output.toTensor().is_complex() ? at::kComplexHalf : at::kHalf);
}

void register_all(torch::Library& m) {
  for (const char* rank : {"", "2", "n"}) {
    for (const char* kind : {"fft", "ifft", "rfft", "irfft", "hfft", "ihfft"}) {
      const std::string name = std::string("fft_") + kind + rank;
      m.impl(name.c_str(), torch::CppFunction::makeFromBoxedFunction<&transform>());
    }
  }
}

TORCH_OPENCL_COMPOSITES(register_all);

} // namespace
} // namespace torch_opencl::native
