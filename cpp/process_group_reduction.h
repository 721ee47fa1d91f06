// Reductions of torch.distributed as engines for the CPU know them.
#pragma once

#include <ATen/core/Tensor.h>
#include <optional>
#include <torch/csrc/distributed/c10d/Types.hpp>

#include "compat.h"

namespace torch_opencl::distributed {

// A reduction of tensors of one dtype, in the engine's dtypes and without a factor.
class Reduction {
 public:
  Reduction(const c10d::ReduceOp& op, at::ScalarType dtype);

  // The reduction that the engine is asked for.
  const c10d::ReduceOp& op() const {
    return op_;
  }

  // The same memory, in a dtype that has the same bits as result.
  at::Tensor viewed(const at::Tensor& tensor) const;
  // True where the engine can reduce the tensor as it is.
  bool takes(const at::Tensor& tensor) const;
  // A tensor of its own, whose elements the engine can reduce.
  at::Tensor prepare(const at::Tensor& tensor) const;

 private:
  bool wraps() const;

  c10d::ReduceOp op_;
  std::optional<compat::PreMulSum> factor_;
};

} // namespace torch_opencl::distributed
