#include "native/fused.h"

#include <c10/util/SmallVector.h>

#include "native/contiguous.h"
#include "runtime/error.h"
#include "runtime/tensor_arg.h"

namespace torch_opencl::native {

FusedOperands::FusedOperands(
    int64_t epilogue, const std::vector<at::Tensor>& buffers, const std::vector<int64_t>& scalars)
    : epilogue_(epilogue), scalars_(scalars) {
  TORCH_CHECK(!buffers.empty(), "OpenCL: a fused epilogue must write to at least one buffer");
  for (const at::Tensor& buffer : buffers) addresses_.push_back(address_of(buffer));
}

bridge::FusedOperands FusedOperands::arg() const {
  return {
      epilogue_, rust::Slice<const size_t>(addresses_.data(), addresses_.size()),
      rust::Slice<const int64_t>(scalars_.data(), scalars_.size())};
}

bridge::Tensor FusedOperands::result(at::ScalarType dtype, at::IntArrayRef sizes, at::IntArrayRef strides) const {
  return {addresses_.front(), torch_opencl::arg(dtype), torch_opencl::arg(sizes), torch_opencl::arg(strides)};
}

int64_t fused_source(const std::string& source, bool reports_faults) {
  return bridge::fused_source(rust::Str(source), reports_faults);
}

void fused_matmul(
    int64_t epilogue,
    const at::Tensor& a,
    const at::Tensor& b,
    const std::optional<at::Tensor>& bias,
    const at::Scalar& beta,
    const at::Scalar& alpha,
    const std::vector<at::Tensor>& buffers,
    const std::vector<int64_t>& scalars) {
  TORCH_CHECK(
      (a.dim() == 2 || a.dim() == 3) && a.dim() == b.dim() && a.scalar_type() == b.scalar_type(),
      "OpenCL: a fused matmul takes matrices, or batches of them, of one dtype");
  c10::SmallVector<int64_t, 3> sizes(a.sizes()), strides(sizes.size(), 1);
  sizes.back() = b.size(-1);
  for (size_t d = sizes.size() - 1; d > 0; d--) strides[d - 1] = strides[d] * sizes[d];
  if (c10::multiply_integers(sizes) == 0) return;
  const FusedOperands fused(epilogue, buffers, scalars);
  const at::Tensor first = repeated_in_batches_only(a), second = repeated_in_batches_only(b);
  const at::Tensor added = bias.has_value() ? bias->expand(sizes) : at::Tensor();
  bridge::FusedMatmul matmul{};
  matmul.out = fused.result(a.scalar_type(), sizes, strides);
  matmul.a = arg(first);
  matmul.b = arg(second);
  matmul.bias = arg(added);
  matmul.alpha = arg(alpha);
  matmul.beta = arg(beta);
  matmul.fused = fused.arg();
  checked([&] { bridge::fused_matmul(matmul); });
}

} // namespace torch_opencl::native
