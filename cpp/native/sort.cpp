#include "sort.h"

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

namespace torch_opencl::native {
namespace {

// Sorted values and their places along the last dimension, of `self` with `dim` moved there.
std::pair<at::Tensor, at::Tensor> sorted_rows(const at::Tensor& self, int64_t dim, bool descending) {
  const at::Tensor rows = self.transpose(dim, -1).contiguous();
  at::Tensor values = at::empty_like(rows), indices = at::empty_like(rows, rows.options().dtype(at::kLong));
  checked([&] { bridge::sort(arg(values), arg(indices), arg(rows), descending); });
  return {std::move(values), std::move(indices)};
}

} // namespace

void sort(
    const at::TensorBase& self,
    const at::TensorBase& values,
    const at::TensorBase& indices,
    int64_t dim,
    bool descending,
    bool /*stable: it always is*/) {
  const auto [sorted, places] = sorted_rows(at::Tensor(self), dim, descending);
  at::Tensor(values).copy_(sorted.transpose(dim, -1));
  at::Tensor(indices).copy_(places.transpose(dim, -1));
}

void topk_out::impl(
    const at::Tensor& self,
    int64_t k,
    int64_t dim,
    bool largest,
    bool /*sorted: it always is*/,
    const at::Tensor& values,
    const at::Tensor& indices) {
  const at::Tensor input = at_least_1d(self);
  dim = at::maybe_wrap_dim(dim, input.dim());
  const auto [sorted, places] = sorted_rows(input, dim, /*descending=*/largest);
  const auto keep = [&](const at::Tensor& rows, const at::Tensor& out) {
    out.copy_(rows.narrow(-1, 0, k).transpose(dim, -1).view_as(out));
  };
  keep(sorted, values);
  keep(places, indices);
}

std::tuple<at::Tensor&, at::Tensor&> kthvalue_out(
    const at::Tensor& self, int64_t k, int64_t dim, bool keepdim, at::Tensor& values, at::Tensor& indices) {
  dim = at::maybe_wrap_dim(dim, self.dim());
  const int64_t length = self.dim() == 0 ? 1 : self.size(dim);
  TORCH_CHECK_INDEX(length > 0, "kthvalue(): Expected reduction dim ", dim, " to have non-zero size.");
  TORCH_CHECK(k >= 1 && k <= length, "kthvalue(): selected number k out of range for dimension ", dim);
  const at::Tensor input = self.dim() == 0 ? self.unsqueeze(0) : self;
  const auto [sorted, places] = sorted_rows(input, dim, /*descending=*/false);
  const bool keeps = keepdim && self.dim() > 0;
  const auto pick = [&](const at::Tensor& rows, at::Tensor& out) {
    const at::Tensor column = rows.transpose(dim, -1).select(dim, k - 1);
    const at::Tensor picked = keeps ? column.unsqueeze(dim) : column;
    at::native::resize_output(out, picked.sizes());
    out.copy_(picked);
  };
  pick(sorted, values);
  pick(places, indices);
  return {values, indices};
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
