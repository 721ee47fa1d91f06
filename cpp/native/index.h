// Shared by operators with an index.
#pragma once

#include <ATen/core/IListRef.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/scatter_reduce_meta.h>
#include <ATen/ops/scatter_reduce_native.h>
#include <c10/util/SmallVector.h>

#include "native/known_indices.h"

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

// ATen's function divides sums by counts for a mean, both in the result's dtype. For 16-bit floats this uses float32.
template <class Meta>
struct ScatterReduce : at::native::structured_scatter_reduce_two {
  void impl(
      const at::Tensor& self,
      int64_t dim,
      const at::Tensor& index,
      const at::Tensor& src,
      c10::string_view reduce,
      bool include_self,
      const at::Tensor& result);
};

} // namespace torch_opencl::native
