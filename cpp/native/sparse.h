// Shared by operators on sparse tensors, in COO and in the compressed layouts.
#pragma once

#include <ATen/core/Tensor.h>
#include <optional>

namespace torch_opencl::native::sparse {

// The elements of a sparse matrix, in any order unless it is known that they go by row.
struct Elements {
  at::Tensor rows, columns, values;
  bool by_row = false;

  Elements transposed() const {
    return {columns, rows, values};
  }
};

// The elements of a matrix in COO or in a compressed layout.
Elements elements(const at::Tensor& matrix);

// The terms of the matmul of two sparse matrices, the second with `inner` rows: one element for each product, so that
// indices repeat.
Elements matmul(const Elements& a, const Elements& b, int64_t inner);

// The dense matmul of a sparse matrix with `rows` rows and a dense one.
at::Tensor matmul(const Elements& matrix, int64_t rows, const at::Tensor& dense);
// The dense matmul of `matrix`, or its transpose, in COO or in a compressed layout.
at::Tensor matmul(const at::Tensor& matrix, bool transpose, const at::Tensor& dense);

// The dense matmul of elements in any order, or with their columns compressed; nullopt if it would need sorting.
// Undefined values are ones.
std::optional<at::Tensor> scattered_matmul(
    const Elements& matrix, bool is_compressed, int64_t out_rows, const at::Tensor& dense);

// A COO matrix, coalesced.
at::Tensor coalesced(const Elements& elements, at::IntArrayRef sizes);

// Positions of sparse elements in the flattened sparse dimensions.
at::Tensor flatten_indices(const at::Tensor& indices, at::IntArrayRef sizes);

// Positions of the elements of a COO tensor in its flattened sparse dimensions.
at::Tensor flat(const at::Tensor& self);

// Positions of flat indices among those of a coalesced tensor; `found` is false for an index that is not among them.
struct Matches {
  at::Tensor position, found;
};

Matches find(const at::Tensor& sorted, const at::Tensor& wanted);

// `values`, or zero, where `found` is false for an element.
at::Tensor masked(const at::Tensor& values, const at::Tensor& found);

// A COO tensor with the options of `self` but its dtype, which is that of the values.
at::Tensor like(
    const at::Tensor& self,
    at::IntArrayRef sizes,
    const at::Tensor& indices,
    const at::Tensor& values,
    bool is_coalesced);

// Gives a COO tensor other contents.
at::Tensor& assign(
    at::Tensor& out, at::IntArrayRef sizes, const at::Tensor& indices, const at::Tensor& values, bool is_coalesced);

// beta * self + alpha * matmul_result, in `out`; `self` is not read where beta is 0.
void add_matmul(
    const at::Tensor& self,
    const at::Tensor& matmul_result,
    const at::Scalar& beta,
    const at::Scalar& alpha,
    const at::Tensor& out);

// beta * self + alpha * mat1 @ mat2 for a sparse and a dense matrix, in `out`; `self` is broadcast.
at::Tensor& add_dense_matmul(
    const at::Tensor& self,
    const at::Tensor& mat1,
    const at::Tensor& mat2,
    const at::Scalar& beta,
    const at::Scalar& alpha,
    at::Tensor& out);

} // namespace torch_opencl::native::sparse
