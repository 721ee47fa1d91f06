// Inputs and outputs of kernels that take dense, row-major memory.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty_like.h>

namespace torch_opencl::native {

// Returns the tensor, undefined if none is given.
inline at::Tensor value_of(const std::optional<at::Tensor>& tensor) {
  return tensor.has_value() ? *tensor : at::Tensor();
}
inline at::Tensor value_of(at::OptionalTensorRef tensor) {
  return tensor.has_value() ? *tensor : at::Tensor();
}

// Returns a row-major tensor of the same values, undefined if none is given.
inline at::Tensor contiguous(const at::Tensor& tensor) {
  return tensor.defined() ? tensor.contiguous() : tensor;
}
inline at::Tensor contiguous(const std::optional<at::Tensor>& tensor) {
  return contiguous(value_of(tensor));
}
inline at::Tensor contiguous(at::OptionalTensorRef tensor) {
  return contiguous(value_of(tensor));
}

// Copies expanded dimensions (stride 0, as in the gradient of a sum) other than the first: kernels that load vectors
// along them gather instead, which takes up to 4 times as long.
inline at::Tensor repeated_in_batches_only(
    const at::Tensor& tensor, at::MemoryFormat format = at::MemoryFormat::Contiguous) {
  const auto repeats = [&](int64_t dim) { return tensor.stride(dim) == 0 && tensor.size(dim) > 1; };
  bool is_repeated = false;
  for (int64_t dim = 1; dim < tensor.dim(); dim++) is_repeated |= repeats(dim);
  if (!is_repeated || tensor.numel() == 0) return tensor;
  return repeats(0) ? tensor.narrow(0, 0, 1).contiguous(format).expand(tensor.sizes()) : tensor.contiguous(format);
}

// Output of a kernel: the output itself, or a contiguous tensor that `finish` copies to it.
class ContiguousOutput {
 public:
  explicit ContiguousOutput(const at::Tensor& output)
      : output_(output),
        written_(
            !output.defined() || output.is_contiguous() ? output
                                                        : at::empty_like(output, at::MemoryFormat::Contiguous)) {}

  const at::Tensor& tensor() const {
    return written_;
  }

  void finish() const {
    if (!written_.is_same(output_)) output_.copy_(written_);
  }

 private:
  at::Tensor output_, written_;
};

} // namespace torch_opencl::native
