// Index ops that are composed of others: masks, coordinates, windows, reversals, frequencies.
#include <ATen/ExpandUtils.h>
#include <ATen/MemoryOverlap.h>
#include <ATen/TensorOperators.h>
#include <ATen/native/Resize.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/scalar_tensor.h>
#include <ATen/ops/searchsorted.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros.h>

#include "../error.h"
#include "../operand.h"
#include "../pointwise.h"
#include "index.h"
#include "torch_opencl/rust/ops/index/search.rs.h"
#include "torch_opencl/rust/ops/pointwise/mod.rs.h"

namespace torch_opencl::native {
namespace {

// Elements that one work-item looks through for non-zeros.
constexpr int64_t kNonzeroBlock = 1024;

// The mask as a list of index tensors, one a dimension, and how many elements it selects.
std::pair<c10::List<std::optional<at::Tensor>>, int64_t> places(const at::Tensor& mask) {
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
  // ATen warns of expanded tensors but fills them: an element wherever the mask says so at any of its positions.
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
  const auto [list, count] = places(*at::expand_inplace(self, mask, "masked_scatter_"));
  TORCH_CHECK(
      count <= source.numel(), "Number of elements of source < number of ones in mask: ", source.numel(), " < ", count);
  const at::Tensor values = source.is_alias_of(self) ? source.clone() : source;
  at_least_1d(self).index_put_(list, values.reshape(-1).narrow(0, 0, count));
  return self;
}

at::Tensor& nonzero_out(const at::Tensor& self, at::Tensor& out) {
  TORCH_CHECK(
      out.scalar_type() == at::kLong, "nonzero: Expected out tensor to have scalar type Long but got scalar type ",
      out.scalar_type());
  at::assert_no_internal_overlap(out);
  at::assert_no_overlap(out, self);
  const at::Tensor input = self.contiguous();
  const auto longs = out.options();
  const at::Tensor counts = at::empty({(input.numel() + kNonzeroBlock - 1) / kNonzeroBlock}, longs);
  checked([&] { bridge::nonzero_count(arg(input), arg(counts)); });
  const at::Tensor ends = counts.cumsum(0);
  const int64_t total = ends.numel() == 0 ? 0 : ends[-1].item<int64_t>();
  at::native::resize_output(out, {total, self.dim()});
  checked([&] { bridge::nonzero_write(arg(input), arg(ends), arg(out)); });
  return out;
}

at::Tensor nonzero(const at::Tensor& self) {
  at::Tensor out = at::empty({0}, self.options().dtype(at::kLong));
  return nonzero_out(self, out);
}

at::Tensor embedding_dense_backward(
    const at::Tensor& grad_output,
    const at::Tensor& indices,
    int64_t num_weights,
    int64_t padding_idx,
    bool scale_grad_by_freq) {
  const at::Tensor index = indices.reshape(-1);
  at::Tensor rows = grad_output.reshape({index.numel(), grad_output.size(-1)});
  if (scale_grad_by_freq) {
    const at::Tensor counts =
        at::zeros({num_weights}, rows.options()).index_add_(0, index, at::ones({index.numel()}, rows.options()));
    rows = rows / counts.index_select(0, index).unsqueeze(1);
  }
  const at::Tensor grad = at::zeros({num_weights, rows.size(1)}, rows.options());
  grad.index_add_(0, index, rows);
  if (padding_idx >= 0) grad.select(0, padding_idx).zero_();
  return grad;
}

at::Tensor repeat_interleave(const at::Tensor& repeats, std::optional<int64_t> output_size) {
  TORCH_CHECK(repeats.dim() == 1, "repeat_interleave only accepts 1D vector as repeat");
  TORCH_CHECK(
      repeats.scalar_type() == at::kLong || repeats.scalar_type() == at::kInt, "repeats has to be Long or Int tensor");
  if (repeats.numel() == 0) return at::empty_like(repeats);
  TORCH_CHECK((repeats >= 0).all().item<bool>(), "repeats can not be negative");
  const at::Tensor ends = repeats.cumsum(0);
  const int64_t total = ends[-1].item<int64_t>();
  TORCH_CHECK(
      !output_size.has_value() || *output_size == total,
      "allocated size does not match required size: ", output_size.value_or(0), " and ", total);
  // Position i repeats the first element whose run ends after it.
  const at::Tensor positions = at::arange(total, ends.options());
  return at::searchsorted(ends, positions, /*out_int32=*/repeats.scalar_type() == at::kInt, /*right=*/true);
}

void flip(at::TensorIterator& iter, bool /*quantized*/) {
  // ATen walks the output backwards along flipped dimensions; its third operand only keeps those from being joined.
  const auto operand = [&](int index) -> bridge::Operand {
    return {
        reinterpret_cast<size_t>(iter.data_ptr(index)),
        arg(iter.dtype(index)),
        arg(iter.strides(index)),
        {0.0, 0.0, 0}};
  };
  const std::array<bridge::Operand, 2> operands{operand(0), operand(1)};
  checked([&] {
    bridge::pointwise(
        static_cast<uint32_t>(PointwiseOp::_copy_from), arg(iter.dtype(1)), arg(iter.shape()), 1,
        rust::Slice<const bridge::Operand>(operands.data(), operands.size()), {}, 0);
  });
}

void unfold_backward(at::Tensor& grad_in, const at::Tensor& grad, int64_t dim, int64_t size, int64_t step) {
  // Windows overlap, but the k-th elements of all windows do not.
  const int64_t last = (grad.size(dim) - 1) * step;
  for (int64_t k = 0; k < size; k++) grad_in.slice(dim, k, k + last + 1, step).add_(grad.select(-1, k));
}

} // namespace torch_opencl::native
