#include "convolution.h"

#include <ATen/native/ConvUtils.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>

#include "../error.h"
#include "../tensor_arg.h"

namespace torch_opencl::native {
namespace {

void check_dtypes(const at::Tensor& input, const at::Tensor& weight, const std::optional<at::Tensor>& bias) {
  TORCH_CHECK(
      input.scalar_type() == weight.scalar_type(), "convolution: input of dtype ", input.scalar_type(),
      " and weight of dtype ", weight.scalar_type(), " should have the same dtype; shapes ", input.sizes(), " and ",
      weight.sizes());
  TORCH_CHECK(
      !bias.has_value() || !bias->defined() || bias->scalar_type() == input.scalar_type(),
      "convolution: input of dtype ", input.scalar_type(), " and bias of dtype ", bias->scalar_type(),
      " should have the same dtype");
}

} // namespace

at::Tensor convolution(
    const at::Tensor& input,
    const at::Tensor& weight,
    const std::optional<at::Tensor>& bias,
    at::IntArrayRef stride,
    at::IntArrayRef padding,
    at::IntArrayRef dilation,
    bool transposed,
    at::IntArrayRef output_padding,
    int64_t groups) {
  check_dtypes(input, weight, bias);
  const auto sizes = transposed
      ? at::native::conv_input_size(input.sizes(), weight.sizes(), padding, output_padding, stride, dilation, groups)
      : at::native::conv_output_size(input.sizes(), weight.sizes(), padding, stride, dilation);
  const at::Tensor output = at::empty(sizes, input.options().memory_format(input.suggest_memory_format()));
  checked([&] {
    bridge::convolve(
        arg(output), arg(input), arg(weight), arg(bias), {arg(stride), arg(padding), arg(dilation), groups},
        transposed);
  });
  return output;
}

std::tuple<at::Tensor, at::Tensor, at::Tensor> convolution_backward(
    const at::Tensor& grad_output,
    const at::Tensor& input,
    const at::Tensor& weight,
    at::IntArrayRef stride,
    at::IntArrayRef padding,
    at::IntArrayRef dilation,
    bool transposed,
    at::IntArrayRef,
    int64_t groups,
    std::array<bool, 3> output_mask) {
  check_dtypes(input, weight, std::nullopt);
  const bridge::ConvolutionArgs window{arg(stride), arg(padding), arg(dilation), groups};
  at::Tensor grad_input, grad_weight, grad_bias;
  if (output_mask[0]) {
    grad_input = at::empty_like(input);
    // The gradient of a convolution is the transposed one of the gradient, and the other way round.
    checked([&] {
      bridge::convolve(arg(grad_input), arg(grad_output), arg(weight), arg(at::Tensor()), window, !transposed);
    });
  }
  if (output_mask[1]) {
    grad_weight = at::empty_like(weight);
    const at::Tensor& source = transposed ? grad_output : input;
    const at::Tensor& gradient = transposed ? input : grad_output;
    checked([&] { bridge::convolve_weights(arg(grad_weight), arg(source), arg(gradient), window); });
  }
  if (output_mask[2]) {
    at::DimVector dims{0};
    for (int64_t dim = 2; dim < grad_output.dim(); dim++) dims.push_back(dim);
    grad_bias = grad_output.sum(dims);
  }
  return {grad_input, grad_weight, grad_bias};
}

} // namespace torch_opencl::native
