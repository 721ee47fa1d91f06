// Matmuls whose result has a dtype of its own: float32 of 16-bit matrices, in which they are summed anyway.
#include <ATen/native/Resize.h>
#include <ATen/ops/empty.h>

#include "matmul.h"

namespace torch_opencl::native {
namespace {

void check_out_dtype(at::ScalarType dtype, at::ScalarType out_dtype) {
  const bool is_16_bit = dtype == at::kHalf || dtype == at::kBFloat16;
  TORCH_CHECK(
      out_dtype == dtype || (out_dtype == at::kFloat && is_16_bit),
      "out_dtype must be the same as input dtype or fp32 for fp16/bf16 inputs");
}

void check_matrices(const char* first, const at::Tensor& mat1, const at::Tensor& mat2, at::ScalarType out_dtype) {
  TORCH_CHECK(mat1.dim() == 2, first, " must be a matrix, got ", mat1.dim(), "-D tensor");
  TORCH_CHECK(mat2.dim() == 2, "mat2 must be a matrix, got ", mat2.dim(), "-D tensor");
  TORCH_CHECK(
      mat1.size(1) == mat2.size(0), "mat1 and mat2 shapes cannot be multiplied (", mat1.size(0), "x", mat1.size(1),
      " and ", mat2.size(0), "x", mat2.size(1), ")");
  TORCH_CHECK(
      mat1.scalar_type() == mat2.scalar_type(), first, " and mat2 must have the same dtype, but got ",
      mat1.scalar_type(), " and ", mat2.scalar_type());
  check_out_dtype(mat1.scalar_type(), out_dtype);
}

void check_batches(const at::Tensor& batch1, const at::Tensor& batch2, at::ScalarType out_dtype) {
  TORCH_CHECK(batch1.dim() == 3, "batch1 must be a 3D tensor");
  TORCH_CHECK(batch2.dim() == 3, "batch2 must be a 3D tensor");
  TORCH_CHECK(
      batch2.size(0) == batch1.size(0) && batch2.size(1) == batch1.size(2),
      "Expected size for first two dimensions of batch2 tensor to be: [", batch1.size(0), ", ", batch1.size(2),
      "] but got: [", batch2.size(0), ", ", batch2.size(1), "].");
  TORCH_CHECK(batch1.scalar_type() == batch2.scalar_type(), "batch1 and batch2 must have the same dtype");
  check_out_dtype(batch1.scalar_type(), out_dtype);
}

void check_bias(const at::Tensor& self, const at::Tensor& mat1, at::ScalarType out_dtype) {
  TORCH_CHECK(
      self.scalar_type() == out_dtype || self.scalar_type() == mat1.scalar_type(),
      "self dtype must match either out_dtype or mat1 dtype");
}

at::DimVector sizes_of(const at::Tensor& a, const at::Tensor& b) {
  at::DimVector sizes(a.sizes());
  sizes.back() = b.size(-1);
  return sizes;
}

at::Tensor empty_product(const at::Tensor& a, const at::Tensor& b, at::ScalarType out_dtype) {
  return at::empty(sizes_of(a, b), a.options().dtype(out_dtype));
}

void resize(const at::Tensor& out, const at::Tensor& a, const at::Tensor& b, at::ScalarType out_dtype) {
  TORCH_CHECK(out_dtype == out.scalar_type(), "out_dtype must be the same as the dtype of the provided out tensor");
  at::native::resize_output(out, sizes_of(a, b));
}

} // namespace

at::Tensor mm_dtype(const at::Tensor& self, const at::Tensor& mat2, at::ScalarType out_dtype) {
  check_matrices("self", self, mat2, out_dtype);
  at::Tensor out = empty_product(self, mat2, out_dtype);
  multiply(out, self, mat2, {}, 0, 1);
  return out;
}

at::Tensor& mm_dtype_out(const at::Tensor& self, const at::Tensor& mat2, at::ScalarType out_dtype, at::Tensor& out) {
  check_matrices("self", self, mat2, out_dtype);
  resize(out, self, mat2, out_dtype);
  multiply(out, self, mat2, {}, 0, 1);
  return out;
}

at::Tensor bmm_dtype(const at::Tensor& self, const at::Tensor& mat2, at::ScalarType out_dtype) {
  check_batches(self, mat2, out_dtype);
  at::Tensor out = empty_product(self, mat2, out_dtype);
  multiply(out, self, mat2, {}, 0, 1);
  return out;
}

at::Tensor& bmm_dtype_out(const at::Tensor& self, const at::Tensor& mat2, at::ScalarType out_dtype, at::Tensor& out) {
  check_batches(self, mat2, out_dtype);
  resize(out, self, mat2, out_dtype);
  multiply(out, self, mat2, {}, 0, 1);
  return out;
}

at::Tensor addmm_dtype(
    const at::Tensor& self,
    const at::Tensor& mat1,
    const at::Tensor& mat2,
    at::ScalarType out_dtype,
    const at::Scalar& beta,
    const at::Scalar& alpha) {
  check_matrices("mat1", mat1, mat2, out_dtype);
  check_bias(self, mat1, out_dtype);
  at::Tensor out = empty_product(mat1, mat2, out_dtype);
  multiply(out, mat1, mat2, self, beta, alpha);
  return out;
}

at::Tensor& addmm_dtype_out(
    const at::Tensor& self,
    const at::Tensor& mat1,
    const at::Tensor& mat2,
    at::ScalarType out_dtype,
    const at::Scalar& beta,
    const at::Scalar& alpha,
    at::Tensor& out) {
  check_matrices("mat1", mat1, mat2, out_dtype);
  check_bias(self, mat1, out_dtype);
  resize(out, mat1, mat2, out_dtype);
  multiply(out, mat1, mat2, self, beta, alpha);
  return out;
}

at::Tensor baddbmm_dtype(
    const at::Tensor& self,
    const at::Tensor& batch1,
    const at::Tensor& batch2,
    at::ScalarType out_dtype,
    const at::Scalar& beta,
    const at::Scalar& alpha) {
  check_batches(batch1, batch2, out_dtype);
  check_bias(self, batch1, out_dtype);
  at::Tensor out = empty_product(batch1, batch2, out_dtype);
  multiply(out, batch1, batch2, self, beta, alpha);
  return out;
}

at::Tensor& baddbmm_dtype_out(
    const at::Tensor& self,
    const at::Tensor& batch1,
    const at::Tensor& batch2,
    at::ScalarType out_dtype,
    const at::Scalar& beta,
    const at::Scalar& alpha,
    at::Tensor& out) {
  check_batches(batch1, batch2, out_dtype);
  check_bias(self, batch1, out_dtype);
  resize(out, batch1, batch2, out_dtype);
  multiply(out, batch1, batch2, self, beta, alpha);
  return out;
}

} // namespace torch_opencl::native
