#include <ATen/TensorOperators.h>
#include <ATen/ops/norm_except_dim.h>

#include "norm.h"

namespace torch_opencl::native {

// The weight `v` scaled to the norms `g` along `dim`, and the norms that it had.
std::tuple<at::Tensor, at::Tensor> weight_norm(const at::Tensor& v, const at::Tensor& g, int64_t dim) {
  // The norms have the dtype of g, which for 16-bit weights may be wider.
  at::Tensor norms = at::norm_except_dim(v.to(g.scalar_type()), 2, dim);
  return {v * (g / norms).to(v.scalar_type()), std::move(norms)};
}

} // namespace torch_opencl::native
