// Matmuls with a separate result dtype: float32 for 16-bit matrices, which are summed in float32 anyway.
#include <ATen/native/Resize.h>

#include "native/check.h"
#include "native/matmul.h"

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
  check_inner_sizes("mat1 and mat2", mat1, mat2);
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

// Resizes `out` for a @ b.
void resize(const at::Tensor& out, const at::Tensor& a, const at::Tensor& b, at::ScalarType out_dtype) {
  TORCH_CHECK(out_dtype == out.scalar_type(), "out_dtype must be the same as the dtype of the provided out tensor");
  at::DimVector sizes(a.sizes());
  sizes.back() = b.size(-1);
  at::native::resize_output(out, sizes);
}

} // namespace

at::Tensor& mm_dtype_out(const at::Tensor& self, const at::Tensor& mat2, at::ScalarType out_dtype, at::Tensor& out) {
  check_matrices("self", self, mat2, out_dtype);
  resize(out, self, mat2, out_dtype);
  multiply(out, self, mat2, {}, 0, 1);
  return out;
}

at::Tensor& bmm_dtype_out(const at::Tensor& self, const at::Tensor& mat2, at::ScalarType out_dtype, at::Tensor& out) {
  check_batches(self, mat2, out_dtype);
  resize(out, self, mat2, out_dtype);
  multiply(out, self, mat2, {}, 0, 1);
  return out;
}

at::Tensor& addmm_dtype_out(const Arguments<at::_ops::addmm_dtype_out>& args) {
  check_matrices("mat1", args.mat1, args.mat2, args.out_dtype);
  check_bias(args.self, args.mat1, args.out_dtype);
  resize(args.out, args.mat1, args.mat2, args.out_dtype);
  multiply(args.out, args.mat1, args.mat2, args.self, args.beta, args.alpha);
  return args.out;
}

at::Tensor& baddbmm_dtype_out(const Arguments<at::_ops::baddbmm_dtype_out>& args) {
  check_batches(args.batch1, args.batch2, args.out_dtype);
  check_bias(args.self, args.batch1, args.out_dtype);
  resize(args.out, args.batch1, args.batch2, args.out_dtype);
  multiply(args.out, args.batch1, args.batch2, args.self, args.beta, args.alpha);
  return args.out;
}

} // namespace torch_opencl::native
