// Moves along one dimension, shared by operators on indices.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/ops/full.h>

#include "native/known_indices.h"
#include "torch_opencl/rust/ops/index/mod.rs.h"
#include "torch_opencl/rust/ops/index/scatter.rs.h"

namespace torch_opencl::native {

inline at::Tensor filled(const at::Scalar& value, const at::Tensor& like) {
  return at::full({}, value, like.options());
}

// self[..., index, ...] op= src along one dimension; `src` may be larger than `index`, which is `given` or a view of
// it.
void scatter_along(
    const at::Tensor& self,
    int64_t dim,
    const at::Tensor& index,
    const at::Tensor& src,
    bridge::SetOp op,
    const GivenIndex& given,
    bridge::BadIndex bad = bridge::BadIndex::Gather);

// True for many updates of few rows along `dim`: a CPU makes them sequentially in a tenth of the time that its atomic
// operations take.
bool scatters_on_host(const at::Tensor& self, int64_t dim, const at::Tensor& index);

// self[indices] = value, or += if `accumulate`, for operands that need no conversion. Index tensors that were found in
// range are not checked again, and those found in range now are remembered (known_indices.h).
void index_put_repeated(
    at::Tensor& self,
    const c10::List<std::optional<at::Tensor>>& indices,
    const at::Tensor& value,
    bool accumulate,
    bool unsafe);

// result = self[index] along dimension 0. `index` has any shape, and `result` a row for each of its elements.
void take_rows(const at::Tensor& result, const at::Tensor& self, const at::Tensor& index);

// self[index] += rows along dimension 0. `rows` has a row for each element of `index`.
void add_rows(const at::Tensor& self, const at::Tensor& index, const at::Tensor& rows);

} // namespace torch_opencl::native
