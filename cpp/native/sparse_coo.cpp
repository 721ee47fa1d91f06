// Operators on COO tensors that ATen's own functions, which the table names, do not compose of others.
#include "entries/composite.h"

#include <ATen/ExpandUtils.h>
#include <ATen/SparseTensorImpl.h>
#include <ATen/TensorOperators.h>
#include <ATen/WrapDimUtilsMulti.h>
#include <ATen/native/DispatchStub.h>
#include <ATen/native/SparseTensorUtils.h>
#include <ATen/ops/_sparse_coo_tensor_with_dims_and_tensors.h>
#include <ATen/ops/_sparse_coo_tensor_with_dims_and_tensors_native.h>
#include <ATen/ops/_sparse_sum_backward_native.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/copy_sparse_to_sparse.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/mul_native.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/searchsorted.h>
#include <ATen/ops/sparse_mask_native.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>

#include "sparse.h"

// ATen installs no header that declares it.
namespace at::native {
using flatten_indices_fn = Tensor (*)(const Tensor& indices, IntArrayRef size);
DECLARE_DISPATCH(flatten_indices_fn, flatten_indices_stub)
REGISTER_PRIVATEUSE1_DISPATCH(flatten_indices_stub, &torch_opencl::native::sparse::flatten_indices)
} // namespace at::native

