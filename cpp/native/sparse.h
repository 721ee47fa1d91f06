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

// The dense matmul of `matrix`, or its transpose, in COO or in a compressed layout.
at::Tensor matmul(const at::Tensor& matrix, bool transpose, const at::Tensor& dense);

// The dense matmul of elements in any order, or with their columns compressed; nullopt if it would need sorting.
// Undefined values are ones.
std::optional<at::Tensor> scattered_matmul(
    const Elements& matrix, bool is_compressed, int64_t out_rows, const at::Tensor& dense);

} // namespace torch_opencl::native::sparse
