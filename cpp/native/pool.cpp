#include "native/pool.h"

#include <ATen/Context.h>
#include <ATen/native/AdaptivePooling.h>
#include <ATen/native/CPUFallback.h>
#include <ATen/native/Pool.h>
#include <ATen/native/Resize.h>
#include <ATen/ops/_adaptive_avg_pool2d.h>
#include <ATen/ops/avg_pool2d.h>
#include <ATen/ops/avg_pool3d.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/zeros.h>

#include "dispatch/fallback.h"
#include "entries/index.h"
#include "entries/pool.h"
#include "native/contiguous.h"
#include "runtime/bridge.h"
#include "runtime/error.h"
#include "runtime/tensor_arg.h"
#include "torch_opencl/rust/ops/pool/mod.rs.h"

namespace torch_opencl::native {
namespace {

// One value for each spatial dimension, from the one or all that the caller gave.
at::DimVector each(at::IntArrayRef list, int64_t spatial) {
  return list.size() == 1 ? at::DimVector(spatial, list[0]) : at::DimVector(list);
}

bridge::Pool args_of(const PoolWindows& windows) {
  const auto& [spatial, kernel_size, stride, padding, dilation] = windows;
  return {static_cast<size_t>(spatial), arg(kernel_size), arg(stride), arg(padding), arg(dilation)};
}

// Sizes of the pooled tensor: those of `self` with other spatial ones.
at::DimVector pooled_sizes(const at::Tensor& self, at::IntArrayRef spatial_sizes) {
  at::DimVector sizes(self.sizes().slice(0, self.dim() - spatial_sizes.size()));
  sizes.append(spatial_sizes.begin(), spatial_sizes.end());
  return sizes;
}

void check_adaptive(const at::Tensor& self, at::IntArrayRef output_size, int64_t spatial) {
  TORCH_CHECK(
      static_cast<int64_t>(output_size.size()) == spatial, "adaptive_avg_pool", spatial, "d: output_size must be ",
      spatial);
  TORCH_CHECK(
      self.dim() == spatial + 1 || self.dim() == spatial + 2, "adaptive_avg_pool", spatial, "d(): Expected ",
      spatial + 1, "D or ", spatial + 2, "D tensor, but got ", self.sizes());
  TORCH_CHECK(
      output_size.end() == std::find_if(output_size.begin(), output_size.end(), [](int64_t size) { return size < 0; }),
      "adaptive_avg_pool", spatial, "d: elements of output_size must be greater than or equal to 0 but received ",
      output_size);
  for (int64_t d = self.dim() - spatial; d < self.dim(); d++) {
    TORCH_CHECK(
        self.size(d) > 0, "adaptive_avg_pool", spatial,
        "d(): Expected input to have non-zero size for non-batch dimensions, but input has sizes ", self.sizes(),
        " with dimension ", d, " being empty");
  }
}

// The memory format of a result: volumes are contiguous, as in ATen. Planes without a batch have three dimensions, and
// so have no channels_last format, whatever their strides.
at::MemoryFormat format_of(const at::Tensor& self, int64_t spatial) {
  return spatial == 2 && self.dim() == 4 ? self.suggest_memory_format() : at::MemoryFormat::Contiguous;
}

at::Tensor adaptive_average(const at::Tensor& self, at::IntArrayRef output_size, int64_t spatial) {
  check_adaptive(self, output_size, spatial);
  at::Tensor output =
      at::empty(pooled_sizes(self, output_size), self.options().memory_format(format_of(self, spatial)));
  avg_pool(PoolWindows(spatial), self, output);
  return output;
}

at::Tensor& adaptive_average_out(
    const at::Tensor& self, at::IntArrayRef output_size, int64_t spatial, at::Tensor& out) {
  check_adaptive(self, output_size, spatial);
  at::native::resize_output(out, pooled_sizes(self, output_size));
  avg_pool(PoolWindows(spatial), self, out);
  return out;
}

at::Tensor adaptive_average_backward(const at::Tensor& grad_output, const at::Tensor& self, int64_t spatial) {
  at::native::adaptive_pool_empty_output_check(grad_output, "adaptive_avg_pool_backward");
  at::Tensor grad_input = at::empty_like(self, format_of(self, spatial));
  avg_pool_backward(PoolWindows(spatial), grad_output, grad_input);
  return grad_input;
}

// Puts each element at its index in the plane it came from, of sizes `output_size`.
at::Tensor unpooled(const at::Tensor& self, const at::Tensor& indices, at::IntArrayRef output_size) {
  const auto spatial = static_cast<int64_t>(output_size.size());
  // If several elements have the same index, any of them may be kept.
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

PoolWindows::PoolWindows(
    int64_t spatial,
    at::IntArrayRef kernel_size,
    at::IntArrayRef stride,
    at::IntArrayRef padding,
    at::IntArrayRef dilation)
    : spatial(spatial),
      kernel_size(each(kernel_size, spatial)),
      stride(each(stride.empty() ? kernel_size : stride, spatial)),
      padding(each(padding, spatial)),
      dilation(each(dilation, spatial)) {}

void max_pool(const PoolWindows& windows, const at::Tensor& self, const at::Tensor& output, const at::Tensor& indices) {
  checked([&] { bridge::max_pool(args_of(windows), arg(output), arg(indices), arg(self)); });
}

void max_pool_backward(
    const PoolWindows& windows,
    const at::Tensor& grad_output,
    const at::Tensor& indices,
    const at::Tensor& grad_input) {
  const at::Tensor gradient = repeated_in_batches_only(grad_output, grad_input.suggest_memory_format());
  checked([&] { bridge::max_pool_backward(args_of(windows), arg(grad_input), arg(gradient), arg(indices)); });
}

// On CPUs, kernels use one lane for each channel: a local_response_norm of [4, 16, 128, 128], whose channels are a
// spatial dimension, takes 137 ms with them, and 44 ms with ATen's CPU function (PoCL, 2 cores).
bool has_few_planes(const at::Tensor& self, int64_t spatial) {
  const int64_t planes = c10::multiply_integers(self.sizes().slice(0, static_cast<size_t>(self.dim() - spatial)));
  return cpu_policy::has_few_lanes(self, self.numel(), planes);
}

void avg_pool(
    const PoolWindows& windows, const at::Tensor& self, const at::Tensor& output, const bridge::Divisor& divisor) {
  checked([&] { bridge::avg_pool(args_of(windows), arg(output), arg(self), divisor); });
}

void avg_pool_backward(
    const PoolWindows& windows,
    const at::Tensor& grad_output,
    const at::Tensor& grad_input,
    const bridge::Divisor& divisor) {
  const at::Tensor gradient = repeated_in_batches_only(grad_output, grad_input.suggest_memory_format());
  checked([&] { bridge::avg_pool_backward(args_of(windows), arg(grad_input), arg(gradient), divisor); });
}

// Ops that are not structured in ATen.
std::tuple<at::Tensor, at::Tensor> max_pool3d_with_indices(
    const at::Tensor& self,
    at::IntArrayRef kernel_size,
    at::IntArrayRef stride,
    at::IntArrayRef padding,
    at::IntArrayRef dilation,
    bool ceil_mode) {
  constexpr int64_t kSpatial = 3;
  for (const auto& [name, list] :
       {std::pair{"kernel_size", kernel_size}, std::pair{"padding", padding}, std::pair{"dilation", dilation}}) {
    TORCH_CHECK(
        list.size() == 1 || list.size() == kSpatial, "max_pool3d: ", name,
        " must be either a single int, or a tuple of three ints");
  }
  TORCH_CHECK(
      stride.empty() || stride.size() == 1 || stride.size() == kSpatial,
      "max_pool3d: stride must be either omitted, a single int, or a tuple of three ints");
  TORCH_CHECK(
      self.dim() == 4 || self.dim() == 5, "max_pool3d: Expected 4D or 5D tensor for input, but got: ", self.sizes());
  const PoolWindows windows(kSpatial, kernel_size, stride, padding, dilation);
  const at::IntArrayRef in = self.sizes().slice(self.dim() - kSpatial);
  at::DimVector out;
  for (int64_t d = 0; d < kSpatial; d++) {
    out.push_back(
        at::native::pooling_output_shape<int64_t>(
            in[d], windows.kernel_size[d], windows.padding[d], windows.stride[d], windows.dilation[d], ceil_mode));
  }
  at::native::pool3d_shape_check(
      self, self.size(-4), windows.kernel_size[0], windows.kernel_size[1], windows.kernel_size[2], windows.stride[0],
      windows.stride[1], windows.stride[2], windows.padding[0], windows.padding[1], windows.padding[2],
      windows.dilation[0], windows.dilation[1], windows.dilation[2], in[0], in[1], in[2], out[0], out[1], out[2],
      "max_pool3d_with_indices()");
  // Only batches have memory formats; an image has the format of a batch of one, whatever the batch's stride.
  const bool is_image = self.dim() == kSpatial + 1;
  const at::Tensor batch = is_image ? self.unsqueeze(0) : self;
  const bool is_channels_last =
      is_image && !self.is_contiguous() && batch.is_contiguous(at::MemoryFormat::ChannelsLast3d);
  const auto format = is_channels_last ? at::MemoryFormat::ChannelsLast3d : batch.suggest_memory_format();
  at::Tensor output = at::empty(pooled_sizes(batch, out), self.options().memory_format(format));
  at::Tensor indices = at::empty_like(output, output.options().dtype(at::kLong));
  max_pool(windows, batch, output, indices);
  if (is_image) return {output.squeeze(0), indices.squeeze(0)};
  return {std::move(output), std::move(indices)};
}

at::Tensor max_pool3d_with_indices_backward(const Arguments<at::_ops::max_pool3d_with_indices_backward>& args) {
  TORCH_CHECK(
      args.grad_output.sizes() == args.indices.sizes(), "max_pool3d_with_indices_backward: gradient of sizes ",
      args.grad_output.sizes(), " for indices of sizes ", args.indices.sizes());
  at::Tensor grad_input = at::empty_like(args.self, args.self.suggest_memory_format());
  const PoolWindows windows(3, args.kernel_size, args.stride, args.padding, args.dilation);
  max_pool_backward(windows, args.grad_output, args.indices, grad_input);
  return grad_input;
}

at::Tensor adaptive_avg_pool2d(const at::Tensor& self, at::IntArrayRef output_size) {
  // Lanes for channels would gather from planes: 7 x 7 averages of 64 planes of 64 x 64 take 0.7 ms with them, and
  // 0.2 ms with ATen's CPU function (PoCL, 2 cores).
  if (self.is_contiguous() && cpu_policy::runs_on_cpu(CpuCalls::Large, self)) {
    return call_on_host<at::_ops::_adaptive_avg_pool2d>(self, output_size);
  }
  return adaptive_average(self, output_size, 2);
}
at::Tensor adaptive_avg_pool3d(const at::Tensor& self, at::IntArrayRef output_size) {
  return adaptive_average(self, output_size, 3);
}
at::Tensor& adaptive_avg_pool2d_out(const at::Tensor& self, at::IntArrayRef output_size, at::Tensor& out) {
  return adaptive_average_out(self, output_size, 2, out);
}
at::Tensor& adaptive_avg_pool3d_out(const at::Tensor& self, at::IntArrayRef output_size, at::Tensor& out) {
  return adaptive_average_out(self, output_size, 3, out);
}
at::Tensor adaptive_avg_pool2d_backward(const at::Tensor& grad_output, const at::Tensor& self) {
  return adaptive_average_backward(grad_output, self, 2);
}
at::Tensor adaptive_avg_pool3d_backward(const at::Tensor& grad_output, const at::Tensor& self) {
  return adaptive_average_backward(grad_output, self, 3);
}

at::Tensor& adaptive_avg_pool3d_backward_out(
    const at::Tensor& grad_output, const at::Tensor& self, at::Tensor& grad_input) {
  at::native::resize_output(grad_input, self.sizes());
  return grad_input.copy_(adaptive_average_backward(grad_output, self, 3));
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
