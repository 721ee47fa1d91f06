// Reductions of torch.distributed, in a form that CPU backends support.
#pragma once

#include <ATen/core/Tensor.h>
#include <optional>
#include <torch/csrc/distributed/c10d/Types.hpp>

#include "runtime/compat.h"

namespace torch_opencl::distributed {

// A reduction of tensors of one dtype, in a dtype that CPU backends support, and without a factor.
class Reduction {
 public:
  Reduction(const c10d::ReduceOp& op, at::ScalarType dtype);

  // The reduction to pass to the CPU backend.
  const c10d::ReduceOp& op() const {
    return op_;
  }

  // Views the tensor in a dtype that gives a result with the same bits.
  at::Tensor viewed(const at::Tensor& tensor) const;
  // True if the CPU backend can reduce the tensor directly.
  bool takes(const at::Tensor& tensor) const;
  // Returns a copy that the CPU backend can reduce.
  at::Tensor prepare(const at::Tensor& tensor) const;

 private:
  bool wraps() const;

  c10d::ReduceOp op_;
  std::optional<compat::PreMulSum> factor_;
};

} // namespace torch_opencl::distributed
