// Convolutions under the names of ATen's implementations: all are computed as `convolution_overrideable` is.
#include "entries/convolution.h"

#include <ATen/native/DilatedConvolutionUtils.h>
#include <ATen/native/Resize.h>
#include <algorithm>
#include <vector>

#include "native/check.h"

namespace torch_opencl::native {
namespace {

struct Geometry {
  at::IntArrayRef stride, padding, dilation;
  bool transposed = false;
  at::IntArrayRef output_padding = {};
  int64_t groups = 1;
};

// `self` is a batch, or one image without a batch dimension.
at::Tensor convolved(
    const at::Tensor& self, const at::Tensor& weight, const std::optional<at::Tensor>& bias, const Geometry& geometry) {
  const std::vector<int64_t> none(geometry.stride.size(), 0);
  const bool is_batch = self.dim() == weight.dim();
  const at::Tensor output = native::convolution(
      {is_batch ? self : self.unsqueeze(0), weight, bias, geometry.stride, geometry.padding, geometry.dilation,
       geometry.transposed, geometry.transposed ? geometry.output_padding : none, geometry.groups});
  return is_batch ? output : output.squeeze(0);
}

// A kernel of the stated size, which ATen also takes as a matrix [output channels, the rest].
at::Tensor kernel_of(const char* op, const at::Tensor& weight, at::IntArrayRef kernel_size) {
  TORCH_CHECK(
      std::all_of(kernel_size.begin(), kernel_size.end(), [](int64_t size) { return size > 0; }), op,
      ": kernel size should be greater than zero, but got ", kernel_size);
  const auto dims = static_cast<int64_t>(kernel_size.size());
  const int64_t elements = c10::multiply_integers(kernel_size);
  if (weight.dim() == 2 && weight.size(1) % elements == 0) {
    at::DimVector sizes{weight.size(0), weight.size(1) / elements};
    sizes.append(kernel_size.begin(), kernel_size.end());
    return weight.reshape(sizes);
  }
  TORCH_CHECK(
      weight.dim() == dims + 2 && weight.sizes().slice(2) == kernel_size, op, ": expected a weight of ", dims + 2,
      " dimensions with a kernel of size ", kernel_size, ", but got shape ", weight.sizes());
  return weight;
}

void check_batch(const char* op, const at::Tensor& self, at::IntArrayRef kernel_size) {
  const auto dims = static_cast<int64_t>(kernel_size.size()) + 2;
  TORCH_CHECK(self.dim() == dims, op, ": Expected ", dims, "D input tensor, but got: ", self.sizes());
}

template <class Op>
at::Tensor depthwise(const char* op, const Arguments<Op>& args) {
  const at::Tensor& self = args.self;
  const auto dims = static_cast<int64_t>(args.kernel_size.size());
  TORCH_CHECK(
      self.dim() == dims + 1 || self.dim() == dims + 2, op, ": Input dimension should be ", dims + 1, "D or ", dims + 2,
      "D, got ", self.dim(), "D");
  const at::Tensor kernel = kernel_of(op, args.weight, args.kernel_size);
  TORCH_CHECK(kernel.size(1) == 1, op, ": Weight should have 1 input channel, but got shape ", args.weight.sizes());
  return convolved(
      self, kernel, args.bias, {args.stride, args.padding, args.dilation, false, {}, self.size(-dims - 1)});
}

template <int64_t kDims, class Op>
at::Tensor dilated(const Arguments<Op>& args) {
  at::native::internal::slow_conv_dilated_shape_check<kDims>(
      args.self, args.weight, args.bias.value_or(at::Tensor()), at::Tensor(), args.kernel_size, args.stride,
      args.padding, args.dilation);
  return convolved(args.self, args.weight, args.bias, {args.stride, args.padding, args.dilation});
}

template <class Op>
at::Tensor plain(const char* op, const Arguments<Op>& args) {
  check_batch(op, args.self, args.kernel_size);
  const at::DimVector ones(args.kernel_size.size(), 1);
  return convolved(
      args.self, kernel_of(op, args.weight, args.kernel_size), args.bias, {args.stride, args.padding, ones});
}

} // namespace

at::Tensor conv_depthwise2d(const Arguments<at::_ops::_conv_depthwise2d>& args) {
  return depthwise("_conv_depthwise2d", args);
}
at::Tensor conv_depthwise3d(const Arguments<at::_ops::conv_depthwise3d>& args) {
  return depthwise("conv_depthwise3d", args);
}
at::Tensor slow_conv_dilated2d(const Arguments<at::_ops::slow_conv_dilated2d>& args) {
  return dilated<2>(args);
}
at::Tensor slow_conv_dilated3d(const Arguments<at::_ops::slow_conv_dilated3d>& args) {
  return dilated<3>(args);
}
at::Tensor slow_conv2d_forward(const Arguments<at::_ops::_slow_conv2d_forward>& args) {
  return plain("_slow_conv2d_forward", args);
}
at::Tensor slow_conv3d_forward(const Arguments<at::_ops::slow_conv3d_forward>& args) {
  return plain("slow_conv3d_forward", args);
}

// ATen's meta function has checked the arguments, and gives the result of one image a batch of one.
void slow_conv_transpose2d_out::impl(
    const at::Tensor& self,
    const at::Tensor& weight,
    at::IntArrayRef,
    at::OptionalTensorRef bias,
    at::IntArrayRef stride,
    at::IntArrayRef padding,
    at::IntArrayRef output_padding,
    at::IntArrayRef dilation,
    const at::Tensor& out) {
  const std::optional<at::Tensor> shift = bias.has_value() ? std::make_optional(*bias) : std::nullopt;
  out.copy_(convolved(self, weight, shift, {stride, padding, dilation, true, output_padding}));
}

at::Tensor slow_conv_transpose3d(const Arguments<at::_ops::slow_conv_transpose3d>& args) {
  constexpr const char* op = "slow_conv_transpose3d";
  TORCH_CHECK(
      args.self.dim() == 4 || args.self.dim() == 5, op,
      ": non-empty 4D or 5D (batch mode) tensor expected for input, but got: ", args.self.sizes());
  return convolved(
      args.self, kernel_of(op, args.weight, args.kernel_size), args.bias,
      {args.stride, args.padding, args.dilation, true, args.output_padding});
}

std::tuple<at::Tensor, at::Tensor, at::Tensor> slow_conv2d_backward(
    const Arguments<at::_ops::_slow_conv2d_backward_output_mask>& args) {
  constexpr const char* op = "_slow_conv2d_backward";
  check_batch(op, args.self, args.kernel_size);
  auto [grad_input, grad_weight, grad_bias] = native::convolution_backward(
      {args.grad_output,
       args.self,
       kernel_of(op, args.weight, args.kernel_size),
       args.stride,
       args.padding,
       {1, 1},
       false,
       {0, 0},
       1,
       args.output_mask});
  return {
      std::move(grad_input), grad_weight.defined() ? grad_weight.reshape(args.weight.sizes()) : grad_weight,
      std::move(grad_bias)};
}

std::tuple<at::Tensor&, at::Tensor&, at::Tensor&> slow_conv2d_backward_out(
    const Arguments<at::_ops::_slow_conv2d_backward_grad_input>& args) {
  const std::array<at::Tensor*, 3> given{&args.grad_input, &args.grad_weight, &args.grad_bias};
  const auto [input, kernel, bias] = native::slow_conv2d_backward(
      {args.grad_output,
       args.self,
       args.weight,
       args.kernel_size,
       args.stride,
       args.padding,
       {given[0]->defined(), given[1]->defined(), given[2]->defined()}});
  const std::array<at::Tensor, 3> results{input, kernel, bias};
  for (size_t i = 0; i < given.size(); i++) {
    if (!given[i]->defined()) continue;
    at::native::resize_output(*given[i], results[i].sizes());
    given[i]->copy_(results[i]);
  }
  return {args.grad_input, args.grad_weight, args.grad_bias};
}

} // namespace torch_opencl::native
