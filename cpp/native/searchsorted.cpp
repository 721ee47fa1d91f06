// Insertion indices of values among sorted ones, and repeat_interleave, which finds its indices so.
#include "entries/index.h"

#include <ATen/TensorOperators.h>
#include <ATen/native/BucketizationUtils.h>
#include <ATen/native/Resize.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/bucketize.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/result_type.h>
#include <ATen/ops/searchsorted.h>

#include "runtime/error.h"
#include "runtime/tensor_arg.h"
#include "torch_opencl/rust/ops/index/searchsorted.rs.h"

namespace torch_opencl::native {

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

at::Tensor& searchsorted_scalar_out(
    const at::Tensor& boundaries,
    const at::Scalar& self,
    bool out_int32,
    bool right,
    std::optional<c10::string_view> side,
    const std::optional<at::Tensor>& sorter,
    at::Tensor& out) {
  const at::Tensor value = at::native::searchsorted_scalar_tensor(self, boundaries.device());
  return native::searchsorted_out(boundaries, value, out_int32, right, side, sorter, out);
}

at::Tensor& bucketize_out(
    const at::Tensor& self, const at::Tensor& boundaries, bool out_int32, bool right, at::Tensor& out) {
  TORCH_CHECK(boundaries.dim() == 1, "boundaries tensor must be 1 dimension, but got dim(", boundaries.dim(), ")");
  return native::searchsorted_out(boundaries, self, out_int32, right, std::nullopt, std::nullopt, out);
}

at::Tensor bucketize_scalar(const at::Scalar& self, const at::Tensor& boundaries, bool out_int32, bool right) {
  return at::bucketize(at::native::searchsorted_scalar_tensor(self, boundaries.device()), boundaries, out_int32, right);
}

at::Tensor repeat_interleave(const at::Tensor& repeats, std::optional<int64_t> output_size) {
  TORCH_CHECK(repeats.dim() == 1, "repeat_interleave only accepts 1D vector as repeat");
  TORCH_CHECK(
      repeats.scalar_type() == at::kLong || repeats.scalar_type() == at::kInt, "repeats has to be Long or Int tensor");
  if (repeats.numel() == 0) return at::empty_like(repeats);
  const at::Tensor ends = repeats.cumsum(0);
  // The second item() does not wait, as the stream is idle.
  TORCH_CHECK(repeats.min().item<int64_t>() >= 0, "repeats can not be negative");
  const int64_t total = ends[-1].item<int64_t>();
  TORCH_CHECK(
      !output_size.has_value() || *output_size == total,
      "allocated size does not match required size: ", output_size.value_or(0), " and ", total);
  // Position i repeats the first element whose run ends after it.
  const at::Tensor positions = at::arange(total, ends.options());
  return at::searchsorted(ends, positions, /*out_int32=*/repeats.scalar_type() == at::kInt, /*right=*/true);
}

} // namespace torch_opencl::native
