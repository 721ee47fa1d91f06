// Variances for PyTorch 2.11, whose own functions reject tensors of this device.
#include "runtime/compat.h"

#if !TORCH_OPENCL_TORCH_AT_LEAST(12)

#include <ATen/native/ReduceOpsUtils.h>
#include <ATen/native/Resize.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/imag.h>
#include <ATen/ops/mean.h>
#include <ATen/ops/real.h>
#include <limits>

#include "entries/reduce.h"

namespace torch_opencl::native {

// In reduce.cpp, for ATen's stub.
void std_var(at::TensorIterator& iter, double correction, bool take_sqrt);

namespace {

using Correction = std::optional<at::Scalar>;

// Arguments of a reduction.
struct VarMeanOptions {
  const char* op;
  bool take_sqrt;
  at::OptionalIntArrayRef dim;
  std::optional<at::Scalar> correction;
  bool keepdim;

  at::Tensor empty_for(const at::Tensor& self) const {
    return at::empty({0}, self.options().dtype(c10::toRealValueType(self.scalar_type())));
  }

  void check(const at::Tensor& self, const at::Tensor& out) const {
    TORCH_CHECK(self.layout() == at::kStrided, "std and var only supports strided layout, got: ", self.layout());
    TORCH_CHECK(
        at::isFloatingType(self.scalar_type()) || at::isComplexType(self.scalar_type()),
        "std and var only support floating point and complex dtypes");
    TORCH_CHECK(
        at::canCast(c10::toRealValueType(self.scalar_type()), out.scalar_type()), "result type ", self.scalar_type(),
        " can't be cast to the desired output type ", out.scalar_type());
  }

  void run(at::TensorIterator& iter, at::Tensor& variance) const {
    const double lost = correction.value_or(1).toDouble();
    const int64_t results = iter.num_output_elements();
    if (static_cast<double>(results == 0 ? iter.numel() : iter.numel() / results) <= lost) {
      TORCH_WARN(
          op, "(): degrees of freedom is <= 0. Correction should be strictly less than the reduction factor (input ",
          "numel divided by output numel).");
    }
    if (iter.numel() > 0) return std_var(iter, lost, take_sqrt);
    variance.fill_(std::numeric_limits<double>::quiet_NaN());
  }

  // The variance of complex numbers is the sum of those of their parts.
  at::Tensor of_complex(const at::Tensor& self) const {
    const VarMeanOptions part{op, false, dim, correction, keepdim};
    at::Tensor real = empty_for(self), imag = empty_for(self);
    part.into(real, at::real(self));
    part.into(imag, at::imag(self));
    real.add_(imag);
    return take_sqrt ? real.sqrt_() : real;
  }

  at::Tensor& into(at::Tensor& out, const at::Tensor& self) const {
    check(self, out);
    if (self.is_complex()) {
      const at::Tensor variance = of_complex(self);
      at::native::resize_output(out, variance.sizes());
      return out.copy_(variance);
    }
    at::TensorIterator iter = at::native::make_reduction(op, out, self, dim, keepdim, out.scalar_type());
    run(iter, out);
    return out;
  }

  at::Tensor of(const at::Tensor& self) const {
    at::Tensor out = empty_for(self);
    return into(out, self);
  }

  std::tuple<at::Tensor, at::Tensor> with_mean(const at::Tensor& self) const {
    at::Tensor variance = empty_for(self), mean = empty_for(self);
    check(self, variance);
    if (self.is_complex()) return {of_complex(self), at::mean(self, dim, keepdim)};
    at::TensorIterator iter =
        at::native::make_reduction(op, variance, mean, self, dim, keepdim, self.scalar_type(), self.scalar_type());
    if (iter.numel() == 0) mean.fill_(std::numeric_limits<double>::quiet_NaN());
    run(iter, variance);
    return {variance, mean};
  }
};

} // namespace

at::Tensor std(const at::Tensor& self, at::OptionalIntArrayRef dim, const Correction& correction, bool keepdim) {
  return VarMeanOptions{"std", true, dim, correction, keepdim}.of(self);
}
at::Tensor& std_out(
    const at::Tensor& self, at::OptionalIntArrayRef dim, const Correction& correction, bool keepdim, at::Tensor& out) {
  return VarMeanOptions{"std", true, dim, correction, keepdim}.into(out, self);
}
std::tuple<at::Tensor, at::Tensor> std_mean(
    const at::Tensor& self, at::OptionalIntArrayRef dim, const Correction& correction, bool keepdim) {
  return VarMeanOptions{"std_mean", true, dim, correction, keepdim}.with_mean(self);
}
at::Tensor var(const at::Tensor& self, at::OptionalIntArrayRef dim, const Correction& correction, bool keepdim) {
  return VarMeanOptions{"var", false, dim, correction, keepdim}.of(self);
}
at::Tensor& var_out(
    const at::Tensor& self, at::OptionalIntArrayRef dim, const Correction& correction, bool keepdim, at::Tensor& out) {
  return VarMeanOptions{"var", false, dim, correction, keepdim}.into(out, self);
}
std::tuple<at::Tensor, at::Tensor> var_mean(
    const at::Tensor& self, at::OptionalIntArrayRef dim, const Correction& correction, bool keepdim) {
  return VarMeanOptions{"var_mean", false, dim, correction, keepdim}.with_mean(self);
}

} // namespace torch_opencl::native

#endif
