// Index tensors that kernels have found in range: operators need not wait to say so again.
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
  // True if its version tells whether an operator has written to it.
  bool has_version;
};

// It, and the dimension that it walks.
struct IndexBound {
  GivenIndex index;
  // Of the dimension.
  int64_t size;
  // True where negative indices count from the end.
  bool wraps;
};

// Those of an operator.
using IndexBounds = c10::SmallVector<IndexBound, 2>;

// Those of advanced indexing. A mask, which stands for indices that are in range, needs none.
IndexBounds bounds_of(const at::Tensor& self, at::IOptTensorListRef indices);

// True if a kernel has found all indices in range, and no operator has written to them since. What else writes to a
// tensor's memory (a graph's replay, other libraries that share it, `.data`) is not seen: kernels check all the same,
// and their report is then raised when the host next waits.
bool are_in_range(c10::ArrayRef<IndexBound> bounds);

// Remembers that a kernel has found these in range.
void remember_in_range(c10::ArrayRef<IndexBound> bounds);

} // namespace torch_opencl::native
