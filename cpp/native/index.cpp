#include "native/index.h"

#include <ATen/Context.h>
#include <ATen/ExpandUtils.h>
#include <ATen/MemoryOverlap.h>
#include <ATen/WrapDimUtils.h>
#include <ATen/native/CPUFallback.h>
#include <ATen/native/Resize.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/index_add.h>
#include <ATen/ops/mul.h>
#include <c10/util/SmallVector.h>

#include "dispatch/fallback.h"
#include "dispatch/structured.h"
#include "entries/index.h"
#include "native/index_moves.h"
#include "native/known_indices.h"
#include "runtime/bridge.h"
#include "runtime/error.h"
#include "runtime/tensor_arg.h"

namespace torch_opencl::native {
namespace {

using bridge::BadIndex, bridge::SetOp, bridge::ScatterOrder;

using Axes = c10::SmallVector<bridge::IndexAxis, 4>;

rust::Slice<const bridge::IndexAxis> slice(const Axes& axes) {
  return {axes.data(), axes.size()};
}

// Runs an indexing kernel, and waits for its report on bad indices unless `bounds` are known to hold. Without bounds it
// always waits.
template <class Move>
void checked_move(const std::optional<IndexBounds>& bounds, Move&& move) {
  const bool is_known = bounds.has_value() && are_in_range(*bounds);
  const bool has_waited = checked([&] { return move(is_known); });
  if (has_waited && bounds.has_value()) remember_in_range(*bounds);
}

void get(
    const at::Tensor& dst,
    const at::Tensor& src,
    const Axes& axes,
    const std::optional<IndexBounds>& bounds = std::nullopt) {
  checked_move(bounds, [&](bool is_known) { return bridge::index_get(arg(dst), arg(src), slice(axes), is_known); });
}

void set(
    const at::Tensor& dst,
    const at::Tensor& src,
    const Axes& axes,
    SetOp op,
    const std::optional<IndexBounds>& bounds = std::nullopt) {
  const bool in_order = at::globalContext().deterministicAlgorithms();
  const ScatterOrder order = in_order ? ScatterOrder::Sequential : ScatterOrder::Any;
  checked_move(
      bounds, [&](bool is_known) { return bridge::index_set(arg(dst), arg(src), slice(axes), {op, order, is_known}); });
}

// A dimension of `self`, walked by an index of the iteration's shape.
bridge::IndexAxis axis(const at::Tensor& self, int64_t dim, const at::Tensor& index, bool wraps, BadIndex bad) {
  const int64_t stride = self.stride(dim) * static_cast<int64_t>(self.element_size());
  return {arg(index), self.size(dim), stride, dim, wraps, bad};
}

// `tensor` with the iteration's shape, with stride 0 along `dim`. An empty tensor becomes an expanded placeholder:
// every index of it is out of range.
at::Tensor expand_along_dim(const at::Tensor& tensor, int64_t dim, at::IntArrayRef sizes) {
  if (tensor.numel() == 0) return at::empty({}, tensor.options()).expand(sizes);
  at::DimVector strides(tensor.strides());
  strides[dim] = 0;
  return tensor.as_strided(sizes, strides);
}

// A 1-D index along `dim`, expanded to `sizes`.
at::Tensor along(const at::Tensor& index, int64_t dim, at::IntArrayRef sizes) {
  // Not a DimVector: GCC 12 reports its growth as a read of uninitialised memory.
  std::vector<int64_t> shape(sizes.size(), 1);
  shape[dim] = index.numel();
  return index.reshape(shape).expand(sizes);
}

// A 0-dim index or source may come from the host.
at::Tensor on_device_of(const at::Tensor& self, const at::Tensor& index) {
  return index.dim() == 0 ? index.to(self.device()) : index;
}

// The index tensors of an iterator that ATen built for advanced indexing: operands from the third on.
std::vector<at::Tensor> index_operands(const at::TensorIteratorBase& iter, at::IntArrayRef shape) {
  std::vector<at::Tensor> indices;
  for (int i = 2; i < iter.ntensors(); i++) {
    const at::Tensor index = iter.tensor(i).expand(shape);
    // A transposed index is copied, in tiles; kernels would walk along its columns.
    indices.push_back(index.is_non_overlapping_and_dense() ? index.contiguous() : index);
  }
  return indices;
}

// Axes of index tensors of the iteration's shape, with the sizes and byte strides of the dimensions they walk.
Axes indexed_axes(const std::vector<at::Tensor>& indices, at::IntArrayRef sizes, at::IntArrayRef strides) {
  Axes axes;
  for (size_t i = 0; i < indices.size(); i++) {
    axes.push_back({arg(indices[i]), sizes[i], strides[i], static_cast<int64_t>(i), /*wraps=*/true, BadIndex::Plain});
  }
  return axes;
}

// The elements of self that `index` would read, for index_put_ to write. ATen's meta computes the shape.
using IndexedTarget = Structured<IndexTensor<at::meta::structured_index_Tensor>>;

// Writes along `dim` for a 1-D index and a source of the iteration's shape.
void set_slices(
    const at::Tensor& self, int64_t dim, const at::Tensor& index, const at::Tensor& source, SetOp op, BadIndex bad) {
  const GivenIndex given = index;
  const at::Tensor slices = at_least_1d(source);
  dim = at::maybe_wrap_dim(dim, slices.dim());
  scatter_along(self, dim, along(index, dim, slices.sizes()), slices, op, given, bad);
}

// result[..., index, ...] of the shape of `index`, which is `given` or a view of it, along one dimension.
void gather_along(
    const at::Tensor& result,
    const at::Tensor& self,
    int64_t dim,
    const at::Tensor& index,
    const GivenIndex& given,
    BadIndex bad) {
  if (index.numel() == 0) return;
  const at::Tensor target = at_least_1d(result), source = at_least_1d(self),
                   where = at_least_1d(on_device_of(self, index));
  get(target, expand_along_dim(source, dim, where.sizes()), {axis(source, dim, where, /*wraps=*/false, bad)},
      IndexBounds{{given, source.size(dim), /*wraps=*/false}});
}

// The CPU's check in index_select for several dimensions without elements: nothing is read, but indices must be valid.
void check_zero_width_indices(const at::Tensor& self, int64_t dim, const at::Tensor& index) {
  const int64_t size = self.size(dim);
  TORCH_CHECK(size > 0, "index_select(): self indexing axis dim should be positive");
  const auto [least, greatest] = index.aminmax();
  for (const at::Tensor& extreme : {least, greatest}) {
    const auto idx = extreme.item<int64_t>();
    TORCH_CHECK(idx >= 0 && idx < size, "INDICES element is out of DATA bounds, id=", idx, " axis_dim=", size);
  }
}

} // namespace

void scatter_along(
    const at::Tensor& self,
    int64_t dim,
    const at::Tensor& index,
    const at::Tensor& src,
    SetOp op,
    const GivenIndex& given,
    BadIndex bad) {
  if (index.numel() == 0) return;
  const at::Tensor target = at_least_1d(self), where = at_least_1d(on_device_of(self, index)),
                   source = at_least_1d(on_device_of(self, src));
  set(expand_along_dim(target, dim, where.sizes()), source.as_strided(where.sizes(), source.strides()),
      {axis(target, dim, where, /*wraps=*/false, bad)}, op, IndexBounds{{given, target.size(dim), /*wraps=*/false}});
}

template <class Meta>
void IndexTensor<Meta>::meta(const at::Tensor& self, at::IOptTensorListRef indices) {
  bounds = bounds_of(self, indices);
  auto precomputed = Meta::meta(self, indices);
  indexed_sizes = std::move(precomputed.sizes);
  indexed_strides = std::move(precomputed.strides);
}

template <class Meta>
void IndexTensor<Meta>::impl(const at::Tensor& /*self*/, at::IOptTensorListRef /*indices*/, const at::Tensor& result) {
  if (result.numel() == 0) return;
  const auto indices = index_operands(*this, result.sizes());
  get(result, this->tensor(1), indexed_axes(indices, indexed_sizes, indexed_strides), bounds);
}

template struct IndexTensor<at::meta::structured_index_Tensor>;

void index_add_out::impl(
    const at::Tensor& self,
    int64_t dim,
    const at::Tensor& index,
    const at::Tensor& source,
    const at::Scalar& alpha,
    const at::Tensor& result) {
  if (!result.is_same(self)) result.copy_(self);
  // The CPU's function rounds after each addition of 16-bit floats: in bfloat16 a sum of ones stops at 256.
  const bool is_wide = !c10::isReducedFloatingType(self.scalar_type());
  if (self.dim() == 1 && is_wide && scatters_on_host(result, 0, index)) {
    at::Tensor out = result;
    at::native::call_fallback_fn<&host_kernel, at::_ops::index_add_>::call(out, dim, index, source, alpha);
    return;
  }
  set_slices(result, dim, index, alpha.equal(1) ? source : at::mul(source, alpha), SetOp::Add, BadIndex::InSelf);
}

void take_rows(const at::Tensor& result, const at::Tensor& self, const at::Tensor& index) {
  const GivenIndex given = index;
  const at::Tensor flat = on_device_of(self, index).reshape(-1);
  gather_along(result, self, 0, along(flat, 0, result.sizes()), given, BadIndex::InSelf);
}

void add_rows(const at::Tensor& self, const at::Tensor& index, const at::Tensor& rows) {
  const GivenIndex given = index;
  scatter_along(self, 0, along(index.reshape(-1), 0, rows.sizes()), rows, SetOp::Add, given, BadIndex::InSelf);
}

void index_copy_out::impl(
    const at::Tensor& self, int64_t dim, const at::Tensor& index, const at::Tensor& source, const at::Tensor& result) {
  if (!result.is_same(self)) result.copy_(self);
  set_slices(result, dim, index, source, SetOp::Assign, BadIndex::Copy);
}

void index_reduce_out::impl(
    const at::Tensor& self,
    int64_t dim,
    const at::Tensor& index,
    const at::Tensor& source,
    c10::string_view reduce,
    bool include_self,
    const at::Tensor& result) {
  if (!result.is_same(self)) result.copy_(self);
  const at::Tensor slices = at_least_1d(source);
  dim = at::maybe_wrap_dim(dim, slices.dim());
  const at::Tensor where = along(index.to(at::kLong), dim, slices.sizes());
  // Reads one element by every index, only to raise this operator's own error.
  at::empty({}, result.options()).expand({at_least_1d(result).size(dim)}).index_select(0, at_least_1d(index));
  at_least_1d(result).scatter_reduce_(dim, where, slices, reduce, include_self);
}

void index_put(at::TensorIterator& iter, at::IntArrayRef sizes, at::IntArrayRef strides, bool accumulate) {
  if (iter.numel() == 0) return;
  const at::Tensor& self = iter.tensor(0);
  const auto indices = index_operands(iter, self.sizes());
  const Axes axes = indexed_axes(indices, sizes, strides);
  set(self, iter.tensor(1).expand(self.sizes()), axes, accumulate ? SetOp::Add : SetOp::Assign);
}

void index_put_repeated(
    at::Tensor& self,
    const c10::List<std::optional<at::Tensor>>& indices,
    const at::Tensor& value,
    bool accumulate,
    bool /*unsafe*/) {
  if (indices.empty()) {
    TORCH_CHECK(
        at::is_expandable_to(value.sizes(), self.sizes()), "shape mismatch: value tensor of shape ", value.sizes(),
        " cannot be broadcast to indexing result of shape ", self.sizes());
    accumulate ? self.add_(value) : self.copy_(value);
    return;
  }
  IndexedTarget indexed{Outputs(1, Outputs::Source::ShapeOnly)};
  indexed.meta(self, indices);
  const at::IntArrayRef shape = indexed.outputs.get(0).sizes();
  TORCH_CHECK(
      at::is_expandable_to(value.sizes(), shape), "shape mismatch: value tensor of shape ", value.sizes(),
      " cannot be broadcast to indexing result of shape ", shape);
  const auto expanded = index_operands(indexed, shape);
  const Axes axes = indexed_axes(expanded, indexed.indexed_sizes, indexed.indexed_strides);
  set(indexed.tensor(1), value.expand(shape), axes, accumulate ? SetOp::Add : SetOp::Assign, indexed.bounds);
}

void index_fill(at::TensorIterator& iter, int64_t dim, int64_t size, int64_t stride, const at::Scalar& value) {
  if (iter.numel() == 0) return;
  const at::Tensor& self = iter.tensor(0);
  const at::Tensor index = iter.tensor(1).expand(self.sizes());
  const auto step = stride * static_cast<int64_t>(self.element_size());
  set(self, filled(value, self).expand(self.sizes()), {{arg(index), size, step, dim, /*wraps=*/true, BadIndex::Plain}},
      SetOp::Assign);
}

void gather(const at::Tensor& result, const at::Tensor& self, int64_t dim, const at::Tensor& index) {
  gather_along(result, self, dim, index, index, BadIndex::Gather);
}

void take(at::TensorIterator& iter, const at::TensorBase& input) {
  const at::Tensor& out = iter.tensor(0);
  const at::Tensor flat = at::Tensor(input).contiguous().view(-1);
  const at::DimVector still(out.dim(), 0);
  const at::Tensor index = iter.tensor(1).expand(out.sizes());
  get(out, flat.as_strided(out.sizes(), still), {axis(flat, 0, index, /*wraps=*/true, BadIndex::Flat)});
}

void put(at::TensorIterator& iter, const at::TensorBase& self, bool accumulate) {
  const at::Tensor& source = iter.tensor(0);
  const at::Tensor whole(self);
  const at::Tensor dense = whole.contiguous(), flat = dense.view(-1);
  const at::DimVector still(source.dim(), 0);
  set(flat.as_strided(source.sizes(), still), source, {axis(flat, 0, iter.tensor(1), /*wraps=*/true, BadIndex::Flat)},
      accumulate ? SetOp::Add : SetOp::Assign);
  if (!dense.is_same(whole)) whole.copy_(dense);
}

at::Tensor& index_select_out(const at::Tensor& self, int64_t dim, const at::Tensor& index, at::Tensor& out) {
  dim = at::maybe_wrap_dim(dim, self.dim());
  TORCH_CHECK_INDEX(index.dim() <= 1, "index_select(): Index is supposed to be a vector, but got dim: ", index.dim());
  TORCH_CHECK(
      index.scalar_type() == at::kLong || index.scalar_type() == at::kInt,
      "index_select(): Expected dtype int32 or int64 for index, but got: ", index.scalar_type());
  TORCH_CHECK(
      self.scalar_type() == out.scalar_type(), "index_select(): self and result must have the same scalar type, got ",
      self.scalar_type(), " and ", out.scalar_type());
  TORCH_CHECK(
      self.dim() > 0 || index.numel() == 1, "index_select(): Index to scalar can have only 1 value, got ",
      index.numel(), " value(s)");
  at::assert_no_internal_overlap(out);
  at::assert_no_overlap(out, self);
  at::assert_no_overlap(out, index);
  at::DimVector sizes(self.sizes());
  if (!sizes.empty()) sizes[dim] = index.numel();
  at::native::resize_output(out, sizes);
  if (out.numel() == 0) {
    if (self.dim() > 1 && index.numel() > 0) check_zero_width_indices(self, dim, index);
    return out;
  }
  const GivenIndex given = index;
  const at::Tensor target = at_least_1d(out);
  gather_along(target, self, dim, along(on_device_of(self, index), dim, target.sizes()), given, BadIndex::InSelf);
  return out;
}

} // namespace torch_opencl::native
