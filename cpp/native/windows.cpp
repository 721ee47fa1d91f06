#include "native_entries.h"

#include <ATen/Context.h>
#include <ATen/native/im2col_shape_check.h>
#include <ATen/ops/constant_pad_nd.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>

#include "../compat.h"

namespace torch_opencl::native {
namespace {

// Parameters of the windows of an image: two values each, height first.
struct Windows {
  at::IntArrayRef kernel_size, dilation, padding, stride;

  void check_lengths(const char* op) const {
    for (const at::IntArrayRef list : {kernel_size, dilation, padding, stride}) {
      TORCH_CHECK(list.size() == 2, op, ": expected kernel_size, dilation, padding and stride of two numbers each");
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

at::Tensor columns_of(const at::Tensor& self, const Windows& windows) {
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

at::Tensor image_of(const at::Tensor& self, at::IntArrayRef output_size, const Windows& windows) {
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
  const at::Tensor padded =
      at::zeros({columns.size(0), channels, output_size[0] + 2 * down, output_size[1] + 2 * right}, columns.options());
  const at::Tensor view = windows.view(padded);
  const at::Tensor source = columns.reshape(view.sizes());
  // Windows overlap, but equal elements of all windows do not.
  for (int64_t i = 0; i < windows.kernel_size[0]; i++) {
    for (int64_t j = 0; j < windows.kernel_size[1]; j++) {
      view.select(3, j).select(2, i).add_(source.select(3, j).select(2, i));
    }
  }
  const at::Tensor images = padded.narrow(2, down, output_size[0]).narrow(3, right, output_size[1]);
  return (self.dim() == 3 ? images : images.squeeze(0)).contiguous();
}

// Puts each element at its index in the plane it came from, of sizes `output_size`.
at::Tensor unpooled(const at::Tensor& self, const at::Tensor& indices, at::IntArrayRef output_size) {
  const auto spatial = static_cast<int64_t>(output_size.size());
  // Of several elements for one index any may be kept.
  at::globalContext().alertNotDeterministic("max_unpooling" + std::to_string(spatial) + "d_forward_out");
  TORCH_CHECK(
      indices.scalar_type() == at::kLong, "elements in indices should be type int64 but got: ", indices.scalar_type());
  TORCH_CHECK(
      self.dim() == spatial + 1 || self.dim() == spatial + 2, "Input to max_unpooling", spatial, "d should be a ",
      spatial + 1, "d or ", spatial + 2, "d Tensor, but got a tensor with ", self.dim(), " dimensions.");
  TORCH_CHECK(
      self.sizes() == indices.sizes(), "Expected shape of indices to be: ", self.sizes(),
      " but got: ", indices.sizes());
  for (int64_t dim = 1; dim < self.dim(); dim++) {
    TORCH_CHECK(
        self.size(dim) > 0, "max_unpooling", spatial, "d(): Expected input to have non-zero size for non-batch ",
        "dimensions, but got ", self.sizes(), " with dimension ", dim, " being empty.");
  }
  at::DimVector sizes(self.sizes().slice(0, self.dim() - spatial));
  sizes.append(output_size.begin(), output_size.end());
  at::Tensor result = at::zeros(sizes, self.options());
  if (result.numel() > 0) result.flatten(-spatial).scatter_(-1, indices.flatten(-spatial), self.flatten(-spatial));
  return result;
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

at::Tensor max_unpool2d(const at::Tensor& self, const at::Tensor& indices, at::IntArrayRef output_size) {
  TORCH_CHECK(output_size.size() == 2, "There should be exactly two elements (height, width) in output_size");
  return unpooled(self, indices, output_size);
}

at::Tensor max_unpool3d(
    const at::Tensor& self,
    const at::Tensor& indices,
    at::IntArrayRef output_size,
    at::IntArrayRef stride,
    at::IntArrayRef padding) {
  TORCH_CHECK(output_size.size() == 3, "There should be exactly three elements (depth, height, width) in output_size");
  TORCH_CHECK(stride.size() == 3 && padding.size() == 3, "max_unpool3d: stride and padding must have three elements");
  return unpooled(self, indices, output_size);
}

} // namespace torch_opencl::native
