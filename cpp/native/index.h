// Reading and writing where index tensors say.
//
// Every op comes down to two moves of the bridge over tensors of one shape: index_get and index_set. The indexed
// tensor is viewed with stride 0 along the dimensions that are indexed.
#pragma once

#include <ATen/TensorIterator.h>
#include <ATen/core/IListRef.h>
#include <ATen/core/Tensor.h>
#include <ATen/native/ReductionType.h>
#include <ATen/ops/cat_meta.h>
#include <ATen/ops/index_add_meta.h>
#include <ATen/ops/index_copy_meta.h>
#include <ATen/ops/index_meta.h>
#include <ATen/ops/index_reduce_meta.h>
#include <ATen/ops/tril_meta.h>
#include <ATen/ops/triu_meta.h>

namespace torch_opencl::native {

inline at::Tensor at_least_1d(const at::Tensor& tensor) {
  return tensor.dim() == 0 ? tensor.unsqueeze(0) : tensor;
}

// Structured ops whose arguments ATen precomputes.
struct index_out : at::meta::structured_index_Tensor {
  void meta(const at::Tensor& self, at::IOptTensorListRef indices);
  void impl(const at::Tensor& self, at::IOptTensorListRef indices, const at::Tensor& result);

  // What ATen would hand to its own impl: sizes and byte strides of the indexed dimensions.
  at::DimVector indexed_sizes, indexed_strides;
};
struct index_add_out : at::meta::structured_index_add {
  void impl(
      const at::Tensor& self,
      int64_t dim,
      const at::Tensor& index,
      const at::Tensor& source,
      const at::Scalar& alpha,
      const at::Tensor& result);
};
struct index_copy_out : at::meta::structured_index_copy {
  void impl(
      const at::Tensor& self, int64_t dim, const at::Tensor& index, const at::Tensor& source, const at::Tensor& result);
};
struct index_reduce_out : at::meta::structured_index_reduce {
  void impl(
      const at::Tensor& self,
      int64_t dim,
      const at::Tensor& index,
      const at::Tensor& source,
      c10::string_view reduce,
      bool include_self,
      const at::Tensor& result);
};
struct cat_out : at::meta::structured_cat {
  void impl(const at::ITensorListRef& tensors, int64_t dim, const at::Tensor& result);
};
struct tril_out : at::meta::structured_tril {
  void impl(const at::Tensor& self, int64_t diagonal, const at::Tensor& result);
};
struct triu_out : at::meta::structured_triu {
  void impl(const at::Tensor& self, int64_t diagonal, const at::Tensor& result);
};

// Kernels of ATen's stubs.
void index_put(at::TensorIterator& iter, at::IntArrayRef sizes, at::IntArrayRef strides, bool accumulate);
void index_put_repeated(
    at::Tensor& self,
    const c10::List<std::optional<at::Tensor>>& indices,
    const at::Tensor& value,
    bool accumulate,
    bool unsafe);
void index_fill(at::TensorIterator& iter, int64_t dim, int64_t size, int64_t stride, const at::Scalar& value);
void gather(const at::Tensor& result, const at::Tensor& self, int64_t dim, const at::Tensor& index);
void scatter(const at::Tensor& self, int64_t dim, const at::Tensor& index, const at::Tensor& src);
void scatter_fill(const at::Tensor& self, int64_t dim, const at::Tensor& index, const at::Scalar& value);
void scatter_add(const at::Tensor& self, int64_t dim, const at::Tensor& index, const at::Tensor& src);
void scatter_reduce(
    const at::Tensor& self,
    int64_t dim,
    const at::Tensor& index,
    const at::Tensor& src,
    const at::native::ReductionType& reduce);
void scatter_scalar_reduce(
    const at::Tensor& self,
    int64_t dim,
    const at::Tensor& index,
    const at::Scalar& value,
    const at::native::ReductionType& reduce);
void take(at::TensorIterator& iter, const at::TensorBase& input);
void put(at::TensorIterator& iter, const at::TensorBase& self, bool accumulate);
void masked_fill(at::TensorIterator& iter, const at::Scalar& value);
void flip(at::TensorIterator& iter, bool quantized);
void unfold_backward(at::Tensor& grad_in, const at::Tensor& grad, int64_t dim, int64_t size, int64_t step);

// Whole ops.
at::Tensor index_select(const at::Tensor& self, int64_t dim, const at::Tensor& index);
at::Tensor& index_select_out(const at::Tensor& self, int64_t dim, const at::Tensor& index, at::Tensor& out);
at::Tensor masked_select(const at::Tensor& self, const at::Tensor& mask);
at::Tensor& masked_select_out(const at::Tensor& self, const at::Tensor& mask, at::Tensor& out);
at::Tensor& masked_scatter_(at::Tensor& self, const at::Tensor& mask, const at::Tensor& source);
at::Tensor nonzero(const at::Tensor& self);
at::Tensor& nonzero_out(const at::Tensor& self, at::Tensor& out);
at::Tensor embedding_dense_backward(
    const at::Tensor& grad_output,
    const at::Tensor& indices,
    int64_t num_weights,
    int64_t padding_idx,
    bool scale_grad_by_freq);
at::Tensor repeat_interleave(const at::Tensor& repeats, std::optional<int64_t> output_size);

} // namespace torch_opencl::native
