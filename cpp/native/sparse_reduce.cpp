// Matmuls of a CSR matrix with another reduction than a sum: torch.sparse.mm with `reduce`.
#include "entries/composite.h"

#include <ATen/OpMathType.h>
#include <ATen/TensorOperators.h>
#include <ATen/native/ReductionType.h>
#include <ATen/ops/_sparse_csr_tensor_unsafe.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/segment_reduce.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>
#include <c10/core/GradMode.h>
#include <string_view>

#include "sparse.h"

namespace torch_opencl::native {
namespace {

using at::native::ReductionType;

bool is_extreme(ReductionType reduction) {
  return reduction == ReductionType::MAX || reduction == ReductionType::MIN;
}

void check(const at::Tensor& self, const at::Tensor& other) {
  TORCH_CHECK(self.layout() == at::kSparseCsr, "sparse_mm_reduce: expect self to be SparseCsr, got ", self.layout());
  TORCH_CHECK(self.dim() == 2, "sparse_mm_reduce: expected self to be a 2-D tensor, got ", self.dim(), "-D tensor.");
  TORCH_CHECK(other.dim() == 2, "Expected tensor other to be 2-D, got ", other.dim(), "-D tensor.");
  TORCH_CHECK(
      self.size(1) == other.size(0), "mat1 and mat2 shapes cannot be multiplied (", self.size(0), "x", self.size(1),
      " and ", other.size(0), "x", other.size(1), ")");
  TORCH_CHECK(
      self.scalar_type() == other.scalar_type(), "expected scalar type ", self.scalar_type(), " but found ",
      other.scalar_type());
}

// Elements in each row, as a column to divide by: at least 1.
at::Tensor divisors(const at::Tensor& matrix, at::ScalarType dtype) {
  return matrix.crow_indices().diff().clamp_min_(1).to(dtype).unsqueeze(1);
}

} // namespace

// The reduced rows and, where gradients of extremes are going to be asked for, the element that each one is from.
std::tuple<at::Tensor, at::Tensor> sparse_mm_reduce(
    const at::Tensor& self, const at::Tensor& other, std::string_view reduce) {
  check(self, other);
  const auto reduction = at::native::get_reduction_enum(reduce);
  TORCH_CHECK(reduction != ReductionType::PROD, "sparse_mm_reduce: reduce type of prod has not been enabled.");
  const at::Tensor none = at::empty({0}, self.col_indices().options());
  const int64_t nnz = self._nnz();
  if (nnz == 0) return {at::zeros({self.size(0), other.size(1)}, other.options()), none};
  if (!is_extreme(reduction)) {
    const at::Tensor sum = sparse::matmul(self, /*transpose=*/false, other);
    return {reduction == ReductionType::MEAN ? sum / divisors(self, sum.scalar_type()) : sum, none};
  }
  const auto all = sparse::elements(self);
  const at::Tensor starts = self.crow_indices();
  const at::Tensor terms = other.index_select(0, all.columns).mul_(all.values.unsqueeze(1));
  const char* kind = reduction == ReductionType::MAX ? "max" : "min";
  const at::Tensor extremes = at::segment_reduce(terms, kind, {}, {}, starts, 0, /*unsafe=*/true);
  at::Tensor out = extremes.masked_fill(starts.diff().eq(0).unsqueeze(1), 0);
  if (!c10::GradMode::is_enabled() || !(self.requires_grad() || other.requires_grad())) return {out, none};
  // The first element that is the extreme; NaN is its own.
  const at::Tensor chosen = out.index_select(0, all.rows);
  const at::Tensor equal = terms.eq(chosen).logical_or_(terms.isnan().logical_and_(chosen.isnan()));
  const at::Tensor index = at::arange(nnz, none.options()).unsqueeze(1);
  const at::Tensor candidates = at::where(equal, index, nnz).to(none.scalar_type());
  const at::Tensor rows = all.rows.to(at::kLong).unsqueeze(1).expand_as(candidates);
  return {out, at::full(out.sizes(), nnz, none.options()).scatter_reduce_(0, rows, candidates, "amin")};
}

std::tuple<at::Tensor, at::Tensor> sparse_mm_reduce_backward(
    const at::Tensor& self,
    const at::Tensor& grad_out,
    const at::Tensor& weight,
    std::string_view reduce,
    const at::Tensor& arg_out,
    std::array<bool, 2> output_mask) {
  const auto reduction = at::native::get_reduction_enum(reduce);
  const auto all = sparse::elements(self);
  const int64_t nnz = self._nnz();
  const auto wide = at::toOpMathType(weight.scalar_type());
  at::Tensor grad_values, grad_other;
  if (nnz == 0) {
    if (output_mask[0]) grad_values = at::zeros_like(all.values);
    if (output_mask[1]) grad_other = at::zeros_like(weight);
  } else if (is_extreme(reduction)) {
    const at::Tensor taken = arg_out.ne(nnz), grad = at::where(taken, grad_out, 0).to(wide);
    const at::Tensor element = at::where(taken, arg_out, 0).view(-1);
    const at::Tensor columns = all.columns.index_select(0, element).to(at::kLong).view(arg_out.sizes());
    if (output_mask[0]) {
      const at::Tensor terms = weight.gather(0, columns).to(wide) * grad;
      grad_values = at::zeros_like(all.values, wide).index_add_(0, element, terms.view(-1));
    }
    if (output_mask[1]) {
      const at::Tensor terms = all.values.index_select(0, element).view(arg_out.sizes()).to(wide) * grad;
      grad_other = at::zeros_like(weight, wide).scatter_add_(0, columns, terms);
    }
  } else {
    const at::Tensor grad =
        reduction == ReductionType::MEAN ? grad_out / divisors(self, grad_out.scalar_type()) : grad_out;
    if (output_mask[0]) {
      const at::Tensor other = weight.index_select(0, all.columns).to(wide);
      grad_values = (other * grad.index_select(0, all.rows).to(wide)).sum(1);
    }
    if (output_mask[1]) grad_other = sparse::matmul(self, /*transpose=*/true, grad);
  }
  if (grad_other.defined()) grad_other = grad_other.to(weight.scalar_type());
  at::Tensor grad_self;
  if (output_mask[0]) {
    grad_values = grad_values.to(all.values.scalar_type());
    grad_self = at::_sparse_csr_tensor_unsafe(
        self.crow_indices(), self.col_indices(), grad_values, self.sizes(),
        grad_values.options().layout(at::kSparseCsr));
  }
  return {std::move(grad_self), std::move(grad_other)};
}

} // namespace torch_opencl::native
