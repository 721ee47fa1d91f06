#include "native/resample.h"

#include <ATen/native/Resize.h>
#include <ATen/native/UpSample.h>

#include "entries/resample.h"
#include "native/contiguous.h"
#include "runtime/compat.h"
#include "runtime/error.h"
#include "runtime/tensor_arg.h"

namespace torch_opencl::native {
namespace {

using Steps = c10::SmallVector<bridge::ResampleStep, 3>;

void resample(const at::Tensor& output, const at::Tensor& input, const Steps& steps, bool transposed) {
  const rust::Slice<const bridge::ResampleStep> slice(steps.data(), steps.size());
  const at::Tensor source = repeated_in_batches_only(input, output.suggest_memory_format());
  checked([&] { bridge::resample(arg(output), arg(source), slice, transposed); });
}

// The step of ATen's nearest interpolation of images, where it looks at the sizes and not at the scale it is given.
std::optional<double> step_of_sizes(int64_t from, int64_t to) {
  if (to == from) return 1.0;
  if (to == 2 * from) return 0.5;
  return std::nullopt;
}

// The steps from the grid of `coarse` to that of `fine`.
Steps upsample_steps(
    ResampleRule rule, const at::Tensor& coarse, const at::Tensor& fine, const UpsampleArguments& arguments) {
  Steps steps;
  int64_t dim = 2;
  for (const std::optional<double>& scale : arguments.scales) {
    const int64_t from = coarse.size(dim), to = fine.size(dim);
    const bool is_image = rule == ResampleRule::Nearest && arguments.scales.size() == 2;
    const std::optional<double> step = is_image ? step_of_sizes(from, to) : std::nullopt;
    const double scaled = at::native::area_pixel_compute_scale<double>(from, to, arguments.align_corners, scale);
    steps.push_back({rule, arguments.align_corners, step.value_or(scaled), /*shift=*/0});
    dim++;
  }
  return steps;
}

// ATen lists padding from the innermost dimension on, before and after each.
Steps pad_steps(ResampleRule rule, at::IntArrayRef padding) {
  Steps steps;
  for (size_t i = padding.size(); i > 0; i -= 2) {
    steps.push_back({rule, /*align_corners=*/false, /*scale=*/1.0, padding[i - 2]});
  }
  return steps;
}

at::DimVector padded_sizes(const at::Tensor& self, at::IntArrayRef padding) {
  at::DimVector sizes(self.sizes());
  for (size_t i = 0; i < padding.size() / 2; i++) {
    sizes[sizes.size() - 1 - i] += padding[2 * i] + padding[2 * i + 1];
  }
  return sizes;
}

at::Tensor& pad_backward_out(
    ResampleRule rule,
    const at::Tensor& grad_output,
    const at::Tensor& self,
    at::IntArrayRef padding,
    at::Tensor& out) {
  TORCH_CHECK(
      grad_output.sizes() == padded_sizes(self, padding), "padding backward: expected a gradient of sizes ",
      at::IntArrayRef(padded_sizes(self, padding)), ", but got ", grad_output.sizes());
  at::native::resize_output(out, self.sizes());
  native::pad_backward(rule, grad_output, padding, out);
  return out;
}

// Bytes between neighbours of a dimension of a dense image.
int64_t inner_bytes(const at::Tensor& image, int64_t dim, at::MemoryFormat format) {
  int64_t bytes = format == at::MemoryFormat::ChannelsLast ? image.size(1) : 1;
  for (int64_t inner = dim + 1; inner < image.dim(); inner++) bytes *= image.size(inner);
  return bytes;
}

// Images of bytes are rounded after each dimension, from the innermost one on, as by ATen's kernels for the CPU.
void upsample_bytes(const at::Tensor& self, const Steps& steps, const at::Tensor& output) {
  const at::MemoryFormat format = output.suggest_memory_format();
  at::Tensor image = self.contiguous(format);
  at::DimVector sizes(self.sizes());
  for (int64_t dim = self.dim() - 1; dim >= 2; dim--) {
    const int64_t coarse = sizes[dim], fine = output.size(dim);
    if (coarse == fine) continue;
    sizes[dim] = fine;
    const bool is_last = output.sizes() == sizes && output.is_contiguous(format);
    const at::Tensor result = is_last ? output : at::empty(sizes, image.options().memory_format(format));
    const int64_t inner = inner_bytes(image, dim, format);
    checked([&] { bridge::resample_bytes(arg(result), arg(image), steps[dim - 2], coarse, fine, inner); });
    image = result;
  }
  if (!image.is_same(output)) output.copy_(image);
}

} // namespace

void upsample(ResampleRule rule, const at::Tensor& self, const UpsampleArguments& arguments) {
  const bool interpolates = rule != ResampleRule::Nearest && rule != ResampleRule::NearestExact;
  if (interpolates && self.scalar_type() == at::kByte)
    return upsample_bytes(self, upsample_steps(rule, self, arguments.output, arguments), arguments.output);
  resample(arguments.output, self, upsample_steps(rule, self, arguments.output, arguments), /*transposed=*/false);
}

void upsample_backward(ResampleRule rule, const at::Tensor& grad_output, const UpsampleArguments& arguments) {
  const at::Tensor& grad_input = arguments.output;
  resample(grad_input, grad_output, upsample_steps(rule, grad_input, grad_output, arguments), /*transposed=*/true);
}

void pad(ResampleRule rule, const at::Tensor& self, at::IntArrayRef padding, const at::Tensor& output) {
  resample(output, self, pad_steps(rule, padding), /*transposed=*/false);
}

void pad_backward(
    ResampleRule rule, const at::Tensor& grad_output, at::IntArrayRef padding, const at::Tensor& grad_input) {
  resample(grad_input, grad_output, pad_steps(rule, padding), /*transposed=*/true);
}

// Ops that have no structured form in ATen.
at::Tensor& reflection_pad2d_out(const at::Tensor& self, at::IntArrayRef padding, at::Tensor& out) {
  compat::check_padded_input<2>(self, padding);
  for (int64_t i = 0; i < 4; i++) {
    const int64_t dim = i < 2 ? -1 : -2;
    TORCH_CHECK(
        padding[i] < self.size(dim),
        "Padding size should be less than the corresponding input dimension, but got: padding (", padding,
        ") for input of sizes ", self.sizes());
  }
  const at::DimVector sizes = padded_sizes(self, padding);
  TORCH_CHECK(
      sizes.end()[-1] >= 1 && sizes.end()[-2] >= 1, "reflection_pad2d: input of sizes ", self.sizes(),
      " is too small for padding ", padding);
  at::native::resize_output(out, sizes);
  native::pad(ResampleRule::Reflect, self, padding, out);
  return out;
}

at::Tensor& reflection_pad2d_backward_out(
    const at::Tensor& grad_output, const at::Tensor& self, at::IntArrayRef padding, at::Tensor& grad_input) {
  return pad_backward_out(ResampleRule::Reflect, grad_output, self, padding, grad_input);
}

at::Tensor& replication_pad_backward_out(
    const at::Tensor& grad_output, const at::Tensor& self, at::IntArrayRef padding, at::Tensor& grad_input) {
  return pad_backward_out(ResampleRule::Replicate, grad_output, self, padding, grad_input);
}

} // namespace torch_opencl::native
