#include "native/matmul.h"

#include <ATen/ExpandUtils.h>
#include <ATen/MemoryOverlap.h>
#include <ATen/OpMathType.h>
#include <ATen/ops/_efficientzerotensor.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/gelu.h>
#include <ATen/ops/mul.h>

#include "dispatch/operand.h"
#include "native/contiguous.h"
#include "runtime/error.h"
#include "torch_opencl/rust/ops/matmul/mod.rs.h"

namespace torch_opencl::native {

using bridge::Activation;

namespace {

// Raises with the CPU's messages, which differ for matrices and batches.
void check_dtypes(const at::Tensor& a, const at::Tensor& b) {
  TORCH_CHECK(
      a.dim() == 3 || a.scalar_type() == b.scalar_type(),
      "expected m1 and m2 to have the same dtype, but got: ", a.dtype(), " != ", b.dtype());
  TORCH_CHECK(
      a.scalar_type() == b.scalar_type(), "expected scalar type ", a.scalar_type(), " but found ", b.scalar_type());
}

bool overlaps(const at::Tensor& out, const at::Tensor& input) {
  return input.defined() && out.is_alias_of(input) && at::get_overlap_status(out, input) != at::MemOverlapStatus::No;
}

bool is_same_memory(const at::Tensor& out, const at::Tensor& input) {
  return input.defined() && out.is_alias_of(input) && out.const_data_ptr() == input.const_data_ptr() &&
      out.sizes() == input.sizes() && out.strides() == input.strides();
}

void activate(const at::Tensor& out, Activation activation) {
  at::Tensor result = out;
  if (activation == Activation::Relu) result.relu_();
  if (activation == Activation::Gelu) at::gelu_(result);
}

bool is_zero(const at::Scalar& value) {
  return value.isComplex() ? value.toComplexDouble() == 0.0 : value.toDouble() == 0.0;
}

// alpha or beta as kernels take it: a value that the dtype of the sums cannot hold raises.
bridge::Scalar scale_arg(const at::Scalar& value, const at::Tensor& out) {
  return scalar_as(value, at::toOpMathType(out.scalar_type()));
}

// out = beta * bias, or 0 without `bias`.
void scale(const at::Tensor& out, const at::Tensor& bias, const at::Scalar& beta) {
  at::Tensor result = out;
  if (!bias.defined()) {
    result.zero_();
    return;
  }
  const bool is_integer = c10::isIntegralType(out.scalar_type(), /*includeBool=*/true);
  at::mul_out(result, bias.expand(out.sizes()), is_integer ? at::Scalar(beta.to<int64_t>()) : beta);
}

void check_vectors(const at::Tensor& a, const at::Tensor& b) {
  TORCH_CHECK(a.dim() == 1 && b.dim() == 1, "1D tensors expected, but got ", a.dim(), "D and ", b.dim(), "D tensors");
  TORCH_CHECK(
      a.scalar_type() == b.scalar_type(), "dot : expected both vectors to have same dtype, but found ", a.scalar_type(),
      " and ", b.scalar_type());
  TORCH_CHECK(
      a.numel() == b.numel(), "inconsistent tensor size, expected tensor [", a.numel(), "] and src [", b.numel(),
      "] to have the same number of elements, but got ", a.numel(), " and ", b.numel(), " elements respectively");
}

} // namespace

void multiply(
    const at::Tensor& out,
    const at::Tensor& a,
    const at::Tensor& b,
    const at::Tensor& bias,
    const at::Scalar& beta,
    const at::Scalar& alpha,
    Activation activation) {
  check_dtypes(a, b);
  // Raises if `bias` does not fit, even if it is not read.
  const at::Tensor expanded = bias.defined() ? bias.expand(out.sizes()) : bias;
  if (out.numel() == 0) return;
  const bool adds = bias.defined() && !is_zero(beta);
  if (adds) at::assert_no_partial_overlap(out, expanded);
  // A matmul reads its operands after it has begun to write, and kernels do not handle a lazy conjugate of the output.
  // In both cases the result is computed in separate memory and copied to `out`. `bias` may be the output, as each
  // element is read where it is added.
  const bool is_lazy = out.is_conj() || out.is_neg();
  if (is_lazy || overlaps(out, a) || overlaps(out, b) || (!is_same_memory(out, expanded) && overlaps(out, expanded))) {
    const at::Tensor result = at::empty(out.sizes(), out.options());
    multiply(result, a, b, bias, beta, alpha, activation);
    out.copy_(result);
    return;
  }
  const bridge::Scalar alpha_arg = scale_arg(alpha, out), beta_arg = scale_arg(beta, out);
  if (is_zero(alpha)) {
    scale(out, adds ? bias : at::Tensor(), beta);
    activate(out, activation);
    return;
  }
  // PyTorch leaves it to these matmuls to resolve lazy conjugates.
  const at::Tensor first = repeated_in_batches_only(a.resolve_conj()),
                   second = repeated_in_batches_only(b.resolve_conj());
  const at::Tensor added = adds ? expanded.resolve_conj() : at::Tensor();
  const bool is_activated = checked(
      [&] { return bridge::matmul(arg(out), arg(first), arg(second), arg(added), alpha_arg, beta_arg, activation); });
  if (!is_activated) activate(out, activation);
}

void mm_out::impl(const at::Tensor& self, const at::Tensor& mat2, const at::Tensor& out) {
  multiply(out, self, mat2, at::Tensor(), 0, 1);
}

void addmm_out::impl(
    const at::Tensor& self,
    const at::Tensor& mat1,
    const at::Tensor& mat2,
    const at::Scalar& beta,
    const at::Scalar& alpha,
    const at::Tensor& out) {
  multiply(out, mat1, mat2, self, beta, alpha);
}

void addmm_activation_out::impl(
    const at::Tensor& self,
    const at::Tensor& mat1,
    const at::Tensor& mat2,
    const at::Scalar& beta,
    const at::Scalar& alpha,
    bool use_gelu,
    const at::Tensor& out) {
  const Activation activation = use_gelu ? Activation::Gelu : Activation::Relu;
  multiply(out, mat1, mat2, self, beta, alpha, activation);
}

void bmm_out::impl(const at::Tensor& self, const at::Tensor& mat2, const at::Tensor& out) {
  multiply(out, self, mat2, at::Tensor(), 0, 1);
}

void baddbmm_out::impl(
    const at::Tensor& self,
    const at::Tensor& batch1,
    const at::Tensor& batch2,
    const at::Scalar& beta,
    const at::Scalar& alpha,
    const at::Tensor& out) {
  multiply(out, batch1, batch2, self, beta, alpha);
}

void addmv_out::impl(
    const at::Tensor& self,
    const at::Tensor& mat,
    const at::Tensor& vec,
    const at::Scalar& beta,
    const at::Scalar& alpha,
    const at::Tensor& out) {
  const at::Tensor bias = self.expand(out.sizes()).unsqueeze(1);
  multiply(out.unsqueeze(1), mat, vec.unsqueeze(1), bias, beta, alpha);
}

at::Tensor dot(const at::Tensor& self, const at::Tensor& other) {
  check_vectors(self, other);
  // ATen leaves tangents that are zero, and have no memory, to this function.
  if (self._is_zerotensor() || other._is_zerotensor()) return at::_efficientzerotensor({}, self.options());
  const at::Tensor out = at::empty({}, self.options());
  if (self.numel() == 0) return out.zero_();
  const at::Tensor first = self.resolve_conj(), second = other.resolve_conj();
  checked([&] { bridge::dot(arg(out), arg(first), arg(second)); });
  return out;
}

// Conjugates `self`.
at::Tensor vdot(const at::Tensor& self, const at::Tensor& other) {
  check_vectors(self, other);
  return native::dot(self.is_complex() ? self.conj() : self, other);
}

} // namespace torch_opencl::native
