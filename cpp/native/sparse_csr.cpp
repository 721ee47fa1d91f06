// Operators on tensors in compressed layouts that ATen's own functions, which the table names, do not compose of
// others.
#include "entries/composite.h"

#include <ATen/ExpandUtils.h>
#include <ATen/SparseCsrTensorUtils.h>
#include <ATen/TensorOperators.h>
#include <ATen/native/Resize.h>
#include <ATen/ops/add.h>
#include <ATen/ops/mm_native.h>
#include <ATen/ops/resize_as_sparse.h>

#include "check.h"
#include "sparse.h"

namespace torch_opencl::native {
namespace {

bool is_compressed(const at::Tensor& tensor) {
  return at::sparse_csr::is_sparse_compressed(tensor);
}

// Gives a tensor other contents, of which the layout may be another one.
at::Tensor& assign(at::Tensor& out, const at::Tensor& contents) {
  const at::Tensor converted = contents.to_sparse(out.layout(), at::OptionalIntArrayRef(), std::nullopt);
  at::resize_as_sparse_(out, converted);
  return out.copy_(converted);
}

void check_matmul(const at::Tensor& mat1, const at::Tensor& mat2) {
  TORCH_CHECK(
      mat1.dim() == 2 && mat2.dim() == 2, "addmm: Expected two matrices, but got ", mat1.dim(), "-D and ", mat2.dim(),
      "-D tensors");
  check_inner_sizes("mat1 and mat2", mat1, mat2);
}

} // namespace

at::Tensor& addmm_sparse_csr_out(
    const at::Tensor& self,
    const at::Tensor& mat1,
    const at::Tensor& mat2,
    const at::Scalar& beta,
    const at::Scalar& alpha,
    at::Tensor& out) {
  check_matmul(mat1, mat2);
  if (is_compressed(mat1) && is_compressed(mat2)) {
    const auto matmul_result = sparse::matmul(sparse::elements(mat1), sparse::elements(mat2), mat2.size(0));
    at::Tensor sum = sparse::coalesced(matmul_result, {mat1.size(0), mat2.size(1)}).mul_(alpha);
    if (!is_compressed(out)) {
      sparse::add_matmul(self, sum.to_dense(), beta, 1, out);
      return out;
    }
    if (!beta.equal(0)) sum = at::add(self.to_sparse().mul(beta), sum);
    return assign(out, sum.coalesce());
  }
  TORCH_CHECK(
      self.layout() == at::kStrided && out.layout() == at::kStrided,
      "addmm: the matmul of a sparse and a strided matrix is strided, but self and out have layouts ", self.layout(),
      " and ", out.layout());
  return sparse::add_dense_matmul(self, mat1, mat2, beta, alpha, out);
}

// ATen's function converts a matrix in CSC layout, such as the transposed one of a gradient, to CSR.
at::Tensor mm_sparse_csr(const at::Tensor& self, const at::Tensor& mat2) {
  const bool is_single = self.layout() == at::kSparseCsr || self.layout() == at::kSparseCsc;
  if (!is_single || mat2.layout() != at::kStrided) return at::native::_sparse_csr_mm(self, mat2);
  check_matmul(self, mat2);
  return sparse::matmul(self, /*transpose=*/false, mat2);
}

at::Tensor& addmv_sparse_csr_out(
    const at::Tensor& self,
    const at::Tensor& mat,
    const at::Tensor& vec,
    const at::Scalar& beta,
    const at::Scalar& alpha,
    at::Tensor& out) {
  TORCH_CHECK(is_compressed(mat) && vec.dim() == 1, "addmv: Expected a sparse matrix and a vector");
  TORCH_CHECK(
      mat.size(1) == vec.size(0), "size mismatch, got input (", mat.size(0), "), mat (", mat.size(0), "x", mat.size(1),
      "), vec (", vec.size(0), ")");
  const auto expanded = at::expand_size(self, {mat.size(0)}, "addmv_out");
  const at::Tensor matmul_result = sparse::matmul(mat, /*transpose=*/false, vec.unsqueeze(1)).squeeze(1);
  sparse::add_matmul(*expanded, matmul_result, beta, alpha, out);
  return out;
}

at::Tensor& add_sparse_csr_out(
    const at::Tensor& self, const at::Tensor& other, const at::Scalar& alpha, at::Tensor& out) {
  if (self.layout() == at::kStrided) return at::add_out(out, self, other.to_sparse(), alpha);
  TORCH_CHECK(is_compressed(other), "add(sparse_csr, dense) is not supported. Use add(dense, sparse_csr) instead.");
  TORCH_CHECK(
      self.sizes().equals(other.sizes()),
      "torch.add: Expected input tensors to have the same shape, but got tensor `self` with shape ", self.sizes(),
      " and tensor `other` with shape ", other.sizes());
  return assign(out, at::add(self.to_sparse(), other.to_sparse(), alpha).coalesce());
}

at::Tensor& sparse_sampled_addmm_out(
    const at::Tensor& self,
    const at::Tensor& mat1,
    const at::Tensor& mat2,
    const at::Scalar& beta,
    const at::Scalar& alpha,
    at::Tensor& out) {
  TORCH_CHECK(
      self.is_sparse_csr() && self.dim() == 2, "sampled_addmm: Expected self to be a matrix in CSR layout, but got ",
      self.layout());
  check_matmul(mat1, mat2);
  TORCH_CHECK(
      self.size(0) == mat1.size(0) && self.size(1) == mat2.size(1), "sampled_addmm: Expected self.shape to be ",
      mat1.size(0), "x", mat2.size(1), ", but got ", self.sizes());
  const auto [rows, columns, values, by_row] = sparse::elements(self);
  const at::Tensor products = mat1.index_select(0, rows).mul_(mat2.t().index_select(0, columns));
  const at::Tensor sums = products.sum(1).mul_(alpha).add_(values.mul(beta));
  if (!out.is_same(self)) {
    at::resize_as_sparse_(out, self);
    out.copy_(self);
  }
  out.values().copy_(sums);
  return out;
}

} // namespace torch_opencl::native
