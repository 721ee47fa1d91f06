// Shared by operators with an index.
#pragma once

#include <ATen/core/IListRef.h>
#include <ATen/core/Tensor.h>
#include <c10/util/SmallVector.h>

#include "known_indices.h"

namespace torch_opencl::native {

inline at::Tensor at_least_1d(const at::Tensor& tensor) {
  return tensor.dim() == 0 ? tensor.unsqueeze(0) : tensor;
}

// `Meta` is ATen's class, which precomputes arguments of its own impl.
template <class Meta>
struct IndexTensor : Meta {
  void meta(const at::Tensor& self, at::IOptTensorListRef indices);
  void impl(const at::Tensor& self, at::IOptTensorListRef indices, const at::Tensor& result);

  // Taken before `Meta` makes views of index tensors.
  IndexBounds bounds;
  // Arguments that ATen would pass to its own impl: sizes and byte strides of the indexed dimensions.
  at::DimVector indexed_sizes, indexed_strides;
};

} // namespace torch_opencl::native
