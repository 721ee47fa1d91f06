#include "native_entries.h"

#include <ATen/WrapDimUtils.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/native/CPUFallback.h>
#include <ATen/native/SpectralOpsUtils.h>
#include <ATen/ops/empty.h>
#include <algorithm>
#include <cmath>

#include "../error.h"
#include "../fallback.h"
#include "../tensor_arg.h"
#include "composite.h"
#include "torch_opencl/rust/ops/fft/mod.rs.h"

namespace torch_opencl::native {
namespace {

bool is_power_of_two(int64_t length) {
  return length > 0 && (length & (length - 1)) == 0;
}

double scale_of(int64_t normalization, int64_t elements) {
  switch (static_cast<at::native::fft_norm_mode>(normalization)) {
    case at::native::fft_norm_mode::by_root_n:
      return 1.0 / std::sqrt(static_cast<double>(elements));
    case at::native::fft_norm_mode::by_n:
      return 1.0 / static_cast<double>(elements);
    default:
      return 1.0;
  }
}

} // namespace

// Kernels transform powers of two, one dimension after the other; transforms of other lengths run on the CPU. So do all
// where the device is the CPU: its library's transforms take a tenth of the time, and read the same memory.
at::Tensor fft_c2c(const at::Tensor& self, at::IntArrayRef dim, int64_t normalization, bool forward) {
  const auto symbolic = c10::fromIntArrayRefSlow(dim);
  if (checked([&] { return bridge::fft_runs_on_host(arg(self)); })) {
    return at::native::call_fallback_fn_symint<&host_kernel, at::_ops::_fft_c2c>::call(
        self, symbolic, normalization, forward);
  }
  if (!std::all_of(dim.begin(), dim.end(), [&](int64_t d) { return is_power_of_two(self.size(d)); })) {
    return at::native::call_fallback_fn_symint<&cpu_fallback, at::_ops::_fft_c2c>::call(
        self, symbolic, normalization, forward);
  }
  int64_t elements = 1;
  at::DimVector axes;
  for (const int64_t d : dim) {
    elements *= self.size(d);
    if (self.size(d) > 1) axes.push_back(at::maybe_wrap_dim(d, self.dim()));
  }
  if (axes.empty()) return self.clone(at::MemoryFormat::Contiguous);
  at::Tensor result = self.contiguous();
  for (const int64_t axis : axes) {
    const double scale = axis == axes.back() ? scale_of(normalization, elements) : 1.0;
    at::Tensor out = at::empty(self.sizes(), self.options());
    checked([&] { bridge::fft_c2c(arg(out), arg(result), static_cast<size_t>(axis), forward, scale); });
    result = std::move(out);
  }
  return result;
}

// Transforms of 16-bit floats: ATen takes them for devices that it knows to have such kernels, and raises for others
// before any kernel is asked. They are computed in 32 bits.
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
  for (const char* dims : {"", "2", "n"}) {
    for (const char* kind : {"fft", "ifft", "rfft", "irfft", "hfft", "ihfft"}) {
      const std::string name = std::string("fft_") + kind + dims;
      m.impl(name.c_str(), torch::CppFunction::makeFromBoxedFunction<&transform>());
    }
  }
}

TORCH_OPENCL_COMPOSITES(register_all);

} // namespace
} // namespace torch_opencl::native
