// Fourier transforms of all kinds.
#include "entries/fft.h"

#include <ATen/WrapDimUtils.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/native/SpectralOpsUtils.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/empty_strided.h>
#include <algorithm>
#include <cmath>

#include "cpu/cpu_call.h"
#include "native/composite.h"
#include "runtime/error.h"
#include "runtime/tensor_arg.h"
#include "torch_opencl/rust/ops/fft/mod.rs.h"

namespace torch_opencl::native {
namespace {

bool is_half(at::ScalarType dtype) {
  return dtype == at::kHalf || dtype == at::kComplexHalf;
}

at::ScalarType wider(at::ScalarType dtype) {
  return dtype == at::kHalf ? at::kFloat : at::kComplexFloat;
}

at::Tensor narrowed(const at::Tensor& result) {
  return result.to(result.is_complex() ? at::kComplexHalf : at::kHalf);
}

// Runs the CPU's library if the device is the CPU: for 16384 rows of 64 complex64 values it takes 1.2 ms, and the
// kernels 17 ms (PoCL, 2 cores; `make bench CASES="'fft *'"`, and with `TORCH_OPENCL_DEVICE_CLASS=gpu`). It does not
// support 16-bit floats.
template <class Op, class... Args>
at::Tensor on_host(const at::Tensor& self, Args... args) {
  const bool widens = is_half(self.scalar_type());
  const at::Tensor input = widens ? self.to(wider(self.scalar_type())) : self;
  const at::Tensor result = call_on_host<Op>(input, args...);
  return widens ? narrowed(result) : result;
}

double scale_of(int64_t normalization, at::IntArrayRef sizes, at::IntArrayRef dim) {
  double elements = 1;
  for (const int64_t d : dim) elements *= static_cast<double>(sizes[static_cast<size_t>(d)]);
  switch (static_cast<at::native::fft_norm_mode>(normalization)) {
    case at::native::fft_norm_mode::by_root_n:
      return 1.0 / std::sqrt(elements);
    case at::native::fft_norm_mode::by_n:
      return 1.0 / elements;
    default:
      return 1.0;
  }
}

at::DimVector wrapped(const at::Tensor& self, at::IntArrayRef dim) {
  at::DimVector all;
  for (const int64_t d : dim) all.push_back(at::maybe_wrap_dim(d, self.dim()));
  return all;
}

// Sorts the first `count` dimensions by stride, the outermost first, as ATen transforms them.
void sort_dims(at::DimVector& dim, size_t count, at::IntArrayRef strides) {
  std::stable_sort(dim.begin(), dim.begin() + static_cast<int64_t>(count), [&](int64_t a, int64_t b) {
    return strides[static_cast<size_t>(a)] > strides[static_cast<size_t>(b)];
  });
}

// Strides of a result as ATen lays it out: dense, with the batch dimensions outermost in the order of the input's
// strides, then `dim` in order.
at::DimVector result_strides(at::IntArrayRef sizes, at::IntArrayRef strides, at::IntArrayRef dim) {
  at::DimVector order;
  for (int64_t d = 0; d < static_cast<int64_t>(sizes.size()); d++) {
    if (std::find(dim.begin(), dim.end(), d) == dim.end()) order.push_back(d);
  }
  sort_dims(order, order.size(), strides);
  order.append(dim.begin(), dim.end());
  at::DimVector result(sizes.size());
  int64_t stride = 1;
  for (size_t i = order.size(); i-- > 0;) {
    const size_t d = static_cast<size_t>(order[i]);
    result[d] = stride;
    stride *= std::max<int64_t>(sizes[d], 1);
  }
  return result;
}

at::Tensor transformed(
    const at::Tensor& self,
    at::IntArrayRef sizes,
    at::IntArrayRef strides,
    at::ScalarType dtype,
    at::IntArrayRef dim,
    bool forward,
    double scale) {
  at::Tensor result = at::empty_strided(sizes, strides, self.options().dtype(dtype));
  checked([&] { bridge::fft(arg(result), arg(self), arg(dim), forward, scale); });
  return result;
}

// The result for an empty batch, which the CPU's library refuses.
at::Tensor nothing(const at::Tensor& self, at::IntArrayRef dim, int64_t last_dim_size, at::ScalarType dtype) {
  at::DimVector sizes(self.sizes());
  sizes[static_cast<size_t>(at::maybe_wrap_dim(dim.back(), self.dim()))] = last_dim_size;
  return at::empty(sizes, self.options().dtype(dtype));
}

void check_complex(const at::Tensor& self) {
  TORCH_CHECK(self.is_complex(), "Only supports complex dtypes, but found: ", self.scalar_type());
}

} // namespace

at::Tensor fft_c2c(const at::Tensor& self, at::IntArrayRef dim, int64_t normalization, bool forward) {
  check_complex(self);
  if (self.numel() == 0) return at::empty_like(self);
  if (cpu_policy::runs_on_cpu(CpuCalls::Always, self))
    return on_host<at::_ops::_fft_c2c>(self, dim, normalization, forward);
  if (dim.empty()) return self.clone();
  at::DimVector dims = wrapped(self, dim);
  sort_dims(dims, dims.size(), self.strides());
  return transformed(
      self, self.sizes(), result_strides(self.sizes(), self.strides(), dims), self.scalar_type(), dims, forward,
      scale_of(normalization, self.sizes(), dims));
}

at::Tensor fft_r2c(const at::Tensor& self, at::IntArrayRef dim, int64_t normalization, bool onesided) {
  TORCH_CHECK(self.is_floating_point(), "Only supports floating-point dtypes, but found: ", self.scalar_type());
  if (self.numel() == 0) {
    const int64_t last = self.size(dim.back());
    return nothing(self, dim, onesided ? last / 2 + 1 : last, at::toComplexType(self.scalar_type()));
  }
  if (cpu_policy::runs_on_cpu(CpuCalls::Always, self))
    return on_host<at::_ops::_fft_r2c>(self, dim, normalization, onesided);
  at::DimVector dims = wrapped(self, dim), sizes(self.sizes());
  sort_dims(dims, dims.size() - 1, self.strides());
  const size_t last = static_cast<size_t>(dims.back());
  if (onesided) sizes[last] = sizes[last] / 2 + 1;
  return transformed(
      self, sizes, result_strides(sizes, self.strides(), dims), at::toComplexType(self.scalar_type()), dims,
      /*forward=*/true, scale_of(normalization, self.sizes(), dims));
}

at::Tensor fft_c2r(const at::Tensor& self, at::IntArrayRef dim, int64_t normalization, int64_t last_dim_size) {
  check_complex(self);
  if (self.numel() == 0) return nothing(self, dim, last_dim_size, at::toRealValueType(self.scalar_type()));
  if (cpu_policy::runs_on_cpu(CpuCalls::Always, self))
    return on_host<at::_ops::_fft_c2r>(self, dim, normalization, last_dim_size);
  at::DimVector dims = wrapped(self, dim), sizes(self.sizes()), strides(self.strides());
  const size_t last = static_cast<size_t>(dims.back());
  if (dims.size() > 1) {
    sort_dims(dims, dims.size() - 1, self.strides());
    strides = result_strides(sizes, self.strides(), at::IntArrayRef(dims).slice(0, dims.size() - 1));
  }
  sizes[last] = last_dim_size;
  return transformed(
      self, sizes, result_strides(sizes, strides, {dims.back()}), at::toRealValueType(self.scalar_type()), dims,
      /*forward=*/false, scale_of(normalization, sizes, dims));
}

// ATen takes real 16-bit floats on the devices it knows to support them, and raises for other devices before any kernel
// is called. They are computed in 32 bits. Complex ones reach the functions above.
namespace {

// For all of these operators: the first argument is the input, and there is one result.
void transform(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  c10::IValue& input = torch::jit::peek(*stack, 0, op.schema().arguments().size());
  const bool widens = input.toTensor().scalar_type() == at::kHalf;
  if (widens) input = input.toTensor().to(at::kFloat);
  // The key of the function that ATen composes of other operators.
  op.redispatchBoxed(c10::DispatchKeySet(c10::DispatchKey::CPU), stack);
  if (!widens) return;
  c10::IValue& output = torch::jit::peek(*stack, 0, 1);
  output = narrowed(output.toTensor());
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
