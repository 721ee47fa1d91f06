#include "native_entries.h"

#include <ATen/TensorOperators.h>
#include <ATen/WrapDimUtils.h>
#include <ATen/native/BucketizationUtils.h>
#include <ATen/native/Resize.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/result_type.h>

#include "../error.h"
#include "../tensor_arg.h"
#include "index.h"
#include "torch_opencl/rust/ops/index/search.rs.h"
#include "torch_opencl/rust/ops/sort/mod.rs.h"

namespace torch_opencl::native {
namespace {

// The first `kept` values along `dim` in order, and their indices; `dim` comes last.
std::pair<at::Tensor, at::Tensor> first_of_rows(const at::Tensor& self, int64_t dim, int64_t kept, bool descending) {
  const at::Tensor rows = self.transpose(dim, -1).contiguous();
  at::DimVector sizes(rows.sizes());
  sizes.back() = kept;
  at::Tensor values = at::empty(sizes, rows.options()), indices = at::empty(sizes, rows.options().dtype(at::kLong));
  checked([&] { bridge::sort(arg(values), arg(indices), arg(rows), descending); });
  return {std::move(values), std::move(indices)};
}

// `tensor` where its elements lie densely in order, else new memory for them.
at::Tensor dense_place(const at::Tensor& tensor) {
  return tensor.is_contiguous() ? tensor : at::empty(tensor.sizes(), tensor.options());
}

} // namespace

void sort(
    const at::TensorBase& self,
    const at::TensorBase& values,
    const at::TensorBase& indices,
    int64_t dim,
    bool descending,
    bool /*stable: it always is*/) {
  // Kernels read the input after they have begun to write.
  const bool overlaps = self.is_alias_of(values) || self.is_alias_of(indices);
  const at::Tensor source = overlaps ? at::Tensor(self).clone() : at::Tensor(self);
  const at::Tensor rows = source.transpose(dim, -1).contiguous();
  const at::Tensor value_rows = at::Tensor(values).transpose(dim, -1),
                   place_rows = at::Tensor(indices).transpose(dim, -1);
  const at::Tensor sorted = dense_place(value_rows), places = dense_place(place_rows);
  checked([&] { bridge::sort(arg(sorted), arg(places), arg(rows), descending); });
  if (!sorted.is_same(value_rows)) value_rows.copy_(sorted);
  if (!places.is_same(place_rows)) place_rows.copy_(places);
}

void topk_out::impl(
    const at::Tensor& self,
    int64_t k,
    int64_t dim,
    bool largest,
    bool /*sorted: it always is*/,
    const at::Tensor& values,
    const at::Tensor& indices) {
  if (self.dim() == 0) {
    values.copy_(self);
    indices.zero_();
    return;
  }
  const at::Tensor& input = self;
  dim = at::maybe_wrap_dim(dim, input.dim());
  const auto [sorted, places] = first_of_rows(input, dim, k, /*descending=*/largest);
  const auto keep = [&](const at::Tensor& rows, const at::Tensor& out) { out.copy_(rows.transpose(dim, -1)); };
  keep(sorted, values);
  keep(places, indices);
}

at::Tensor& searchsorted_out(
    const at::Tensor& boundaries,
    const at::Tensor& self,
    bool out_int32,
    bool right,
    std::optional<c10::string_view> side,
    const std::optional<at::Tensor>& sorter,
    at::Tensor& out) {
  const at::Tensor order = sorter.value_or(at::Tensor());
  at::native::searchsorted_pre_check(boundaries, self, out, out_int32, right, side, order);
  at::native::resize_output(out, self.sizes());
  if (self.numel() == 0) return out;
  // With an empty row of boundaries every value belongs at 0.
  if (boundaries.numel() == 0) return out.zero_();
  const auto dtype = at::result_type(boundaries, self);
  const at::Tensor target = out.contiguous(), values = self.to(dtype).contiguous();
  const at::Tensor row = boundaries.to(dtype).contiguous();
  const at::Tensor through = order.defined() ? order.contiguous() : order;
  const bool after = side.has_value() ? *side == "right" : right;
  checked([&] { bridge::searchsorted(arg(target), arg(values), arg(row), arg(through), after); });
  if (!target.is_same(out)) out.copy_(target);
  return out;
}

at::Tensor searchsorted(
    const at::Tensor& boundaries,
    const at::Tensor& self,
    bool out_int32,
    bool right,
    std::optional<c10::string_view> side,
    const std::optional<at::Tensor>& sorter) {
  at::Tensor out = at::empty({0}, boundaries.options().dtype(out_int32 ? at::kInt : at::kLong));
  return native::searchsorted_out(boundaries, self, out_int32, right, side, sorter, out);
}

at::Tensor searchsorted_scalar(
    const at::Tensor& boundaries,
    const at::Scalar& self,
    bool out_int32,
    bool right,
    std::optional<c10::string_view> side,
    const std::optional<at::Tensor>& sorter) {
  const at::Tensor value = at::native::searchsorted_scalar_tensor(self, boundaries.device());
  return native::searchsorted(boundaries, value, out_int32, right, side, sorter);
}

at::Tensor& bucketize_out(
    const at::Tensor& self, const at::Tensor& boundaries, bool out_int32, bool right, at::Tensor& out) {
  TORCH_CHECK(boundaries.dim() == 1, "boundaries tensor must be 1 dimension, but got dim(", boundaries.dim(), ")");
  return native::searchsorted_out(boundaries, self, out_int32, right, std::nullopt, std::nullopt, out);
}

at::Tensor bucketize(const at::Tensor& self, const at::Tensor& boundaries, bool out_int32, bool right) {
  at::Tensor out = at::empty({0}, boundaries.options().dtype(out_int32 ? at::kInt : at::kLong));
  return native::bucketize_out(self, boundaries, out_int32, right, out);
}

at::Tensor bucketize_scalar(const at::Scalar& self, const at::Tensor& boundaries, bool out_int32, bool right) {
  return native::bucketize(
      at::native::searchsorted_scalar_tensor(self, boundaries.device()), boundaries, out_int32, right);
}

} // namespace torch_opencl::native
