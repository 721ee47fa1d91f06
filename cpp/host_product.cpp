#include "host_product.h"

#include <ATen/Parallel.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/ops/addmm.h>
#include <ATen/ops/baddbmm.h>
#include <ATen/ops/bmm.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/mm.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <stdexcept>

#include "tensor_arg.h"
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

at::Scalar scalar(const Scalar& factor, const at::Tensor& like) {
  if (like.is_complex()) return c10::complex<double>(factor.real, factor.imag);
  return factor.real;
}

// Calls ATen as CPU kernels are called: below autograd, and with autocast disabled.
template <class Call>
void below_autograd(Call&& call) {
  const at::AutoDispatchBelowADInplaceOrView guard;
  const c10::impl::ExcludeDispatchKeyGuard no_autocast(c10::autocast_dispatch_keyset);
  try {
    call();
  } catch (const c10::Error& error) {
    // Rust gets `what()`, which would end in a backtrace.
    throw std::runtime_error(error.what_without_backtrace());
  }
}

} // namespace

int32_t host_threads() {
  return at::get_num_threads();
}

void host_product(Tensor out, Tensor a, Tensor b, Scalar alpha) {
  if (alpha.real != 1 || alpha.imag != 0) return host_product_added(out, out, a, b, alpha, {});
  below_autograd([&] {
    at::Tensor result = view(out);
    result.dim() > 2 ? at::bmm_out(result, view(a), view(b)) : at::mm_out(result, view(a), view(b));
  });
}

void host_product_added(Tensor out, Tensor addend, Tensor a, Tensor b, Scalar alpha, Scalar beta) {
  below_autograd([&] {
    at::Tensor result = view(out);
    const at::Scalar scale = scalar(beta, result), factor = scalar(alpha, result);
    // Where `addend` is the result, it must be the same tensor to ATen.
    const at::Tensor added = addend.address == out.address ? result : view(addend);
    result.dim() > 2 ? at::baddbmm_out(result, added, view(a), view(b), scale, factor)
                     : at::addmm_out(result, added, view(a), view(b), scale, factor);
  });
}

} // namespace torch_opencl::bridge
