#include "entries/scan.h"

#include <ATen/MemoryOverlap.h>
#include <ATen/WrapDimUtils.h>
#include <ATen/native/Resize.h>

#include "runtime/error.h"
#include "runtime/tensor_arg.h"
#include "torch_opencl/rust/ops/scan/mod.rs.h"

namespace torch_opencl::native {
namespace {

using bridge::ScanOp;

void scan(const at::Tensor& result, const at::Tensor& self, int64_t dim, ScanOp op) {
  // ATen leaves the out= of logcumsumexp to its stub.
  at::native::resize_output(result, self.sizes());
  at::assert_no_partial_overlap(result, self);
  const at::Tensor input = self.to(result.scalar_type()).contiguous(), out = result.contiguous();
  const auto axis = static_cast<size_t>(at::maybe_wrap_dim(dim, self.dim()));
  checked([&] { bridge::scan(arg(out), arg(input), axis, op); });
  if (!out.is_same(result)) result.copy_(out);
}

void extreme(const at::Tensor& self, const at::Tensor& values, const at::Tensor& indices, int64_t dim, bool largest) {
  const at::Tensor input = self.contiguous(), best = values.contiguous(), where = indices.contiguous();
  const auto axis = static_cast<size_t>(at::maybe_wrap_dim(dim, self.dim()));
  checked([&] { bridge::scan_extreme(arg(best), arg(where), arg(input), axis, largest); });
  if (!best.is_same(values)) values.copy_(best);
  if (!where.is_same(indices)) indices.copy_(where);
}

} // namespace

void cumsum(const at::Tensor& result, const at::Tensor& self, int64_t dim) {
  scan(result, self, dim, ScanOp::Sum);
}

void cumprod(const at::Tensor& result, const at::Tensor& self, int64_t dim) {
  scan(result, self, dim, ScanOp::Product);
}

void logcumsumexp(at::Tensor& result, const at::Tensor& self, int64_t dim) {
  scan(result, self, dim, ScanOp::LogSumExp);
}

void cummax_helper(const at::Tensor& self, at::Tensor& values, at::Tensor& indices, int64_t dim) {
  extreme(self, values, indices, dim, /*largest=*/true);
}

void cummin_helper(const at::Tensor& self, at::Tensor& values, at::Tensor& indices, int64_t dim) {
  extreme(self, values, indices, dim, /*largest=*/false);
}

} // namespace torch_opencl::native
