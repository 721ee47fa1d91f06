#include "entries/composite.h"
#include "entries/softmax.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/_softmax_backward_data.h>
#include <cmath>
#include <limits>

namespace torch_opencl::native {

// Query (divided by the square root of the head size), key and value from their joint projection [batch, length, 3 *
// size] and its bias: [batch, heads, length, size / heads] each.
std::tuple<at::Tensor, at::Tensor, at::Tensor> transform_bias_rescale_qkv(
    const at::Tensor& qkv, const at::Tensor& qkv_bias, int64_t num_heads) {
  const int64_t batch = qkv.size(0), length = qkv.size(1), size = qkv.size(2) / 3;
  TORCH_CHECK(
      num_heads > 0 && size % num_heads == 0, "the embedding of size ", size, " does not divide into ", num_heads,
      " heads");
  const at::Tensor heads =
      (qkv + qkv_bias).view({batch, length, 3, num_heads, size / num_heads}).permute({2, 0, 3, 1, 4}).contiguous();
  const double scale = 1 / std::sqrt(static_cast<double>(size / num_heads));
  return {heads.select(0, 0).mul(scale), heads.select(0, 1), heads.select(0, 2)};
}

// Softmax of the unmasked values. The type of the mask gives its shape: 0 is [length, length] for all heads, 1 is
// [batch, length] for all queries, 2 is the sizes of `self`.
at::Tensor masked_softmax(
    const at::Tensor& self, const at::Tensor& mask, std::optional<int64_t> dim, std::optional<int64_t> mask_type) {
  TORCH_CHECK(mask.scalar_type() == at::kBool, "Mask should be a boolean tensor");
  TORCH_CHECK(mask_type.has_value() && *mask_type >= 0 && *mask_type <= 2, "Mask Type should be 0, 1 or 2");
  at::Tensor hidden = mask;
  if (*mask_type == 1) {
    TORCH_CHECK(
        self.dim() == 4 && mask.dim() == 2 && mask.size(0) == self.size(0) && mask.size(1) == self.size(3),
        "Mask of shape ", mask.sizes(), " does not match the batch and keys of scores of shape ", self.sizes());
    hidden = mask.view({mask.size(0), 1, 1, mask.size(1)});
  }
  return self.masked_fill(hidden, -std::numeric_limits<double>::infinity()).softmax(dim.value_or(-1));
}

at::Tensor masked_softmax_backward(
    const at::Tensor& grad_output, const at::Tensor& output, const at::Tensor& mask, std::optional<int64_t> dim) {
  TORCH_CHECK(grad_output.sizes() == mask.sizes(), "Mask shape should match grad shape");
  TORCH_CHECK(mask.scalar_type() == at::kBool, "Mask should be a boolean tensor");
  const at::Tensor grad = grad_output.masked_fill(mask, 0);
  return at::_softmax_backward_data(grad, output, dim.value_or(-1), output.scalar_type()).masked_fill_(mask, 0);
}

} // namespace torch_opencl::native
