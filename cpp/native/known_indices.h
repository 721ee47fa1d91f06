// Index tensors that kernels have found in range: operators need not wait for another check.
#pragma once

#include <ATen/core/IListRef.h>
#include <ATen/core/Tensor.h>
#include <c10/util/ArrayRef.h>
#include <c10/util/SmallVector.h>
#include <optional>

namespace torch_opencl::native {

// An index tensor as the dispatcher gave it, before C++ makes views of it.
struct GivenIndex {
  GivenIndex(const at::Tensor& index);

  at::Tensor tensor;
  // True if its version shows whether an operator has written to it.
  bool has_version;
};

// An index, and the dimension that it walks.
struct IndexBound {
  GivenIndex index;
  // Size of the dimension.
  int64_t size;
  // True if negative indices count from the end.
  bool wraps;
};

// All indices of an operator.
using IndexBounds = c10::SmallVector<IndexBound, 2>;

// The bounds of advanced indexing. Masks have none: they stand for indices that are in range.
IndexBounds bounds_of(const at::Tensor& self, at::IOptTensorListRef indices);

// True if a kernel has found all indices in range, and no operator has written to them since. Other writes to a
// tensor's memory (a graph's replay, other libraries that share it, `.data`) are not seen: kernels check all the same,
// and their report is then raised when the host next waits.
bool are_in_range(c10::ArrayRef<IndexBound> bounds);

// Remembers that a kernel has found these in range.
void remember_in_range(c10::ArrayRef<IndexBound> bounds);

} // namespace torch_opencl::native
