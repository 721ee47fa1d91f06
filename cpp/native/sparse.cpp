// Matmuls with sparse matrices, for all sparse layouts.
#include "native/sparse.h"

#include <ATen/OpMathType.h>
#include <ATen/SparseCsrTensorUtils.h>
#include <ATen/TensorOperators.h>
#include <ATen/native/DispatchStub.h>
#include <ATen/ops/_convert_indices_from_csr_to_coo.h>
#include <ATen/ops/_sparse_coo_tensor_with_dims_and_tensors_native.h>
#include <ATen/ops/_sparse_sparse_matmul.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/mm_native.h>
#include <ATen/ops/repeat_interleave.h>
#include <ATen/ops/searchsorted.h>
#include <ATen/ops/zeros.h>

#include "cpu/host_call.h"
#include "entries/composite.h"
#include "native/check.h"
#include "runtime/error.h"
#include "runtime/tensor_arg.h"
#include "torch_opencl/rust/ops/sparse/mod.rs.h"

namespace torch_opencl::native {
namespace sparse {

Elements elements(const at::Tensor& matrix) {
  const at::Layout layout = matrix.layout();
  if (layout != at::kSparseCsr && layout != at::kSparseCsc) {
    const at::Tensor coo = layout == at::kSparse ? matrix : matrix.to_sparse();
    return {coo._indices().select(0, 0), coo._indices().select(0, 1), coo._values(), coo.is_coalesced()};
  }
  const auto [compressed, plain] = at::sparse_csr::getCompressedPlainIndices(matrix);
  const at::Tensor indices = at::_convert_indices_from_csr_to_coo(compressed, plain);
  const Elements by_row{indices.select(0, 0), indices.select(0, 1), matrix.values(), /*by_row=*/true};
  return layout == at::kSparseCsr ? by_row : by_row.transposed();
}

namespace {

// Positions of elements in the flattened sparse dimensions.
at::Tensor flatten_indices(const at::Tensor& indices, at::IntArrayRef sizes) {
  if (indices.size(0) == 0) return at::zeros({indices.size(1)}, indices.options());
  at::Tensor flat = indices.select(0, 0);
  for (int64_t dim = 1; dim < indices.size(0); dim++) flat = flat.mul(sizes[dim]).add_(indices.select(0, dim));
  return flat;
}

void check_dtypes(const at::Tensor& values, const at::Tensor& dense) {
  TORCH_CHECK(
      values.scalar_type() == dense.scalar_type(), "expected scalar type ", values.scalar_type(), " but found ",
      dense.scalar_type());
}

// Dtypes of the kernel: others are summed in another dtype than theirs.
bool has_kernel(const at::Tensor& dense) {
  return dense.scalar_type() != at::kBool && dense.scalar_type() != at::kComplexHalf;
}

// The matmul as the sums of its terms.
at::Tensor summed_terms(
    const at::Tensor& rows,
    const at::Tensor& columns,
    const at::Tensor& values,
    int64_t out_rows,
    const at::Tensor& dense,
    at::ScalarType sum_dtype) {
  at::Tensor sum = at::zeros({out_rows, dense.size(1)}, dense.options().dtype(sum_dtype));
  if (sum.numel() == 0 || rows.numel() == 0) return sum;
  at::Tensor terms = dense.index_select(0, columns).to(sum_dtype);
  if (values.defined()) terms.mul_(values.unsqueeze(1));
  return sum.index_add_(0, rows, terms);
}

enum class Compressed { No, Rows, Columns };

// A matmul with few elements, on the host. With Compressed::Rows `matrix.rows` is crow_indices, with
// Compressed::Columns `matrix.columns` is ccol_indices.
std::optional<at::Tensor> matmul_on_host(
    const Elements& matrix, Compressed compressed, int64_t out_rows, const at::Tensor& dense) {
  HostMemory memory;
  const auto views = memory.views<4>({matrix.rows, matrix.columns, matrix.values, dense});
  if (!views.has_value()) return std::nullopt;
  const auto& [rows, columns, values, by_row] = *views;
  const OneThread one_thread;
  const int64_t count = (compressed == Compressed::Rows ? columns : rows).numel();
  const auto repeated = [&](const at::Tensor& starts) {
    return at::repeat_interleave(starts.diff(), std::optional<int64_t>(count));
  };
  return memory.to_device(summed_terms(
      compressed == Compressed::Rows ? repeated(rows) : rows,
      compressed == Compressed::Columns ? repeated(columns) : columns, values, out_rows, by_row, dense.scalar_type()));
}

// Row i of the sparse matrix begins at starts[i].
at::Tensor csr_matmul(
    const at::Tensor& starts, const at::Tensor& columns, const at::Tensor& values, const at::Tensor& dense) {
  const int64_t rows = starts.size(0) - 1;
  if (auto out = matmul_on_host({starts, columns, values}, Compressed::Rows, rows, dense)) return *std::move(out);
  at::Tensor out = at::empty({rows, dense.size(1)}, dense.options());
  const at::Tensor first = starts.contiguous(), column = columns.to(first.scalar_type()).contiguous(),
                   value = values.contiguous(), matrix = dense.stride(1) == 1 ? dense : dense.contiguous();
  checked([&] { bridge::csr_matmul(arg(out), {arg(first), arg(column), arg(value)}, arg(matrix)); });
  return out;
}

// The dense matmul of a sparse matrix with `rows` rows and a dense one.
at::Tensor matmul(const Elements& matrix, int64_t rows, const at::Tensor& dense) {
  check_dtypes(matrix.values, dense);
  if (has_kernel(dense)) {
    if (auto out = matmul_on_host(matrix, Compressed::No, rows, dense)) return *std::move(out);
    at::Tensor sorted = matrix.rows, columns = matrix.columns, values = matrix.values;
    if (!matrix.by_row) {
      if (auto out = scattered_matmul(matrix, /*is_compressed=*/false, rows, dense)) return *out;
      const auto [sorted_rows, order] = matrix.rows.sort(/*stable=*/true, 0, /*descending=*/false);
      sorted = sorted_rows;
      columns = columns.index_select(0, order);
      values = values.index_select(0, order);
    }
    const at::Tensor starts = at::searchsorted(sorted, at::arange(rows + 1, sorted.options()));
    return csr_matmul(starts, columns, values, dense);
  }
  const at::ScalarType sum_dtype = at::toOpMathType(dense.scalar_type());
  return summed_terms(matrix.rows, matrix.columns, matrix.values, rows, dense, sum_dtype).to(dense.scalar_type());
}

} // namespace

std::optional<at::Tensor> scattered_matmul(
    const Elements& matrix, bool is_compressed, int64_t out_rows, const at::Tensor& dense) {
  // Sums are kept in `out`.
  if (at::toOpMathType(dense.scalar_type()) != dense.scalar_type()) return std::nullopt;
  const Compressed compressed = is_compressed ? Compressed::Columns : Compressed::No;
  if (auto out = matmul_on_host(matrix, compressed, out_rows, dense)) return out;
  at::Tensor out = at::empty({out_rows, dense.size(1)}, dense.options());
  const at::Tensor row = matrix.rows.contiguous(), column = matrix.columns.to(row.scalar_type()).contiguous(),
                   value = matrix.values.defined() ? matrix.values.contiguous() : at::Tensor(),
                   by_row = dense.stride(1) == 1 ? dense : dense.contiguous();
  const bool is_done = checked([&] {
    return bridge::scattered_matmul(arg(out), {arg(row), arg(column), arg(value), is_compressed}, arg(by_row));
  });
  return is_done ? std::optional(out) : std::nullopt;
}

at::Tensor matmul(const at::Tensor& matrix, bool transpose, const at::Tensor& dense) {
  check_dtypes(matrix.is_sparse() ? matrix._values() : matrix.values(), dense);
  const bool is_by_row = matrix.layout() == (transpose ? at::kSparseCsc : at::kSparseCsr);
  if ((is_by_row || matrix.layout() == (transpose ? at::kSparseCsr : at::kSparseCsc)) && has_kernel(dense)) {
    const auto [starts, plain] = at::sparse_csr::getCompressedPlainIndices(matrix);
    if (is_by_row) return csr_matmul(starts, plain, matrix.values(), dense);
    const int64_t rows = matrix.size(transpose ? 1 : 0);
    if (auto out = scattered_matmul({plain, starts, matrix.values()}, /*is_compressed=*/true, rows, dense)) return *out;
  }
  const Elements all = elements(matrix);
  return matmul(transpose ? all.transposed() : all, matrix.size(transpose ? 1 : 0), dense);
}

} // namespace sparse

at::Tensor sparse_coo_tensor_with_dims_and_tensors(
    const Arguments<at::_ops::_sparse_coo_tensor_with_dims_and_tensors>& args) {
  return at::native::new_with_dims_and_tensor_sparse_symint(
      args.sparse_dim, args.dense_dim, c10::fromIntArrayRefSlow(args.size), args.indices, args.values, args.dtype,
      args.layout, args.device, args.pin_memory, args.is_coalesced);
}

// The composites' addmm, bmm and others call it for all their matmuls with a dense matrix.
at::Tensor mm_sparse(const at::Tensor& self, const at::Tensor& mat2) {
  if (self.is_sparse() && mat2.is_sparse()) return at::_sparse_sparse_matmul(self, mat2);
  const bool is_first_dense = self.layout() == at::kStrided;
  if (!is_first_dense && mat2.layout() != at::kStrided) return at::native::_sparse_csr_mm(self, mat2);
  TORCH_CHECK(
      self.dim() == 2 && mat2.dim() == 2, "mm: expected two matrices, but got ", self.dim(), "-D and ", mat2.dim(),
      "-D tensors");
  check_inner_sizes("mat1 and mat2", self, mat2);
  const at::Tensor& sparse = is_first_dense ? mat2 : self;
  TORCH_CHECK(
      !sparse.is_sparse() || sparse.dense_dim() == 0, "mm: expected a sparse matrix without dense dimensions, but got ",
      sparse.dense_dim());
  if (is_first_dense) return sparse::matmul(mat2, /*transpose=*/true, self.t()).t();
  return sparse::matmul(self, /*transpose=*/false, mat2);
}

void convert_indices_from_coo_to_csr::impl(
    const at::Tensor& self, int64_t size, bool /*out_int32*/, const at::Tensor& result) {
  result.copy_(at::searchsorted(self, at::arange(size + 1, self.options())));
}

// The row of an element is the last one that begins at it or before.
void convert_indices_from_csr_to_coo::impl(
    const at::Tensor& crow_indices,
    const at::Tensor& col_indices,
    bool /*out_int32*/,
    bool transpose,
    const at::Tensor& result) {
  const int64_t batch_dims = crow_indices.dim() - 1, nnz = col_indices.size(-1);
  if (result.numel() == 0) return;
  const at::Tensor position = at::arange(nnz, crow_indices.options()).expand(col_indices.sizes());
  const at::Tensor rows = at::searchsorted(crow_indices, position, /*out_int32=*/false, /*right=*/true).sub_(1);
  const at::IntArrayRef batch = crow_indices.sizes().slice(0, batch_dims);
  at::DimVector shape{result.size(0)};
  shape.append(batch.begin(), batch.end());
  shape.push_back(nnz);
  const at::Tensor indices = result.view(shape);
  for (int64_t dim = 0; dim < batch_dims; dim++) {
    at::DimVector along(col_indices.dim(), 1);
    along[dim] = batch[dim];
    indices.select(0, dim).copy_(
        at::arange(batch[dim], crow_indices.options()).view(along).expand(col_indices.sizes()));
  }
  indices.select(0, batch_dims + (transpose ? 1 : 0)).copy_(rows);
  indices.select(0, batch_dims + (transpose ? 0 : 1)).copy_(col_indices);
}

} // namespace torch_opencl::native

// ATen installs no header that declares it.
namespace at::native {
using flatten_indices_fn = Tensor (*)(const Tensor& indices, IntArrayRef size);
DECLARE_DISPATCH(flatten_indices_fn, flatten_indices_stub)
REGISTER_PRIVATEUSE1_DISPATCH(flatten_indices_stub, &torch_opencl::native::sparse::flatten_indices)
} // namespace at::native
