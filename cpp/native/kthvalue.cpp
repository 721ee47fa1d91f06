// The elements that sorting would put at one position of each row: kthvalue and median.
#include "entries/sort.h"

#include <ATen/TensorOperators.h>
#include <ATen/WrapDimUtils.h>
#include <ATen/native/ReduceOpsUtils.h>
#include <ATen/native/Resize.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/where.h>

#include "native/index.h"
#include "runtime/error.h"
#include "runtime/tensor_arg.h"
#include "torch_opencl/rust/ops/sort/kthvalue.rs.h"

namespace torch_opencl::native {
namespace {

// The element that a stable ascending sort would put at `positions` of each row along the last dimension, and its
// index.
std::pair<at::Tensor, at::Tensor> select_positions(const at::Tensor& rows, const at::Tensor& positions) {
  const at::Tensor input = rows.contiguous(), wanted = positions.contiguous();
  at::Tensor values = at::empty(positions.sizes(), rows.options()),
             indices = at::empty(positions.sizes(), positions.options());
  checked([&] { bridge::kthvalue(arg(values), arg(indices), arg(input), arg(wanted)); });
  return {std::move(values), std::move(indices)};
}

// One position for every row along the last dimension.
at::Tensor one_position(const at::Tensor& rows, int64_t position) {
  return at::full(rows.sizes().slice(0, rows.dim() - 1), position, rows.options().dtype(at::kLong));
}

// The position of the median in each row along the last dimension, sorted with NaN last. Without `skip_nan`, a row with
// NaN gives the position of its first NaN.
at::Tensor median_position(const at::Tensor& rows, bool skip_nan) {
  const int64_t length = rows.size(-1);
  if (!rows.is_floating_point()) return one_position(rows, (length - 1) / 2);
  const at::Tensor nans = rows.ne(rows).sum(-1);
  const at::Tensor counts = length - nans;
  if (skip_nan) return counts.sub_(1).clamp_min_(0).div_(2, "floor");
  return at::where(nans.eq(0), (length - 1) / 2, counts);
}

at::Tensor median_of_all(const at::Tensor& self, bool skip_nan) {
  // NaN, or the CPU's conversion of it to an integer.
  if (self.numel() == 0) return at::empty({0}, self.options().device(at::kCPU)).median().to(self.device());
  const at::Tensor row = self.reshape(-1);
  return select_positions(row, median_position(row, skip_nan)).first;
}

// Writes the element found in each row along `dim`.
void give(const at::Tensor& found, int64_t dim, bool keeps_dim, at::Tensor& out) {
  const at::Tensor result = keeps_dim ? found.unsqueeze(dim) : found;
  at::native::resize_output(out, result.sizes());
  out.copy_(result);
}

// Writes the elements at one position of each sorted row along `dim`; `position_of` returns it for rows along the last
// dimension.
template <class PositionOf>
void select_along(
    const at::Tensor& self,
    int64_t dim,
    bool keepdim,
    PositionOf&& position_of,
    at::Tensor& values,
    at::Tensor& indices) {
  const at::Tensor rows = at_least_1d(self).movedim(dim, -1);
  const auto [found, found_indices] = select_positions(rows, position_of(rows));
  const bool keeps_dim = keepdim && self.dim() > 0;
  give(found, dim, keeps_dim, values);
  give(found_indices, dim, keeps_dim, indices);
}

std::tuple<at::Tensor&, at::Tensor&> median_along(
    const at::Tensor& self, int64_t dim, bool keepdim, bool skip_nan, at::Tensor& values, at::Tensor& indices) {
  dim = at::maybe_wrap_dim(dim, self.dim());
  at::native::zero_numel_check_dims(self, dim, "median()");
  select_along(
      self, dim, keepdim, [&](const at::Tensor& rows) { return median_position(rows, skip_nan); }, values, indices);
  return {values, indices};
}

} // namespace

at::Tensor median(const at::Tensor& self) {
  return median_of_all(self, /*skip_nan=*/false);
}

at::Tensor nanmedian(const at::Tensor& self) {
  return median_of_all(self, /*skip_nan=*/true);
}

std::tuple<at::Tensor&, at::Tensor&> median_out(
    const at::Tensor& self, int64_t dim, bool keepdim, at::Tensor& values, at::Tensor& indices) {
  return median_along(self, dim, keepdim, /*skip_nan=*/false, values, indices);
}

std::tuple<at::Tensor&, at::Tensor&> nanmedian_out(
    const at::Tensor& self, int64_t dim, bool keepdim, at::Tensor& values, at::Tensor& indices) {
  return median_along(self, dim, keepdim, /*skip_nan=*/true, values, indices);
}

std::tuple<at::Tensor&, at::Tensor&> kthvalue_out(
    const at::Tensor& self, int64_t k, int64_t dim, bool keepdim, at::Tensor& values, at::Tensor& indices) {
  dim = at::maybe_wrap_dim(dim, self.dim());
  const int64_t length = self.dim() == 0 ? 1 : self.size(dim);
  TORCH_CHECK_INDEX(length > 0, "kthvalue(): Expected reduction dim ", dim, " to have non-zero size.");
  TORCH_CHECK(k >= 1 && k <= length, "kthvalue(): selected number k out of range for dimension ", dim);
  select_along(self, dim, keepdim, [&](const at::Tensor& rows) { return one_position(rows, k - 1); }, values, indices);
  return {values, indices};
}

} // namespace torch_opencl::native
