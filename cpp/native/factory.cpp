#include "entries/factory.h"
#include "entries/composite.h"

#include <ATen/native/RangeFactories.h>
#include <ATen/native/RangeUtils.h>
#include <ATen/native/Resize.h>
#include <ATen/ops/linspace.h>
#include <ATen/ops/logspace.h>
#include <ATen/ops/pow.h>
#include <ATen/ops/scalar_tensor.h>

#include "cpu/host_iteration.h"
#include "runtime/error.h"
#include "runtime/tensor_arg.h"
#include "torch_opencl/rust/ops/factory/mod.rs.h"

namespace torch_opencl::native {
namespace {

// Sequences fill an output of any shape with as many elements.
void resize_to_count(const at::Tensor& out, int64_t count) {
  if (out.numel() != count) out.resize_({count});
}

// Runs a kernel on a contiguous tensor instead of `out`.
template <class Fill>
void fill_contiguous(const at::Tensor& out, Fill&& fill) {
  const at::Tensor target = out.contiguous();
  checked([&] { fill(target); });
  if (!target.is_same(out)) out.copy_(target);
}

} // namespace

void arange(at::TensorIterator& iter, const at::Scalar& start, const at::Scalar& steps, const at::Scalar& step) {
  if (ran_on_host<at::native::arange_stub>(Casts::No, iter, start, steps, step)) return;
  fill_contiguous(iter.tensor(0), [&](const at::Tensor& out) { bridge::arange(arg(out), arg(start), arg(step)); });
}

void linspace(at::TensorIterator& iter, const at::Scalar& start, const at::Scalar& end, int64_t steps) {
  if (ran_on_host<at::native::linspace_stub>(Casts::No, iter, start, end, steps)) return;
  // Raises PyTorch's error for ends that the dtype does not hold.
  AT_DISPATCH_ALL_TYPES_AND_COMPLEX_AND2(at::kHalf, at::kBFloat16, iter.dtype(), "linspace", [&] {
    static_cast<void>(start.to<scalar_t>());
    static_cast<void>(end.to<scalar_t>());
  });
  fill_contiguous(iter.tensor(0), [&](const at::Tensor& out) { bridge::linspace(arg(out), arg(start), arg(end)); });
}

// A scalar to the power of each element. ATen would first make the scalar a tensor of float64 on the device.
void pow_scalar_out::impl(const at::Scalar& base, const at::Tensor& exponent, const at::Tensor& out) {
  if (base.equal(1.0)) {
    out.fill_(1);
    return;
  }
  // A scalar from the host goes into the kernel's arguments.
  at::Tensor number = at::scalar_tensor(base, at::device(at::kCPU).dtype(base.type()));
  number.unsafeGetTensorImpl()->set_wrapped_number(true);
  at::pow_out(const_cast<at::Tensor&>(out), number, exponent);
}

at::Tensor& logspace_out(const at::Scalar& start, const at::Scalar& end, int64_t steps, double base, at::Tensor& out) {
  // Truncation to integers shows every ulp, and not every device has double precision.
  const bool is_integral = at::isIntegralType(out.scalar_type(), /*includeBool=*/true);
  const at::Tensor values = is_integral ? at::logspace(start, end, steps, base, out.options().device(at::kCPU))
                                        : at::pow(base, at::linspace(start, end, steps, out.options()));
  resize_to_count(out, steps);
  return out.copy_(values.view(out.sizes()));
}

at::Tensor& range_out(const at::Scalar& start, const at::Scalar& end, const at::Scalar& step, at::Tensor& out) {
  // Tensors of integers count whole steps between whole bounds.
  const bool is_integral = at::isIntegralType(out.scalar_type(), /*includeBool=*/false);
  const auto number = [&](const at::Scalar& given) { return is_integral ? at::Scalar(given.to<int64_t>()) : given; };
  const at::Scalar first = number(start), last = number(end), stride = number(step);
  at::native::arange_check_bounds(first, last, stride);
  const auto steps = static_cast<int64_t>((last.to<double>() - first.to<double>()) / stride.to<double>());
  resize_to_count(out, steps + 1);
  fill_contiguous(out, [&](const at::Tensor& target) { bridge::arange(arg(target), arg(first), arg(stride)); });
  return out;
}

at::Tensor& eye_out(int64_t n, at::Tensor& out) {
  return eye_m_out(n, n, out);
}

at::Tensor& eye_m_out(int64_t n, int64_t m, at::Tensor& out) {
  TORCH_CHECK(n >= 0, "n must be greater or equal to 0, got ", n);
  TORCH_CHECK(m >= 0, "m must be greater or equal to 0, got ", m);
  at::native::resize_output(out, {n, m});
  out.zero_();
  out.diagonal().fill_(1);
  return out;
}

} // namespace torch_opencl::native
