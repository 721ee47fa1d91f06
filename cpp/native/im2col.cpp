#include "entries/copy.h"

#include <ATen/OpMathType.h>
#include <ATen/WrapDimUtils.h>
#include <ATen/native/im2col_shape_check.h>
#include <ATen/ops/constant_pad_nd.h>
#include <ATen/ops/zeros.h>
#include <algorithm>

#include "../compat.h"

namespace torch_opencl::native {
namespace {

// The dtype for sums of elements that many windows share: 16-bit floats would be rounded each time.
at::TensorOptions sum_options(const at::Tensor& tensor) {
  return tensor.options().dtype(at::toOpMathType(tensor.scalar_type()));
}

// Parameters of the windows of an image: two values each, height first.
struct SlidingWindows {
  at::IntArrayRef kernel_size, dilation, padding, stride;

  void check_lengths(const char* op) const {
    for (const at::IntArrayRef list : {kernel_size, dilation, padding, stride}) {
      TORCH_CHECK(list.size() == 2, op, ": expected kernel_size, dilation, padding and stride of two values each");
    }
  }

  int64_t count(int64_t size, int64_t dim) const {
    return compat::window_count(size, padding[dim], dilation[dim], kernel_size[dim], stride[dim]);
  }

  // Every window of a padded batch of images: [N, C, kernel height, kernel width, rows, columns], without a copy.
  at::Tensor view(const at::Tensor& padded) const {
    const int64_t height = padded.size(2), width = padded.size(3), down = padded.stride(2), right = padded.stride(3);
    const auto fit = [&](int64_t size, int64_t dim) {
      return (size - dilation[dim] * (kernel_size[dim] - 1) - 1) / stride[dim] + 1;
    };
    return padded.as_strided(
        {padded.size(0), padded.size(1), kernel_size[0], kernel_size[1], fit(height, 0), fit(width, 1)},
        {padded.stride(0), padded.stride(1), down * dilation[0], right * dilation[1], down * stride[0],
         right * stride[1]});
  }
};

// A batch; one image becomes a batch of one.
at::Tensor batched(const at::Tensor& self, int64_t dims) {
  return self.dim() == dims ? self : self.unsqueeze(0);
}

at::Tensor columns_of(const at::Tensor& self, const SlidingWindows& windows) {
  windows.check_lengths("im2col");
  at::native::im2col_shape_check(
      self, at::Tensor(), windows.kernel_size[0], windows.kernel_size[1], windows.dilation[0], windows.dilation[1],
      windows.padding[0], windows.padding[1], windows.stride[0], windows.stride[1]);
  const at::Tensor images = batched(self, 4);
  const int64_t down = windows.padding[0], right = windows.padding[1];
  const at::Tensor padded = down == 0 && right == 0 ? images : at::constant_pad_nd(images, {right, right, down, down});
  const at::Tensor view = windows.view(padded);
  const at::Tensor columns =
      view.reshape({view.size(0), view.size(1) * view.size(2) * view.size(3), view.size(4) * view.size(5)});
  return self.dim() == 4 ? columns : columns.squeeze(0);
}

at::Tensor image_of(const at::Tensor& self, at::IntArrayRef output_size, const SlidingWindows& windows) {
  windows.check_lengths("col2im");
  TORCH_CHECK(output_size.size() == 2, "It is expected output_size equals to 2, but got size ", output_size.size());
  at::native::col2im_shape_check(
      self, at::Tensor(), output_size[0], output_size[1], windows.kernel_size[0], windows.kernel_size[1],
      windows.dilation[0], windows.dilation[1], windows.padding[0], windows.padding[1], windows.stride[0],
      windows.stride[1]);
  const at::Tensor columns = batched(self, 3);
  const int64_t down = windows.padding[0], right = windows.padding[1];
  const int64_t elements = windows.kernel_size[0] * windows.kernel_size[1];
  const int64_t channels = columns.size(1) / elements;
  const at::Tensor padded = at::zeros(
      {columns.size(0), channels, output_size[0] + 2 * down, output_size[1] + 2 * right}, sum_options(columns));
  const at::Tensor view = windows.view(padded);
  const at::Tensor blocks = columns.reshape(view.sizes());
  // Windows overlap, but the elements at one position of all windows do not.
  for (int64_t i = 0; i < windows.kernel_size[0]; i++) {
    for (int64_t j = 0; j < windows.kernel_size[1]; j++) {
      view.select(3, j).select(2, i).add_(blocks.select(3, j).select(2, i));
    }
  }
  const at::Tensor images = padded.narrow(2, down, output_size[0]).narrow(3, right, output_size[1]);
  return (self.dim() == 3 ? images : images.squeeze(0)).to(self.scalar_type()).contiguous();
}

} // namespace

at::Tensor im2col(
    const at::Tensor& self,
    at::IntArrayRef kernel_size,
    at::IntArrayRef dilation,
    at::IntArrayRef padding,
    at::IntArrayRef stride) {
  return columns_of(self, {kernel_size, dilation, padding, stride});
}

at::Tensor col2im(
    const at::Tensor& self,
    at::IntArrayRef output_size,
    at::IntArrayRef kernel_size,
    at::IntArrayRef dilation,
    at::IntArrayRef padding,
    at::IntArrayRef stride) {
  return image_of(self, output_size, {kernel_size, dilation, padding, stride});
}

void unfold_backward(at::Tensor& grad_in, const at::Tensor& grad, int64_t dim, int64_t size, int64_t step) {
  dim = at::maybe_wrap_dim(dim, grad_in.dim());
  // Windows overlap, but every `apart`-th ones do not: few launches, each over dense runs.
  const int64_t windows = grad.size(dim), apart = (size + step - 1) / step;
  const bool is_wide = at::toOpMathType(grad_in.scalar_type()) != grad_in.scalar_type() && apart > 1;
  const at::Tensor sum = is_wide ? grad_in.to(at::toOpMathType(grad_in.scalar_type())) : grad_in;
  for (int64_t first = 0; first < std::min(windows, apart); first++) {
    const int64_t last = first + (windows - 1 - first) / apart * apart;
    at::Tensor target = sum.slice(dim, first * step, last * step + size).unfold(dim, size, apart * step);
    target.add_(grad.slice(dim, first, last + 1, apart));
  }
  if (is_wide) grad_in.copy_(sum);
}

} // namespace torch_opencl::native
