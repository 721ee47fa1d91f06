#include "entries/fft.h"

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

// Dimensions with those of the batch first, by stride as in memory, and those to transform last.
at::DimVector batch_first(const at::Tensor& self, at::IntArrayRef dim) {
  at::DimVector batch, transformed;
  for (const int64_t d : dim) transformed.push_back(at::maybe_wrap_dim(d, self.dim()));
  for (int64_t d = 0; d < self.dim(); d++) {
    if (std::find(transformed.begin(), transformed.end(), d) == transformed.end()) batch.push_back(d);
  }
  const auto is_outer = [&](int64_t a, int64_t b) { return self.stride(a) > self.stride(b); };
  std::stable_sort(batch.begin(), batch.end(), is_outer);
  std::stable_sort(transformed.begin(), transformed.end(), is_outer);
  batch.append(transformed.begin(), transformed.end());
  return batch;
}

at::DimVector inverse_of(at::IntArrayRef order) {
  at::DimVector inverse(order.size());
  for (size_t i = 0; i < order.size(); i++) inverse[static_cast<size_t>(order[i])] = static_cast<int64_t>(i);
  return inverse;
}

} // namespace

// Kernels transform powers of two, one dimension after the other; transforms of other lengths run on the CPU. So do all
// where the device is the CPU: of 16384 rows of 64 complex64 values its library takes 1.2 ms, and the kernels 17 ms
// (PoCL, 2 cores; `make bench CASES="'fft *'"`, and with `TORCH_OPENCL_DEVICE_CLASS=gpu`).
at::Tensor fft_c2c(const at::Tensor& self, at::IntArrayRef dim, int64_t normalization, bool forward) {
  const auto symbolic = c10::fromIntArrayRefSlow(dim);
  if (checked([&] { return bridge::is_host_cpu(self.get_device()); })) {
    return at::native::call_fallback_fn_symint<&host_kernel, at::_ops::_fft_c2c>::call(
        self, symbolic, normalization, forward);
  }
  if (!std::all_of(dim.begin(), dim.end(), [&](int64_t d) { return is_power_of_two(self.size(d)); })) {
    return at::native::call_fallback_fn_symint<&cpu_fallback, at::_ops::_fft_c2c>::call(
        self, symbolic, normalization, forward);
  }
  if (dim.empty()) return self.clone();
  // The result is laid out as ATen's meta function says.
  const at::DimVector order = batch_first(self, dim);
  at::Tensor result = self.permute(order).contiguous();
  int64_t elements = 1, axes = 0;
  for (const int64_t d : dim) {
    elements *= self.size(d);
    axes += self.size(d) > 1 ? 1 : 0;
  }
  if (axes == 0) result = result.clone();
  for (int64_t axis = result.dim() - 1; axes > 0; axis--) {
    if (result.size(axis) == 1) continue;
    axes--;
    const double scale = axes == 0 ? scale_of(normalization, elements) : 1.0;
    at::Tensor out = at::empty(result.sizes(), result.options());
    checked([&] { bridge::fft_c2c(arg(out), arg(result), static_cast<size_t>(axis), forward, scale); });
    result = std::move(out);
  }
  return result.permute(inverse_of(order));
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
