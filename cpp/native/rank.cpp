#include "native_entries.h"

#include <ATen/TensorOperators.h>
#include <ATen/WrapDimUtils.h>
#include <ATen/native/ReduceOpsUtils.h>
#include <ATen/native/Resize.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros_like.h>

#include "../error.h"
#include "../tensor_arg.h"
#include "index.h"
#include "torch_opencl/rust/ops/sort/select.rs.h"

namespace torch_opencl::native {
namespace {

using Found = std::tuple<at::Tensor, at::Tensor, at::Tensor>;

// The element that a stable ascending sort would put at `ranks` in each row along the last dimension, and its index.
std::pair<at::Tensor, at::Tensor> select_rank(const at::Tensor& rows, const at::Tensor& ranks) {
  const at::Tensor input = rows.contiguous(), wanted = ranks.contiguous();
  at::Tensor values = at::empty(ranks.sizes(), rows.options()), indices = at::empty(ranks.sizes(), ranks.options());
  checked([&] { bridge::select(arg(values), arg(indices), arg(input), arg(wanted)); });
  return {std::move(values), std::move(indices)};
}

// Whole rows along the last dimension, and the same rank in each.
at::Tensor one_rank(const at::Tensor& rows, int64_t rank) {
  return at::full(rows.sizes().slice(0, rows.dim() - 1), rank, rows.options().dtype(at::kLong));
}

// The rank of the median among rows along the last dimension, NaN last. Without `skip_nan` a row with NaN gives its
// first one.
at::Tensor median_rank(const at::Tensor& rows, bool skip_nan) {
  const int64_t length = rows.size(-1);
  if (!rows.is_floating_point()) return one_rank(rows, (length - 1) / 2);
  const at::Tensor nans = rows.ne(rows).sum(-1);
  const at::Tensor numbers = length - nans;
  if (skip_nan) return numbers.sub_(1).clamp_min_(0).div_(2, "floor");
  return at::where(nans.eq(0), (length - 1) / 2, numbers);
}

at::Tensor median_of_all(const at::Tensor& self, bool skip_nan) {
  // NaN, or the CPU's conversion of it to an integer.
  if (self.numel() == 0) return at::empty({0}, self.options().device(at::kCPU)).median().to(self.device());
  const at::Tensor row = self.reshape(-1);
  return select_rank(row, median_rank(row, skip_nan)).first;
}

// Writes the element found in each row along `dim`.
void give(const at::Tensor& found, int64_t dim, bool keeps, at::Tensor& out) {
  const at::Tensor result = keeps ? found.unsqueeze(dim) : found;
  at::native::resize_output(out, result.sizes());
  out.copy_(result);
}

// Writes the elements of one rank in each row along `dim`; `rank_of` returns the rank for rows along the last
// dimension.
template <class RankOf>
void select_along(
    const at::Tensor& self, int64_t dim, bool keepdim, RankOf&& rank_of, at::Tensor& values, at::Tensor& indices) {
  const at::Tensor rows = at_least_1d(self).movedim(dim, -1);
  const auto [found, places] = select_rank(rows, rank_of(rows));
  const bool keeps = keepdim && self.dim() > 0;
  give(found, dim, keeps, values);
  give(places, dim, keeps, indices);
}

std::tuple<at::Tensor&, at::Tensor&> median_along(
    const at::Tensor& self, int64_t dim, bool keepdim, bool skip_nan, at::Tensor& values, at::Tensor& indices) {
  dim = at::maybe_wrap_dim(dim, self.dim());
  at::native::zero_numel_check_dims(self, dim, "median()");
  select_along(
      self, dim, keepdim, [&](const at::Tensor& rows) { return median_rank(rows, skip_nan); }, values, indices);
  return {values, indices};
}

// The runs that begin where `starts` is true along dimension 0 of `self`: their first elements; the index of the run of
// each element, in the order that `places` gives (or that they are in); their lengths.
Found runs(
    const at::Tensor& self,
    const at::Tensor& starts,
    const at::Tensor& places,
    bool return_inverse,
    bool return_counts) {
  const auto longs = self.options().dtype(at::kLong);
  const int64_t count = self.size(0);
  const at::Tensor first = starts.nonzero().squeeze(1);
  at::Tensor inverse = at::empty({0}, longs), counts = at::empty({0}, longs);
  if (return_inverse) {
    const at::Tensor numbers = starts.cumsum(0).sub_(1);
    inverse = places.defined() ? at::empty({count}, longs).scatter_(0, places, numbers) : numbers;
  }
  if (return_counts) {
    const at::Tensor ends = at::cat({first.narrow(0, 1, first.numel() - 1), at::full({1}, count, longs)});
    counts = ends - first;
  }
  return {self.index_select(0, first), std::move(inverse), std::move(counts)};
}

// True for each row (each element of a vector) that differs from the one before it.
at::Tensor changes(const at::Tensor& self) {
  const int64_t count = self.size(0);
  at::Tensor differs = self.narrow(0, 1, count - 1).ne(self.narrow(0, 0, count - 1));
  if (self.dim() > 1) differs = differs.flatten(1).any(1);
  return at::cat({at::ones({1}, differs.options()), differs});
}

Found nothing(const at::Tensor& self, bool return_inverse) {
  const auto longs = self.options().dtype(at::kLong);
  return {
      at::empty({0}, self.options()), return_inverse ? at::empty(self.sizes(), longs) : at::empty({0}, longs),
      at::empty({0}, longs)};
}

// The order of the rows of a matrix, lexicographically: by the last column first, each sort stable.
at::Tensor row_order(const at::Tensor& rows) {
  at::Tensor order = at::arange(rows.size(0), rows.options().dtype(at::kLong));
  for (int64_t column = rows.size(1) - 1; column >= 0; column--) {
    const at::Tensor keys = rows.select(1, column).index_select(0, order);
    order = order.index_select(0, keys.argsort(/*stable=*/true, 0, /*descending=*/false));
  }
  return order;
}

Found unique_rows(const at::Tensor& self, int64_t dim, bool sort, bool return_inverse, bool return_counts) {
  const at::Tensor rows = self.movedim(dim, 0);
  const int64_t count = rows.size(0);
  if (self.numel() == 0) {
    TORCH_CHECK(count == 0, "There are 0 sized dimensions, and they aren't selected, so unique cannot be applied");
    const auto longs = self.options().dtype(at::kLong);
    return {at::empty(self.sizes(), self.options()), at::empty({0}, longs), at::empty({0}, longs)};
  }
  const at::Tensor order = sort ? row_order(rows.reshape({count, -1})) : at::Tensor();
  const at::Tensor sorted = sort ? rows.index_select(0, order) : rows;
  auto [found, inverse, counts] = runs(sorted, changes(sorted), order, return_inverse, return_counts);
  return {found.movedim(0, dim).contiguous(), std::move(inverse), std::move(counts)};
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
  select_along(self, dim, keepdim, [&](const at::Tensor& rows) { return one_rank(rows, k - 1); }, values, indices);
  return {values, indices};
}

std::tuple<at::Tensor, at::Tensor> mode(const at::Tensor& self, int64_t dim, bool keepdim) {
  dim = at::maybe_wrap_dim(dim, self.dim());
  at::native::zero_numel_check_dims(self, dim, "mode()");
  const at::Tensor input = self.dim() == 0 ? self.unsqueeze(0) : self;
  const auto [sorted, places] = input.sort(/*stable=*/true, dim, /*descending=*/false);
  const int64_t length = input.size(dim);
  // Position of each element in its run: the longest run ends where this is greatest, the first such where it is
  // smallest.
  const at::Tensor rows = sorted.movedim(dim, -1);
  const at::Tensor order = at::arange(length, places.options());
  const at::Tensor starts = at::zeros_like(rows, places.options(), at::MemoryFormat::Contiguous);
  if (length > 1) {
    const at::Tensor differs = rows.narrow(-1, 1, length - 1).ne(rows.narrow(-1, 0, length - 1));
    starts.narrow(-1, 1, length - 1).copy_(order.narrow(0, 1, length - 1) * differs);
  }
  const at::Tensor depth = order - std::get<0>(starts.cummax(-1));
  const at::Tensor where = depth.argmax(-1, /*keepdim=*/true).movedim(-1, dim);
  const bool keeps = keepdim && self.dim() > 0;
  const auto taken = [&](const at::Tensor& tensor) {
    const at::Tensor found = tensor.gather(dim, where);
    return keeps ? found : found.squeeze(dim);
  };
  return {taken(sorted), taken(places)};
}

Found unique(const at::Tensor& self, bool /*sorted: it always is*/, bool return_inverse, bool return_counts) {
  if (self.numel() == 0) return nothing(self, return_inverse);
  const auto [sorted, places] = self.reshape(-1).sort(/*stable=*/true, 0, /*descending=*/false);
  auto [found, inverse, counts] = runs(sorted, changes(sorted), places, return_inverse, return_counts);
  if (return_inverse) inverse = inverse.view(self.sizes());
  return {std::move(found), std::move(inverse), std::move(counts)};
}

Found unique_dim(
    const at::Tensor& self, int64_t dim, bool /*sorted: it always is*/, bool return_inverse, bool return_counts) {
  return unique_rows(self, at::maybe_wrap_dim(dim, self.dim()), /*sort=*/true, return_inverse, return_counts);
}

Found unique_consecutive(const at::Tensor& self, bool return_inverse, bool return_counts, std::optional<int64_t> dim) {
  if (dim.has_value() && !(*dim == 0 && self.dim() == 1)) {
    return native::unique_dim_consecutive(self, *dim, return_inverse, return_counts);
  }
  if (self.numel() == 0) return nothing(self, return_inverse);
  const at::Tensor flat = self.reshape(-1);
  auto [found, inverse, counts] = runs(flat, changes(flat), {}, return_inverse, return_counts);
  if (return_inverse) inverse = inverse.view(self.sizes());
  return {std::move(found), std::move(inverse), std::move(counts)};
}

Found unique_dim_consecutive(const at::Tensor& self, int64_t dim, bool return_inverse, bool return_counts) {
  return unique_rows(self, at::maybe_wrap_dim(dim, self.dim()), /*sort=*/false, return_inverse, return_counts);
}

} // namespace torch_opencl::native
