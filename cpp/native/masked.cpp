// Reading and writing the elements that a mask selects.
#include <ATen/ExpandUtils.h>
#include <ATen/MemoryOverlap.h>
#include <ATen/TensorOperators.h>
#include <ATen/native/Resize.h>
#include <ATen/ops/_index_put_impl.h>
#include <ATen/ops/scalar_tensor.h>
#include <ATen/ops/where.h>
#include <algorithm>

#include "dispatch/operand.h"
#include "entries/index.h"
#include "native/index.h"
#include "native/index_moves.h"

namespace torch_opencl::native {
namespace {

// The mask as a list of index tensors, one per dimension, and how many elements it selects.
std::pair<c10::List<std::optional<at::Tensor>>, int64_t> indices_of(const at::Tensor& mask) {
  const at::Tensor coordinates = at_least_1d(mask).nonzero();
  c10::List<std::optional<at::Tensor>> list;
  for (const at::Tensor& column : coordinates.unbind(1)) list.push_back(column);
  return {std::move(list), coordinates.size(0)};
}

} // namespace

void masked_fill(at::TensorIterator& iter, const at::Scalar& value) {
  at::Tensor self = iter.tensor(0), mask = iter.tensor(1);
  TORCH_CHECK(
      mask.scalar_type() == at::kBool, "masked_fill_ only supports boolean masks, but got mask with dtype ",
      mask.dtype());
  // ATen warns about expanded tensors, but fills them: an element is set if the mask is true at any of its positions.
  if (at::has_internal_overlap(self) == at::MemOverlap::Yes) {
    mask = mask.expand(self.sizes());
    for (int64_t dim = 0; dim < self.dim(); dim++) {
      if (self.stride(dim) != 0 || self.size(dim) <= 1) continue;
      self = self.narrow(dim, 0, 1);
      mask = mask.any(dim, /*keepdim=*/true);
    }
  }
  scalar_as(value, self.scalar_type()); // raises where the dtype cannot hold it
  const at::Tensor fill = at::scalar_tensor(value, self.options().device(at::kCPU));
  at::where_out(self, mask, fill, self);
}

namespace {

// The only index, if it is a mask of the device or of the host, as one on the device that broadcasts to `self`.
std::optional<at::Tensor> only_mask(const at::Tensor& self, const c10::List<std::optional<at::Tensor>>& indices) {
  std::optional<at::Tensor> mask;
  int64_t before = 0;
  for (const std::optional<at::Tensor>& index : indices) {
    const bool is_given = index.has_value() && index->defined();
    if (is_given && (mask.has_value() || index->scalar_type() != at::kBool)) return std::nullopt;
    if (is_given) mask = *index;
    before += mask.has_value() ? 0 : 1;
  }
  if (!mask.has_value() || before + mask->dim() > self.dim()) return std::nullopt;
  if (mask->device() != self.device() && !mask->is_cpu()) return std::nullopt;
  if (mask->sizes() != self.sizes().slice(static_cast<size_t>(before), static_cast<size_t>(mask->dim()))) {
    return std::nullopt;
  }
  at::DimVector sizes(mask->sizes());
  sizes.append(static_cast<size_t>(self.dim() - before - mask->dim()), 1);
  return mask->to(self.device()).reshape(sizes);
}

// True if the operands need no conversion, warning or error of ATen's, and positions may be assigned to in any order.
bool needs_no_conversion(
    const at::Tensor& self,
    const c10::List<std::optional<at::Tensor>>& indices,
    const at::Tensor& values,
    bool accumulate) {
  const auto is_apart = [&](const at::Tensor& tensor) {
    return tensor.device() == self.device() && at::get_overlap_status(self, tensor) == at::MemOverlapStatus::No;
  };
  const auto is_index = [&](const std::optional<at::Tensor>& index) {
    return !index.has_value() || !index->defined() || is_apart(*index);
  };
  return !accumulate && !indices.empty() && static_cast<int64_t>(indices.size()) <= self.dim() &&
      values.scalar_type() == self.scalar_type() && is_apart(values) &&
      at::has_internal_overlap(self) == at::MemOverlap::No && self.numel() > 0 && values.numel() > 0 &&
      std::all_of(indices.begin(), indices.end(), is_index);
}

} // namespace

at::Tensor& index_put_(
    at::Tensor& self, const c10::List<std::optional<at::Tensor>>& indices, const at::Tensor& values, bool accumulate) {
  // If one value is written to all elements of a mask, their positions are not needed, and the host need not wait.
  const bool is_one = values.numel() == 1 && values.scalar_type() == self.scalar_type() && !accumulate &&
      (values.device() == self.device() || values.dim() == 0) && at::has_internal_overlap(self) == at::MemOverlap::No &&
      self.numel() > 0;
  const std::optional<at::Tensor> mask = is_one ? only_mask(self, indices) : std::nullopt;
  if (mask.has_value()) return at::where_out(self, *mask, values.reshape({}), self);
  // ATen converts values, and warns or raises. Other calls avoid it: its iterator holds views of the index tensors,
  // which known_indices.h does not recognise.
  if (!needs_no_conversion(self, indices, values, accumulate)) {
    return at::_index_put_impl_(self, indices, values, accumulate, /*unsafe=*/false);
  }
  index_put_repeated(self, indices, values, accumulate, /*unsafe=*/false);
  return self;
}

at::Tensor masked_select(const at::Tensor& self, const at::Tensor& mask) {
  TORCH_CHECK(mask.scalar_type() == at::kBool, "masked_select: expected BoolTensor for mask");
  const auto [chosen, source] = at::expand_outplace(mask, self);
  // As vectors: one coordinate for each element instead of one for each dimension.
  return source->reshape(-1).index_select(0, chosen->reshape(-1).nonzero().squeeze(1));
}

at::Tensor& masked_select_out(const at::Tensor& self, const at::Tensor& mask, at::Tensor& out) {
  TORCH_CHECK(
      self.scalar_type() == out.scalar_type(), "masked_select(): self and result must have the same scalar type, got ",
      self.scalar_type(), " and ", out.scalar_type());
  at::assert_no_internal_overlap(out);
  at::assert_no_overlap(out, self);
  at::assert_no_overlap(out, mask);
  const at::Tensor selected = native::masked_select(self, mask);
  at::native::resize_output(out, selected.sizes());
  return out.copy_(selected);
}

at::Tensor& masked_scatter_(at::Tensor& self, const at::Tensor& mask, const at::Tensor& source) {
  TORCH_CHECK(
      self.scalar_type() == source.scalar_type(),
      "masked_scatter: expected self and source to have same dtypes but got ", self.scalar_type(), " and ",
      source.scalar_type());
  TORCH_CHECK(
      mask.scalar_type() == at::kBool, "masked_scatter_ only supports boolean masks, but got mask with dtype ",
      mask.scalar_type());
  at::assert_no_internal_overlap(self);
  const auto [list, count] = indices_of(*at::expand_inplace(self, mask, "masked_scatter_"));
  TORCH_CHECK(
      count <= source.numel(), "Number of elements of source < number of ones in mask: ", source.numel(), " < ", count);
  const at::Tensor values = source.is_alias_of(self) ? source.clone() : source;
  at_least_1d(self).index_put_(list, values.reshape(-1).narrow(0, 0, count));
  return self;
}

} // namespace torch_opencl::native
