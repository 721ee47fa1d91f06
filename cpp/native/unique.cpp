#include "entries/sort.h"

#include <ATen/TensorOperators.h>
#include <ATen/WrapDimUtils.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>

namespace torch_opencl::native {
namespace {

// Values, inverse and counts.
using Unique = std::tuple<at::Tensor, at::Tensor, at::Tensor>;

// The runs that begin where `starts` is true along dimension 0 of `self`: their first elements; the index of the run of
// each element, in the order that `indices` gives (or that they are in); their lengths.
Unique runs(
    const at::Tensor& self,
    const at::Tensor& starts,
    const at::Tensor& indices,
    bool return_inverse,
    bool return_counts) {
  const auto longs = self.options().dtype(at::kLong);
  const int64_t count = self.size(0);
  const at::Tensor first = starts.nonzero().squeeze(1);
  at::Tensor inverse = at::empty({0}, longs), counts = at::empty({0}, longs);
  if (return_inverse) {
    const at::Tensor run_indices = starts.cumsum(0).sub_(1);
    inverse = indices.defined() ? at::empty({count}, longs).scatter_(0, indices, run_indices) : run_indices;
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

Unique nothing(const at::Tensor& self, bool return_inverse) {
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

Unique unique_rows(const at::Tensor& self, int64_t dim, bool sort, bool return_inverse, bool return_counts) {
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

Unique unique(const at::Tensor& self, bool /*sorted: it always is*/, bool return_inverse, bool return_counts) {
  if (self.numel() == 0) return nothing(self, return_inverse);
  const auto [sorted, sorted_indices] = self.reshape(-1).sort(/*stable=*/true, 0, /*descending=*/false);
  auto [found, inverse, counts] = runs(sorted, changes(sorted), sorted_indices, return_inverse, return_counts);
  if (return_inverse) inverse = inverse.view(self.sizes());
  return {std::move(found), std::move(inverse), std::move(counts)};
}

std::tuple<at::Tensor, at::Tensor> unique_inverse(const at::Tensor& self, bool sorted, bool return_inverse) {
  auto [found, inverse, counts] = native::unique(self, sorted, return_inverse, /*return_counts=*/false);
  return {std::move(found), std::move(inverse)};
}

Unique unique_dim(
    const at::Tensor& self, int64_t dim, bool /*sorted: it always is*/, bool return_inverse, bool return_counts) {
  return unique_rows(self, at::maybe_wrap_dim(dim, self.dim()), /*sort=*/true, return_inverse, return_counts);
}

Unique unique_consecutive(const at::Tensor& self, bool return_inverse, bool return_counts, std::optional<int64_t> dim) {
  if (dim.has_value() && !(*dim == 0 && self.dim() == 1)) {
    return native::unique_dim_consecutive(self, *dim, return_inverse, return_counts);
  }
  if (self.numel() == 0) return nothing(self, return_inverse);
  const at::Tensor flat = self.reshape(-1);
  auto [found, inverse, counts] = runs(flat, changes(flat), {}, return_inverse, return_counts);
  if (return_inverse) inverse = inverse.view(self.sizes());
  return {std::move(found), std::move(inverse), std::move(counts)};
}

Unique unique_dim_consecutive(const at::Tensor& self, int64_t dim, bool return_inverse, bool return_counts) {
  return unique_rows(self, at::maybe_wrap_dim(dim, self.dim()), /*sort=*/false, return_inverse, return_counts);
}

} // namespace torch_opencl::native
