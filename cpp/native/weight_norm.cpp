#include <ATen/TensorOperators.h>
#include <ATen/ops/_weight_norm_differentiable_backward.h>
#include <ATen/ops/norm_except_dim.h>

#include "norm.h"

namespace torch_opencl::native {

// The weight `v` scaled to the norms `g` along `dim`, and the norms that it had.
std::tuple<at::Tensor, at::Tensor> weight_norm(const at::Tensor& v, const at::Tensor& g, int64_t dim) {
  // The norms have the dtype of g, which for 16-bit weights may be wider.
  at::Tensor norms = at::norm_except_dim(v.to(g.scalar_type()), 2, dim);
  return {v * (g / norms).to(v.scalar_type()), std::move(norms)};
}

std::tuple<at::Tensor, at::Tensor> weight_norm_backward(
    const at::Tensor& grad_w,
    const at::Tensor& saved_v,
    const at::Tensor& saved_g,
    const at::Tensor& saved_norms,
    int64_t dim) {
  return at::_weight_norm_differentiable_backward(grad_w, saved_v, saved_g, saved_norms, dim);
}

} // namespace torch_opencl::native
