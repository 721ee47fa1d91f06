// Softmax of COO tensors: of the elements that are given, along one dimension.
#include "entries/composite.h"

#include <ATen/OpMathType.h>
#include <ATen/TensorOperators.h>
#include <ATen/WrapDimUtils.h>
#include <ATen/ops/_log_softmax_backward_data.h>
#include <ATen/ops/_softmax_backward_data.h>
#include <ATen/ops/_unique2.h>
#include <ATen/ops/full.h>
#include <ATen/ops/log_softmax.h>
#include <ATen/ops/softmax.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>
#include <limits>

#include "sparse.h"

namespace torch_opencl::native {
namespace {

// Elements that differ along one sparse dimension alone share a pool.
struct Pools {
  at::Tensor of_element;
  int64_t count;
};

Pools pools(const at::Tensor& self, int64_t dim) {
  const at::Tensor indices = self._indices();
  std::vector<at::Tensor> rest;
  at::DimVector sizes;
  for (int64_t other = 0; other < self.sparse_dim(); other++) {
    if (other == dim) continue;
    rest.push_back(indices.select(0, other));
    sizes.push_back(self.size(other));
  }
  if (rest.empty()) return {at::zeros({self._nnz()}, indices.options()), 1};
  const auto [unique, inverse, counts] = at::_unique2(
      sparse::flatten_indices(at::stack(rest), sizes), /*sorted=*/true, /*return_inverse=*/true,
      /*return_counts=*/false);
  return {inverse, unique.numel()};
}

// Values with their dense dimensions flattened, in the dtype that they are computed in.
at::Tensor rows(const at::Tensor& values) {
  const int64_t count = values.size(0);
  return values.reshape({count, count > 0 ? values.numel() / count : 0}).to(at::toOpMathType(values.scalar_type()));
}

at::Tensor sums(const Pools& pools, const at::Tensor& rows) {
  const at::Tensor sums = at::zeros({pools.count, rows.size(1)}, rows.options());
  return sums.index_add_(0, pools.of_element, rows).index_select(0, pools.of_element);
}

at::Tensor with_values(const at::Tensor& self, const at::Tensor& rows) {
  const at::Tensor values = self._values();
  return sparse::like(self, self.sizes(), self._indices(), rows.to(values.scalar_type()).view(values.sizes()), true);
}

void check(bool half_to_float, const char* op) {
  TORCH_CHECK(!half_to_float, op, " with half to float conversion is not supported on sparse tensors");
}

at::Tensor softmax(const at::Tensor& self, int64_t dim, bool is_log) {
  dim = at::maybe_wrap_dim(dim, self.dim());
  const at::Tensor input = self.coalesce(), values = input._values();
  if (values.numel() == 0) return with_values(input, values.clone());
  if (dim >= input.sparse_dim()) {
    const int64_t dense_dim = dim - input.sparse_dim() + 1;
    return with_values(input, is_log ? at::log_softmax(values, dense_dim) : at::softmax(values, dense_dim));
  }
  const Pools all = pools(input, dim);
  const at::Tensor x = rows(values);
  const at::Tensor largest = at::full({all.count, x.size(1)}, -std::numeric_limits<double>::infinity(), x.options());
  const at::Tensor shifted = x - largest.index_reduce_(0, all.of_element, x, "amax").index_select(0, all.of_element);
  const at::Tensor exponentials = shifted.exp(), totals = sums(all, exponentials);
  return with_values(input, is_log ? shifted - totals.log() : exponentials / totals);
}

at::Tensor softmax_backward(
    const at::Tensor& grad_output, const at::Tensor& output, int64_t dim, const at::Tensor& self, bool is_log) {
  TORCH_CHECK(
      grad_output.is_sparse() && output.is_sparse() && grad_output.sizes().equals(output.sizes()) &&
          grad_output.sparse_dim() == output.sparse_dim(),
      "sparse softmax: expected grad and output to be sparse tensors of one shape, but got ", grad_output.sizes(),
      " and ", output.sizes());
  dim = at::maybe_wrap_dim(dim, self.dim());
  const at::Tensor source = grad_output.coalesce(), results = output.coalesce(), values = results._values();
  if (values.numel() == 0 || source._nnz() == 0) return with_values(results, at::zeros_like(values));
  // An element without a gradient has a gradient of zero.
  const auto [position, found] = sparse::find(sparse::flat(source), sparse::flat(results));
  const at::Tensor grad = sparse::masked(source._values().index_select(0, position), found);
  if (dim >= results.sparse_dim()) {
    const int64_t dense_dim = dim - results.sparse_dim() + 1;
    const auto dtype = values.scalar_type();
    return with_values(
        results,
        is_log ? at::_log_softmax_backward_data(grad, values, dense_dim, dtype)
               : at::_softmax_backward_data(grad, values, dense_dim, dtype));
  }
  const Pools all = pools(results, dim);
  const at::Tensor y = rows(values), g = rows(grad);
  return with_values(results, is_log ? g - y.exp() * sums(all, g) : y * (g - sums(all, y * g)));
}

} // namespace

at::Tensor sparse_softmax(const at::Tensor& self, int64_t dim, bool half_to_float) {
  check(half_to_float, "softmax");
  return softmax(self, dim, /*is_log=*/false);
}

at::Tensor sparse_log_softmax(const at::Tensor& self, int64_t dim, bool half_to_float) {
  check(half_to_float, "log_softmax");
  return softmax(self, dim, /*is_log=*/true);
}

at::Tensor sparse_softmax_backward(
    const at::Tensor& grad_output, const at::Tensor& output, int64_t dim, const at::Tensor& self) {
  return softmax_backward(grad_output, output, dim, self, /*is_log=*/false);
}

at::Tensor sparse_log_softmax_backward(
    const at::Tensor& grad_output, const at::Tensor& output, int64_t dim, const at::Tensor& self) {
  return softmax_backward(grad_output, output, dim, self, /*is_log=*/true);
}

} // namespace torch_opencl::native
