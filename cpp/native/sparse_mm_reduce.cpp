// Matmuls of a CSR matrix and a dense one with a choice of reduction, as graph neural networks pass messages.
#include "entries/composite.h"

#include <ATen/SparseCsrTensorUtils.h>
#include <ATen/TensorOperators.h>
#include <ATen/native/ReductionType.h>
#include <ATen/ops/diff.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros.h>
#include <c10/core/GradMode.h>

#include "native/sparse.h"
#include "runtime/error.h"
#include "runtime/tensor_arg.h"
#include "torch_opencl/rust/ops/segment_reduce/sparse_mm.rs.h"

namespace torch_opencl::native {
namespace {

using at::native::ReductionType;

ReductionType reduction_of(const at::Tensor& self, const at::Tensor& other, std::string_view reduce) {
  TORCH_CHECK(self.layout() == at::kSparseCsr, "sparse_mm_reduce: expect self to be SparseCsr, got ", self.layout());
  TORCH_CHECK(self.dense_dim() == 0, "sparse_mm_reduce: expected non-hybrid self tensor.");
  TORCH_CHECK(self.dim() == 2, "sparse_mm_reduce: expected self to be a 2-D tensor, got ", self.dim(), "-D tensor.");
  TORCH_CHECK(
      other.layout() == at::kStrided, "sparse_mm_reduce: expected a strided dense matrix, got layout ", other.layout());
  TORCH_CHECK(
      self.scalar_type() == other.scalar_type(), "sparse_mm_reduce: expected 'other' to have scalar type ",
      self.scalar_type(), ", but got ", other.scalar_type());
  TORCH_CHECK(
      other.dim() == 2 && other.size(0) == self.size(1), "sparse_mm_reduce: expected 'other' to be a matrix with ",
      self.size(1), " rows, but got shape ", other.sizes());
  TORCH_CHECK_NOT_IMPLEMENTED(
      at::isFloatingType(self.scalar_type()), "\"sparse_mm_reduce\" not implemented for '", self.scalar_type(), "'");
  const ReductionType reduction = at::native::get_reduction_enum(reduce);
  TORCH_CHECK(reduction != ReductionType::PROD, "sparse_mm_reduce: reduce type of prod has not been enabled.");
  return reduction;
}

bool is_extreme(ReductionType reduction) {
  return reduction == ReductionType::MAX || reduction == ReductionType::MIN;
}

// Elements of each row as a column: at least one, for means.
at::Tensor counts(const at::Tensor& matrix) {
  return matrix.crow_indices().diff().clamp_min_(1).unsqueeze(1);
}

at::Tensor like(const at::Tensor& matrix, const at::Tensor& values) {
  at::Tensor result = matrix.clone();
  result.values().copy_(values);
  return result;
}

// Gradients of extremes: each extreme passes its gradient to the element that it came from.
std::tuple<at::Tensor, at::Tensor> extreme_gradients(
    const at::Tensor& self,
    const at::Tensor& grad,
    const at::Tensor& other,
    const at::Tensor& arg_out,
    std::array<bool, 2> output_mask) {
  const at::Tensor found = arg_out.ne(self._nnz());
  const at::Tensor element = arg_out.masked_fill(found.logical_not(), 0).to(at::kLong).flatten();
  const at::Tensor column = self.col_indices().index_select(0, element).to(at::kLong).view_as(arg_out);
  const at::Tensor zero = at::zeros({}, grad.options());
  at::Tensor grad_self, grad_other;
  if (output_mask[0]) {
    const at::Tensor products = at::where(found, other.gather(0, column).mul_(grad), zero);
    grad_self = like(self, at::zeros_like(self.values()).index_add_(0, element, products.flatten()));
  }
  if (output_mask[1]) {
    const at::Tensor products = self.values().index_select(0, element).view_as(grad).mul(grad);
    grad_other = at::zeros(other.sizes(), other.options()).scatter_add_(0, column, at::where(found, products, zero));
  }
  return {grad_self, grad_other};
}

// Gradients of the values of `matrix` for a sum.
at::Tensor sum_gradient(const sparse::Elements& matrix, const at::Tensor& grad, const at::Tensor& other) {
  const at::Tensor values = at::zeros({matrix.values.numel()}, grad.options());
  if (values.numel() == 0 || grad.numel() == 0) return values;
  const at::Tensor rows = matrix.rows.contiguous(), columns = matrix.columns.contiguous();
  const at::Tensor dense_grad = grad.contiguous(), dense = other.contiguous();
  checked([&] { bridge::sparse_mm_grad_values(arg(values), arg(rows), arg(columns), arg(dense_grad), arg(dense)); });
  return values;
}

} // namespace

// The second result, for extremes that need a gradient, is the index of the element of `self` that each came from.
std::tuple<at::Tensor, at::Tensor> sparse_mm_reduce(
    const at::Tensor& self, const at::Tensor& other, std::string_view reduce) {
  const ReductionType reduction = reduction_of(self, other, reduce);
  const auto [crow_indices, col_indices] = at::sparse_csr::getCompressedPlainIndices(self);
  at::Tensor arg_out = at::empty({0}, col_indices.options());
  at::Tensor out = at::zeros({self.size(0), other.size(1)}, other.options());
  if (self._nnz() == 0) return {std::move(out), std::move(arg_out)};
  const bool has_gradient = at::GradMode::is_enabled() && (self.requires_grad() || other.requires_grad());
  if (is_extreme(reduction) && has_gradient) arg_out.resize_(out.sizes());
  if (out.numel() == 0) return {std::move(out), std::move(arg_out)};
  const at::Tensor crow = crow_indices.contiguous(), columns = col_indices.contiguous();
  const at::Tensor values = self.values().contiguous(), dense = other.contiguous();
  checked([&] {
    const bridge::CsrMatrix matrix{arg(crow), arg(columns), arg(values)};
    const bridge::Tensor elements = arg_out.numel() > 0 ? arg(arg_out) : bridge::Tensor{};
    bridge::sparse_mm_reduce(arg(out), elements, matrix, arg(dense), static_cast<int32_t>(reduction));
  });
  return {std::move(out), std::move(arg_out)};
}

std::tuple<at::Tensor, at::Tensor> sparse_mm_reduce_backward(
    const at::Tensor& self,
    const at::Tensor& grad_out,
    const at::Tensor& weight,
    std::string_view reduce,
    const at::Tensor& arg_out,
    std::array<bool, 2> output_mask) {
  const ReductionType reduction = reduction_of(self, weight, reduce);
  if (is_extreme(reduction) && self._nnz() > 0) return extreme_gradients(self, grad_out, weight, arg_out, output_mask);
  const at::Tensor grad = reduction == ReductionType::MEAN ? grad_out / counts(self) : grad_out;
  at::Tensor grad_self, grad_other;
  if (output_mask[0]) grad_self = like(self, sum_gradient(sparse::elements(self), grad, weight));
  if (output_mask[1]) grad_other = sparse::matmul(self, /*transpose=*/true, grad);
  return {grad_self, grad_other};
}

} // namespace torch_opencl::native
