#include "cpu/host_matmul.h"

#include <ATen/Parallel.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/ops/addmm.h>
#include <ATen/ops/baddbmm.h>
#include <ATen/ops/bmm.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/mm.h>
#include <ATen/record_function.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <stdexcept>

#include "runtime/tensor_arg.h"
#include "torch_opencl/rust/blas/host.rs.h"

namespace torch_opencl::bridge {
namespace {

at::Tensor view(const Tensor& matrix) {
  const at::IntArrayRef sizes(matrix.sizes.data(), matrix.sizes.size());
  const at::IntArrayRef strides(matrix.strides.data(), matrix.strides.size());
  return at::from_blob(
      reinterpret_cast<void*>(matrix.address), sizes, strides,
      at::TensorOptions(at::kCPU).dtype(static_cast<at::ScalarType>(matrix.dtype)));
}

at::Scalar scalar(const Scalar& value, const at::Tensor& like) {
  if (like.is_complex()) return c10::complex<double>(value.real, value.imag);
  return value.real;
}

// Calls ATen as CPU kernels are called: below autograd, and with autocast disabled. Profilers and modes see the op
// itself once. They do not see this call, nor the calls that measure which library is the fastest.
template <class Call>
void below_autograd(Call&& call) {
  const at::AutoDispatchBelowADInplaceOrView guard;
  const c10::impl::ExcludeDispatchKeyGuard no_autocast(c10::autocast_dispatch_keyset);
  const c10::impl::ExcludeDispatchKeyGuard no_modes(c10::python_ks);
  const at::DisableRecordFunctionGuard no_profiler;
  try {
    call();
  } catch (const c10::Error& error) {
    // Rust gets `what()`, which would include a backtrace.
    throw std::runtime_error(error.what_without_backtrace());
  }
}

} // namespace

int32_t host_threads() {
  return at::get_num_threads();
}

void host_matmul(Tensor out, Tensor a, Tensor b, Scalar alpha) {
  if (alpha.real != 1 || alpha.imag != 0) return host_addmm(out, out, a, b, alpha, {});
  below_autograd([&] {
    at::Tensor result = view(out);
    result.dim() > 2 ? at::bmm_out(result, view(a), view(b)) : at::mm_out(result, view(a), view(b));
  });
}

void host_addmm(Tensor out, Tensor bias, Tensor a, Tensor b, Scalar alpha, Scalar beta) {
  below_autograd([&] {
    at::Tensor result = view(out);
    const at::Scalar beta_value = scalar(beta, result), alpha_value = scalar(alpha, result);
    // If `bias` is the result, ATen must get the same tensor for both.
    const at::Tensor added = bias.address == out.address ? result : view(bias);
    result.dim() > 2 ? at::baddbmm_out(result, added, view(a), view(b), beta_value, alpha_value)
                     : at::addmm_out(result, added, view(a), view(b), beta_value, alpha_value);
  });
}

} // namespace torch_opencl::bridge
