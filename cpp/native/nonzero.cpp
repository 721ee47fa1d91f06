#include "entries/index.h"

#include <ATen/MemoryOverlap.h>
#include <ATen/native/Resize.h>
#include <ATen/ops/empty.h>

#include "runtime/error.h"
#include "runtime/tensor_arg.h"
#include "torch_opencl/rust/ops/index/nonzero.rs.h"

namespace torch_opencl::native {
namespace {

// Elements that one work-item looks through for non-zeros.
constexpr int64_t kNonzeroBlock = 1024;

} // namespace

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
  // Column-major, as on the CPU and CUDA: fake tensors have these strides.
  if (at::native::resize_output(out, {total, self.dim()})) out.as_strided_({total, self.dim()}, {1, total});
  checked([&] { bridge::nonzero_write(arg(input), arg(ends), arg(out)); });
  return out;
}

at::Tensor& nonzero_static_out(const at::Tensor& self, int64_t size, int64_t fill_value, at::Tensor& out) {
  TORCH_CHECK(size >= 0, "nonzero_static: 'size' must be an non-negative integer");
  TORCH_CHECK(
      out.scalar_type() == at::kLong, "nonzero_static: Expected out tensor to have scalar type ", at::kLong,
      " but got scalar type ", out.scalar_type());
  const at::Tensor found = self.nonzero();
  const int64_t count = std::min(size, found.size(0));
  at::native::resize_output(out, {size, self.dim()});
  out.narrow(0, 0, count).copy_(found.narrow(0, 0, count));
  out.narrow(0, count, size - count).fill_(fill_value);
  return out;
}

} // namespace torch_opencl::native
