#include "entries/sort.h"

#include <ATen/TensorOperators.h>
#include <ATen/WrapDimUtils.h>
#include <ATen/ops/empty.h>

#include "runtime/error.h"
#include "runtime/tensor_arg.h"
#include "torch_opencl/rust/ops/sort/mod.rs.h"

namespace torch_opencl::native {
namespace {

// The first `k` values along `dim` in order, and their indices; `dim` comes last.
std::pair<at::Tensor, at::Tensor> first_of_rows(const at::Tensor& self, int64_t dim, int64_t k, bool descending) {
  const at::Tensor rows = self.transpose(dim, -1).contiguous();
  at::DimVector sizes(rows.sizes());
  sizes.back() = k;
  at::Tensor values = at::empty(sizes, rows.options()), indices = at::empty(sizes, rows.options().dtype(at::kLong));
  checked([&] { bridge::sort(arg(values), arg(indices), arg(rows), descending); });
  return {std::move(values), std::move(indices)};
}

// `tensor` where its elements lie densely in order, else new memory for them.
at::Tensor dense_or_new(const at::Tensor& tensor) {
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
  const at::Tensor input = overlaps ? at::Tensor(self).clone() : at::Tensor(self);
  const at::Tensor rows = input.transpose(dim, -1).contiguous();
  const at::Tensor value_rows = at::Tensor(values).transpose(dim, -1),
                   index_rows = at::Tensor(indices).transpose(dim, -1);
  const at::Tensor sorted = dense_or_new(value_rows), sorted_indices = dense_or_new(index_rows);
  checked([&] { bridge::sort(arg(sorted), arg(sorted_indices), arg(rows), descending); });
  if (!sorted.is_same(value_rows)) value_rows.copy_(sorted);
  if (!sorted_indices.is_same(index_rows)) index_rows.copy_(sorted_indices);
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
  const auto [sorted, sorted_indices] = first_of_rows(input, dim, k, /*descending=*/largest);
  const auto write = [&](const at::Tensor& rows, const at::Tensor& out) { out.copy_(rows.transpose(dim, -1)); };
  write(sorted, values);
  write(sorted_indices, indices);
}

} // namespace torch_opencl::native
