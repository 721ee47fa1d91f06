// Operators whose results are sparse: of matmuls by row, and of diagonals.
#include "entries/composite.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/_sparse_coo_tensor_unsafe.h>
#include <ATen/ops/_unique2.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/stack.h>

#include "sparse.h"

namespace torch_opencl::native {
namespace {

void check_matmul(const char* op, const at::Tensor& mat1, const at::Tensor& mat2) {
  TORCH_CHECK(mat1.is_sparse(), op, ": expected 'mat1' to have sparse layout, got 'mat1' with layout ", mat1.layout());
  TORCH_CHECK(
      mat2.layout() == at::kStrided, op, ": expected 'mat2' to have strided layout, got 'mat2' with layout ",
      mat2.layout());
  TORCH_CHECK(
      mat1.sparse_dim() == 2 && mat1.dense_dim() == 0, op, ": Argument #2: matrices expected, got ", mat1.sparse_dim(),
      "D tensor");
  TORCH_CHECK(mat2.dim() == 2, op, ": Argument #3: matrices expected, got ", mat2.dim(), "D tensor");
  TORCH_CHECK(
      mat1.size(1) == mat2.size(0), op, ": Argument #3: Expected dim 0 size ", mat1.size(1), ", got ", mat2.size(0));
}

// The rows of a matmul of which the sparse matrix has elements: their indices, ascending, and their values.
struct Rows {
  at::Tensor indices, values;
};

Rows rows_of_matmul(const at::Tensor& mat1, const at::Tensor& mat2) {
  const sparse::Elements all = sparse::elements(mat1.coalesce());
  const auto [rows, inverse, counts] =
      at::_unique2(all.rows, /*sorted=*/true, /*return_inverse=*/true, /*return_counts=*/false);
  return {rows, sparse::matmul({inverse, all.columns, all.values, /*by_row=*/true}, rows.numel(), mat2)};
}

} // namespace

at::Tensor& hspmm_out(const at::Tensor& mat1, const at::Tensor& mat2, at::Tensor& out) {
  check_matmul("hspmm", mat1, mat2);
  TORCH_CHECK(out.is_sparse(), "hspmm: expected 'out' to be sparse, but got layout ", out.layout());
  const Rows result = rows_of_matmul(mat1, mat2);
  return sparse::assign(
      out, {mat1.size(0), mat2.size(1)}, result.indices.unsqueeze(0), result.values, /*is_coalesced=*/true);
}

at::Tensor hspmm(const at::Tensor& mat1, const at::Tensor& mat2) {
  check_matmul("hspmm", mat1, mat2);
  at::Tensor out = at::empty({0}, mat1.options());
  return native::hspmm_out(mat1, mat2, out);
}

at::Tensor& sspaddmm_out(
    const at::Tensor& self,
    const at::Tensor& mat1,
    const at::Tensor& mat2,
    const at::Scalar& beta,
    const at::Scalar& alpha,
    at::Tensor& out) {
  check_matmul("sspaddmm", mat1, mat2);
  TORCH_CHECK(
      self.is_sparse() && out.is_sparse(), "sspaddmm: expected 'self' and 'out' to be sparse, but got layouts ",
      self.layout(), " and ", out.layout());
  const int64_t rows = mat1.size(0), columns = mat2.size(1);
  TORCH_CHECK(
      self.sparse_dim() == 2 && self.dense_dim() == 0 && self.size(0) == rows && self.size(1) == columns,
      "sspaddmm: Argument #1: Expected size ", rows, " x ", columns, ", got ", self.sizes());
  const Rows result = rows_of_matmul(mat1, mat2);
  const int64_t count = result.indices.numel();
  const at::Tensor row = result.indices.unsqueeze(1).expand({count, columns}).reshape(-1);
  const at::Tensor column = at::arange(columns, row.options()).expand({count, columns}).reshape(-1);
  const at::Tensor indices = at::cat({self._indices(), at::stack({row, column})}, 1);
  const at::Tensor values = at::cat({self._values() * beta, result.values.reshape(-1) * alpha});
  return sparse::assign(out, {rows, columns}, indices, values, /*is_coalesced=*/false);
}

at::Tensor spdiags(
    const at::Tensor& diagonals, const at::Tensor& offsets, at::IntArrayRef shape, std::optional<at::Layout> layout) {
  const at::Tensor rows = diagonals.dim() == 1 ? diagonals.unsqueeze(0) : diagonals;
  TORCH_CHECK(rows.dim() == 2, "Diagonals must be vector or matrix");
  TORCH_CHECK(shape.size() == 2, "Output shape must be 2d");
  const at::Tensor starts = offsets.dim() == 0 ? offsets.unsqueeze(0) : offsets;
  TORCH_CHECK(starts.dim() == 1, "Offsets must be scalar or vector");
  TORCH_CHECK(
      rows.size(0) == starts.size(0), "Number of diagonals (", rows.size(0), ") does not match the number of offsets (",
      starts.size(0), ")");
  TORCH_CHECK(starts.scalar_type() == at::kLong, "Offset Tensor must have dtype Long but got ", starts.scalar_type());
  const auto [unique, inverse, counts] = at::_unique2(starts);
  TORCH_CHECK(unique.numel() == starts.numel(), "Offset tensor contains duplicate values");
  const at::Layout chosen = layout.value_or(at::kSparse);
  TORCH_CHECK(
      chosen == at::kSparse || chosen == at::kSparseCsr || chosen == at::kSparseCsc,
      "Only output layouts (Sparse, SparseCsc, SparseCsr) are supported, got ", chosen);
  // Column j of the matrix has elements j of the diagonals.
  const at::Tensor column = at::arange(std::min(rows.size(1), shape[1]), starts.options());
  const at::Tensor row = column - starts.unsqueeze(1);
  const at::Tensor is_within = row.ge(0).logical_and_(row.lt(shape[0])).flatten().nonzero().squeeze(1);
  const auto kept = [&](const at::Tensor& tensor) { return tensor.reshape(-1).index_select(0, is_within); };
  const at::Tensor result = at::_sparse_coo_tensor_unsafe(
      at::stack({kept(row), kept(column.expand(row.sizes()))}), kept(rows.narrow(1, 0, column.numel())), shape,
      diagonals.options().layout(at::kSparse));
  return chosen == at::kSparse ? result : result.to_sparse(chosen, at::OptionalIntArrayRef(), std::nullopt);
}

} // namespace torch_opencl::native
