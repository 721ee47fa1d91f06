// Conversions between jagged tensors, whose rows are concatenated, and padded ones.
#include "entries/composite.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/diff.h>
#include <ATen/ops/full.h>
#include <ATen/ops/searchsorted.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/where.h>

namespace torch_opencl::native {
namespace {

const at::Tensor& only_offsets(const char* op, at::TensorList offsets) {
  TORCH_CHECK(offsets.size() == 1, op, "(): only a single jagged dim is supported for now");
  TORCH_CHECK(
      offsets[0].dim() == 1 && offsets[0].numel() > 0, op, "(): expected offsets to be a vector, but got shape ",
      offsets[0].sizes());
  return offsets[0];
}

} // namespace

at::Tensor jagged_to_padded_dense_forward(
    const at::Tensor& values, at::TensorList offsets, at::IntArrayRef max_lengths, double padding_value) {
  constexpr const char* kOp = "_jagged_to_padded_dense_forward";
  TORCH_CHECK(max_lengths.size() == 1, kOp, "(): only a single jagged dim is supported for now");
  const at::Tensor starts = only_offsets(kOp, offsets).to(at::kLong);
  const int64_t batch = starts.numel() - 1, length = max_lengths[0];
  at::DimVector sizes{batch, length};
  sizes.append(values.sizes().begin() + 1, values.sizes().end());
  if (values.numel() == 0 || batch * length == 0) return at::full(sizes, padding_value, values.options());
  const at::Tensor position = at::arange(length, starts.options());
  const at::Tensor index = starts.narrow(0, 0, batch).unsqueeze(1) + position;
  const at::Tensor is_within = index < starts.narrow(0, 1, batch).unsqueeze(1);
  const at::Tensor rows = values.index_select(0, (index * is_within).flatten()).view(sizes);
  at::DimVector shape(sizes.size(), 1);
  shape[0] = batch;
  shape[1] = length;
  return at::where(is_within.view(shape), rows, at::full({}, padding_value, values.options().device(at::kCPU)));
}

at::Tensor padded_dense_to_jagged_forward(
    const at::Tensor& dense, at::TensorList offsets, std::optional<int64_t> total_L) {
  constexpr const char* kOp = "_padded_dense_to_jagged_forward";
  const at::Tensor ends = only_offsets(kOp, offsets).to(at::kLong);
  TORCH_CHECK(
      dense.dim() >= 2 && dense.size(0) == ends.numel() - 1, kOp, "(): expected a padded tensor of ", ends.numel() - 1,
      " batch items, but got shape ", dense.sizes());
  const int64_t batch = dense.size(0), length = dense.size(1);
  int64_t total = 0;
  if (batch > 0) {
    const at::Tensor known = at::stack({ends.select(0, -1), ends.diff().max()}).cpu();
    total = known[0].item<int64_t>();
    const auto longest = known[1].item<int64_t>();
    TORCH_CHECK(
        longest <= length, kOp, "(): found batch item of length ", longest,
        " when max length specified by padded input is ", length);
  }
  TORCH_CHECK(total_L.value_or(total) == total, kOp, "(): final offset should match total_L value");
  const at::Tensor row = at::arange(total, ends.options());
  const at::Tensor item = at::searchsorted(ends.narrow(0, 1, batch), row, /*out_int32=*/false, /*right=*/true);
  const at::Tensor position = row - ends.index_select(0, item);
  at::DimVector sizes{batch * length};
  sizes.append(dense.sizes().begin() + 2, dense.sizes().end());
  return dense.reshape(sizes).index_select(0, item * length + position);
}

} // namespace torch_opencl::native