namespace torch_opencl::native {
namespace sparse {

at::Tensor& assign(
    at::Tensor& out, at::IntArrayRef sizes, const at::Tensor& indices, const at::Tensor& values, bool is_coalesced) {
  auto* impl = at::sparse::get_sparse_impl(out);
  const int64_t sparse_dim = indices.size(0);
  impl->raw_resize_(sparse_dim, static_cast<int64_t>(sizes.size()) - sparse_dim, sizes);
  impl->set_indices_and_values_unsafe(indices, values.to(out.scalar_type()));
  return out._coalesced_(is_coalesced);
}

at::Tensor like(
    const at::Tensor& self,
    at::IntArrayRef sizes,
    const at::Tensor& indices,
    const at::Tensor& values,
    bool is_coalesced) {
  const int64_t sparse_dim = indices.size(0);
  return at::_sparse_coo_tensor_with_dims_and_tensors(
      sparse_dim, static_cast<int64_t>(sizes.size()) - sparse_dim, sizes, indices, values,
      self.options().dtype(values.scalar_type()), is_coalesced);
}

Matches find(const at::Tensor& sorted, const at::Tensor& wanted) {
  const at::Tensor position = at::searchsorted(sorted, wanted).clamp_max_(sorted.numel() - 1);
  return {position, sorted.index_select(0, position).eq(wanted)};
}

at::Tensor flat(const at::Tensor& self) {
  return sparse::flatten_indices(self._indices(), self.sizes());
}

at::Tensor masked(const at::Tensor& values, const at::Tensor& found) {
  at::DimVector shape(values.dim(), 1);
  shape[0] = found.numel();
  return at::where(found.view(shape), values, at::zeros({}, values.options()));
}

} // namespace sparse

namespace {

using sparse::assign;
using sparse::find;
using sparse::flat;
using sparse::like;
using sparse::masked;
using sparse::Matches;

// Sums of values along dimension 0, each added to the element of `sums` that `index` names. The sum of bool is `or`.
void add_at(const at::Tensor& sums, const at::Tensor& index, const at::Tensor& values) {
  if (sums.scalar_type() != at::kBool) {
    sums.index_add_(0, index, values);
  } else {
    const at::Tensor counts = sums.to(at::kInt);
    sums.copy_(counts.index_add_(0, index, values.to(at::kInt)).ne(0));
  }
}

void check_same_sizes(const at::Tensor& self, const at::Tensor& other) {
  TORCH_CHECK(
      self.sizes().equals(other.sizes()), "add: expected sizes of 'self' and 'other' to match, but ", self.sizes(),
      " != ", other.sizes());
}

at::ScalarType common_dtype(const char* op, const at::Tensor& self, const at::Tensor& other, const at::Tensor& out) {
  const at::ScalarType common = at::promoteTypes(self.scalar_type(), other.scalar_type());
  TORCH_CHECK(
      at::canCast(common, out.scalar_type()), "Can't convert result type ", common, " to output ", out.scalar_type(),
      " in ", op, " operation");
  return common;
}

// Adds the elements to a dense tensor of the same sizes.
void add_elements(const at::Tensor& dense, const at::Tensor& sparse, const at::Tensor& values) {
  const at::Tensor target = dense.contiguous();
  const int64_t sparse_dim = sparse.sparse_dim();
  at::DimVector shape{c10::multiply_integers(dense.sizes().slice(0, sparse_dim))};
  const auto inner = dense.sizes().slice(sparse_dim);
  shape.append(inner.begin(), inner.end());
  add_at(target.view(shape), flat(sparse), values);
  if (!target.is_same(dense)) dense.copy_(target);
}

at::Tensor scaled(const at::Tensor& values, const at::Scalar& alpha, at::ScalarType dtype) {
  // Converted first: -1 times a uint8 would wrap around.
  const at::Tensor converted = values.to(dtype);
  return alpha.equal(1) ? converted : converted.mul(alpha).to(dtype);
}

at::Tensor& add_to_dense(const at::Tensor& self, const at::Tensor& other, const at::Scalar& alpha, at::Tensor& out) {
  TORCH_CHECK(
      self.sizes().equals(other.sizes()), "add: expected 'self' and 'other' to have same size, but self has size ",
      self.sizes(), " while other has size ", other.sizes(),
      " (FYI: dense-sparse addition does not currently support broadcasting)");
  const at::ScalarType common = common_dtype("add", self, other, out);
  out.resize_as_(self);
  const bool is_in_place = out.scalar_type() == common;
  const at::Tensor sum = is_in_place ? out : at::empty(self.sizes(), self.options().dtype(common));
  if (!sum.is_same(self)) sum.copy_(self);
  if (other._nnz() > 0 && sum.numel() > 0) add_elements(sum, other, scaled(other._values(), alpha, common));
  if (!is_in_place) out.copy_(sum);
  return out;
}

void check_matrices(const at::Tensor& mat1, const at::Tensor& mat2) {
  TORCH_CHECK(mat1.sparse_dim() == 2, "addmm: matrices expected, got ", mat1.sparse_dim(), "D tensor");
  TORCH_CHECK(mat1.dense_dim() == 0, "addmm: scalar values expected, got ", mat1.dense_dim(), "D values");
  TORCH_CHECK(mat2.dim() == 2, "addmm: matrices expected, got ", mat2.dim(), "D tensor");
  TORCH_CHECK(
      mat2.size(0) == mat1.size(1), "addmm: Argument #3 (dense): Expected dim 0 size ", mat1.size(1), ", got ",
      mat2.size(0));
}

} // namespace

at::Tensor sparse_coo_tensor_with_dims_and_tensors(
    const Arguments<at::_ops::_sparse_coo_tensor_with_dims_and_tensors>& args) {
  return at::native::new_with_dims_and_tensor_sparse_symint(
      args.sparse_dim, args.dense_dim, c10::fromIntArrayRefSlow(args.size), args.indices, args.values, args.dtype,
      args.layout, args.device, args.pin_memory, args.is_coalesced);
}

at::Tensor coalesce_sparse(const at::Tensor& self) {
  const int64_t nnz = self._nnz();
  if (nnz < 2) return self.clone()._coalesced_(true);
  const auto [sorted, order] = flat(self).sort(/*stable=*/true, 0, /*descending=*/false);
  const at::Tensor starts = at::ones({nnz}, sorted.options().dtype(at::kBool));
  starts.narrow(0, 1, nnz - 1).copy_(sorted.narrow(0, 1, nnz - 1).ne(sorted.narrow(0, 0, nnz - 1)));
  const at::Tensor first = starts.nonzero().squeeze(1);
  const at::Tensor indices = self._indices().index_select(1, order.index_select(0, first));
  const at::Tensor values = self._values().index_select(0, order);
  if (first.numel() == nnz) return like(self, self.sizes(), indices, values, /*is_coalesced=*/true);
  at::DimVector shape(values.sizes());
  shape[0] = first.numel();
  const at::Tensor sums = at::zeros(shape, values.options());
  add_at(sums, starts.cumsum(0).sub_(1), values);
  return like(self, self.sizes(), indices, sums, /*is_coalesced=*/true);
}

at::Tensor& add_sparse_out(const at::Tensor& self, const at::Tensor& other, const at::Scalar& alpha, at::Tensor& out) {
  if (!self.is_sparse()) return add_to_dense(self, other, alpha, out);
  TORCH_CHECK(other.is_sparse(), "add(sparse, dense) is not supported. Use add(dense, sparse) instead.");
  check_same_sizes(self, other);
  const at::ScalarType common = common_dtype("add", self, other, out);
  if (other._nnz() == 0) return at::copy_sparse_to_sparse_(out, self);
  const at::Tensor values = scaled(other._values(), alpha, common);
  if (self._nnz() == 0) return assign(out, other.sizes(), other._indices().clone(), values, other.is_coalesced());
  TORCH_CHECK(
      at::sparse::is_same_density(self, other),
      "add: expected 'self' and 'other' to have same density, but 'self' has ", self.sparse_dim(),
      " sparse dimensions while 'other' has ", other.sparse_dim(), " sparse dimensions");
  const at::Tensor indices = at::cat({self._indices(), other._indices()}, 1);
  at::Tensor sum =
      like(self, self.sizes(), indices, at::cat({self._values().to(common), values}), /*is_coalesced=*/false);
  // Repeated sums of uncoalesced tensors must not grow without limit.
  if ((self.is_coalesced() && other.is_coalesced()) || sum._nnz() > sum.numel()) sum = native::coalesce_sparse(sum);
  return assign(out, sum.sizes(), sum._indices(), sum._values(), sum.is_coalesced());
}

at::Tensor& mul_sparse_out(const at::Tensor& self, const at::Tensor& other, at::Tensor& out) {
  const bool is_composed = !self.is_sparse() || !other.is_sparse() || self.dim() == 0 || other.dim() == 0;
  if (is_composed) return at::native::mul_out_sparse_cpu(self, other, out);
  TORCH_CHECK(
      self.sparse_dim() == other.sparse_dim() &&
          self.sizes().slice(0, self.sparse_dim()).equals(other.sizes().slice(0, other.sparse_dim())),
      "mul: expected 'self' and 'other' to have same sizes when both are sparse, but ", self.sizes(),
      " != ", other.sizes());
  const at::ScalarType common = common_dtype("mul", self, other, out);
  const at::DimVector sizes = at::infer_size_dimvector(self.sizes(), other.sizes());
  const at::Tensor a = self.coalesce(), b = other.coalesce();
  if (a._nnz() == 0 || b._nnz() == 0) {
    at::DimVector shape(at::IntArrayRef(sizes).slice(self.sparse_dim()));
    shape.insert(shape.begin(), 0);
    const at::Tensor values = at::empty(shape, a._values().options().dtype(common));
    return assign(out, sizes, at::empty({self.sparse_dim(), 0}, a._indices().options()), values, true);
  }
  const Matches matches = find(flat(a), flat(b));
  const at::Tensor of_b = matches.found.nonzero().squeeze(1), of_a = matches.position.index_select(0, of_b);
  const at::Tensor values = a._values().index_select(0, of_a).to(common) * b._values().index_select(0, of_b).to(common);
  return assign(out, sizes, b._indices().index_select(1, of_b), values, /*is_coalesced=*/true);
}

at::Tensor sparse_mask(const at::Tensor& self, const at::Tensor& mask) {
  const bool is_composed = !self.is_sparse() || self.is_same(mask) || self._nnz() == 0 || mask._nnz() == 0;
  if (is_composed || !self.sizes().equals(mask.sizes())) return at::native::sparse_mask(self, mask);
  TORCH_CHECK(
      at::sparse::is_same_density(self, mask), "sparse_mask(): the number of sparse dimensions in `self` ",
      "should match that of the `mask`. Got `self.sparse_dim() == ", self.sparse_dim(),
      "` != `mask.sparse_dim() == ", mask.sparse_dim(), "`.");
  const at::Tensor source = self.coalesce();
  const auto [position, found] = find(flat(source), flat(mask));
  const at::Tensor values = masked(source._values().index_select(0, position), found);
  return like(self, mask.sizes(), mask._indices().clone(), values, mask.is_coalesced());
}

at::Tensor& addmm_sparse_out(
    const at::Tensor& self,
    const at::Tensor& mat1,
    const at::Tensor& mat2,
    const at::Scalar& beta,
    const at::Scalar& alpha,
    at::Tensor& out) {
  TORCH_CHECK(
      mat1.is_sparse() && !mat2.is_sparse() && !self.is_sparse(),
      "addmm: expected a sparse mat1, a dense mat2 and a dense self, but got layouts ", mat1.layout(), ", ",
      mat2.layout(), " and ", self.layout());
  check_matrices(mat1, mat2);
  return sparse::add_dense_matmul(self, mat1, mat2, beta, alpha, out);
}

at::Tensor& addmm_sparse_(
    at::Tensor& self, const at::Tensor& mat1, const at::Tensor& mat2, const at::Scalar& beta, const at::Scalar& alpha) {
  TORCH_CHECK(
      self.dim() == 2 && self.size(0) == mat1.size(0) && self.size(1) == mat2.size(-1),
      "addmm: Argument #1 (t): Expected size ", mat1.size(0), " x ", mat2.size(-1), ", got ", self.sizes());
  return native::addmm_sparse_out(self, mat1, mat2, beta, alpha, self);
}

// One matmul with a matrix that has the batch's matrices on its diagonal.
at::Tensor& bmm_sparse_out(const at::Tensor& self, const at::Tensor& mat2, at::Tensor& out) {
  TORCH_CHECK(self.is_sparse() && !mat2.is_sparse(), "bmm_sparse: Tensor 'mat2' must be dense");
  TORCH_CHECK(self.dense_dim() == 0, "bmm_sparse: Tensor 'self' must have 0 dense dims, but has ", self.dense_dim());
  TORCH_CHECK(self.sparse_dim() == 3, "bmm_sparse: Tensor 'self' must have 3 sparse dims, but has ", self.sparse_dim());
  TORCH_CHECK(mat2.dim() == 3, "bmm_sparse: Tensor 'mat2' must have 3 dims, but has ", mat2.dim());
  TORCH_CHECK(self.size(0) == mat2.size(0), "bmm_sparse: 'self.size(0)' and 'mat2.size(0)' must match");
  TORCH_CHECK(self.size(2) == mat2.size(1), "bmm_sparse: 'self.size(2)' and 'mat2.size(1)' must match");
  const at::Tensor indices = self._indices(), batch = indices.select(0, 0);
  const sparse::Elements blocks{
      batch * self.size(1) + indices.select(0, 1), batch * self.size(2) + indices.select(0, 2), self._values(),
      self.is_coalesced()};
  const at::Tensor matmul_result =
      sparse::matmul(blocks, self.size(0) * self.size(1), mat2.reshape({-1, mat2.size(2)}));
  out.resize_({self.size(0), self.size(1), mat2.size(2)});
  return out.copy_(matmul_result.view(out.sizes()));
}

at::Tensor sparse_sparse_matmul(const at::Tensor& self, const at::Tensor& other) {
  TORCH_CHECK(
      self.sparse_dim() == 2 && self.dense_dim() == 0 && other.sparse_dim() == 2 && other.dense_dim() == 0,
      "sparse_sparse_matmul: expected two matrices without dense dimensions");
  TORCH_CHECK(
      self.size(1) == other.size(0), "mat1 and mat2 shapes cannot be multiplied (", self.size(0), "x", self.size(1),
      " and ", other.size(0), "x", other.size(1), ")");
  TORCH_CHECK(
      self.scalar_type() == other.scalar_type(), "mat1 dtype ", self.scalar_type(), " does not match mat2 dtype ",
      other.scalar_type());
  const sparse::Elements matmul_result = sparse::matmul(sparse::elements(self), sparse::elements(other), other.size(0));
  return sparse::coalesced(matmul_result, {self.size(0), other.size(1)});
}

at::Tensor index_select_sparse(const at::Tensor& self, int64_t dim, const at::Tensor& index) {
  TORCH_CHECK_INDEX(self.dim() > 0, "index_select() cannot be applied to a 0-dim tensor.");
  TORCH_CHECK_INDEX(
      index.dim() == 1 && index.scalar_type() == at::kLong && index.layout() == at::kStrided,
      "index_select() argument index must be 1-D strided (non-sparse) long-tensor.");
  dim = at::maybe_wrap_dim(dim, self.dim());
  at::DimVector sizes(self.sizes());
  sizes[dim] = index.numel();
  const int64_t sparse_dim = self.sparse_dim();
  if (dim >= sparse_dim) {
    const at::Tensor values = self._values().index_select(dim - sparse_dim + 1, index);
    return like(self, sizes, self._indices().clone(), values, self.is_coalesced());
  }
  // The matmul of a selection matrix, with a row for each index, and one that has a column for each element.
  const at::Tensor indices = self._indices();
  const auto longs = indices.options();
  const at::Tensor wrapped = at::where(index < 0, index + self.size(dim), index);
  if (index.numel() > 0) {
    const auto [least, greatest] = wrapped.aminmax();
    TORCH_CHECK_INDEX(
        least.item<int64_t>() >= 0 && greatest.item<int64_t>() < self.size(dim),
        "index_select(): index contains indices that are out of range for tensor of size ", self.sizes(),
        " at dimension ", dim);
  }
  const at::Tensor row = at::arange(index.numel(), longs), element = at::arange(self._nnz(), longs);
  const sparse::Elements selected = sparse::matmul(
      {row, wrapped, at::ones_like(row)}, {indices.select(0, dim), element, at::ones_like(element)}, self.size(dim));
  const at::Tensor new_indices = indices.index_select(1, selected.columns);
  new_indices.select(0, dim).copy_(selected.rows);
  return like(self, sizes, new_indices, self._values().index_select(0, selected.columns), /*is_coalesced=*/false);
}

// Each element of `self` has the gradient of the sum that it went into.
at::Tensor sparse_sum_backward(const at::Tensor& grad, const at::Tensor& self, at::IntArrayRef dims) {
  const int64_t sparse_dim = self.sparse_dim();
  const auto summed = at::dim_list_to_bitset(dims, self.dim());
  at::DimVector kept_sizes;
  std::vector<at::Tensor> kept;
  const at::Tensor input = self.coalesce(), indices = input._indices();
  for (int64_t dim = 0; dim < sparse_dim; dim++) {
    if (summed[dim]) continue;
    kept.push_back(indices.select(0, dim));
    kept_sizes.push_back(self.size(dim));
  }
  if (kept.empty()) return at::native::_sparse_sum_backward_cpu(grad, self, dims);
  TORCH_CHECK(grad.is_sparse(), "_sparse_sum_backward: expected grad to be sparse, but got a dense tensor");
  const at::Tensor source = grad.coalesce();
  if (source._nnz() == 0) return like(self, self.sizes(), indices.clone(), at::zeros_like(input._values()), true);
  at::Tensor values = source._values();
  for (int64_t dim = sparse_dim; dim < self.dim(); dim++) {
    if (summed[dim]) values = values.unsqueeze(dim - sparse_dim + 1);
  }
  const auto [position, found] = find(flat(source), sparse::flatten_indices(at::stack(kept), kept_sizes));
  values = masked(values.index_select(0, position), found).expand(input._values().sizes());
  return like(self, self.sizes(), indices.clone(), values.contiguous(), input.is_coalesced());
}

} // namespace torch_opencl::native
