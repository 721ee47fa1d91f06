#include "entries/pool.h"

#include <ATen/native/FractionalMaxPooling.h>
#include <ATen/ops/empty_like.h>

#include "native/contiguous.h"
#include "runtime/error.h"
#include "runtime/tensor_arg.h"
#include "torch_opencl/rust/ops/pool/fractional.rs.h"

namespace torch_opencl::native {
namespace {

// Merges the dimensions before the last `spatial` into one.
at::Tensor planes(const at::Tensor& tensor, size_t spatial) {
  const at::IntArrayRef last = tensor.sizes().slice(tensor.sizes().size() - spatial);
  at::DimVector sizes{tensor.numel() == 0 ? 0 : tensor.numel() / c10::multiply_integers(last)};
  sizes.append(last.begin(), last.end());
  return tensor.contiguous().view(sizes);
}

void forward(
    const at::Tensor& self,
    at::IntArrayRef kernel_size,
    const at::Tensor& random_samples,
    const at::Tensor& output,
    const at::Tensor& indices) {
  if (output.numel() == 0) return;
  const ContiguousOutput values(output), positions(indices);
  const size_t spatial = kernel_size.size();
  const at::Tensor input = planes(self, spatial), samples = random_samples.contiguous(),
                   out = planes(values.tensor(), spatial), index = planes(positions.tensor(), spatial);
  checked([&] { bridge::fractional_max_pool(arg(out), arg(index), arg(input), arg(samples), arg(kernel_size)); });
  values.finish();
  positions.finish();
}

// Each gradient goes to the element that its window took; windows overlap.
void backward(const at::Tensor& grad_output, const at::Tensor& indices, size_t spatial, const at::Tensor& result) {
  const ContiguousOutput grad_input(result);
  grad_input.tensor().zero_();
  if (result.numel() > 0 && grad_output.numel() > 0) {
    planes(grad_input.tensor(), spatial)
        .flatten(1)
        .scatter_add_(1, planes(indices, spatial).flatten(1), planes(grad_output, spatial).flatten(1));
  }
  grad_input.finish();
}

// The checks of the CPU's function. The structured variant for images has them in its meta function.
void check_pool3d_backward(const at::Tensor& grad_output, const at::Tensor& self, at::IntArrayRef output_size) {
  constexpr const char* kNames[] = {"time", "height", "width"};
  TORCH_CHECK(self.dim() == 4 || self.dim() == 5, "fractional_max_pool3d_backward(): Expected 4D or 5D input");
  TORCH_CHECK(
      output_size.size() == 3, "fractional_max_pool3d_backward_out_cpu_template(): output_size must either be a ",
      "single int or tuple of three Ints");
  TORCH_CHECK(grad_output.dim() == self.dim(), "fractional_max_pool3d_backward(): gradOutput dimensions unexpected");
  for (int64_t d = 0; d < 3; d++) {
    TORCH_CHECK(
        output_size[d] == grad_output.size(self.dim() - 3 + d), "fractional_max_pool3d_backward_out(): gradOutput ",
        kNames[d], " unexpected");
  }
}

} // namespace

void fractional_max_pool2d_out::impl(
    const at::Tensor& self,
    at::IntArrayRef kernel_size,
    at::IntArrayRef,
    const at::Tensor& random_samples,
    const at::Tensor& output,
    const at::Tensor& indices) {
  at::native::fractional_max_pool_check_shape<2>(self, random_samples);
  forward(self, kernel_size, random_samples, output, indices);
}

void fractional_max_pool3d_out::impl(
    const at::Tensor& self,
    at::IntArrayRef kernel_size,
    at::IntArrayRef,
    const at::Tensor& random_samples,
    const at::Tensor& output,
    const at::Tensor& indices) {
  at::native::fractional_max_pool_check_shape<3>(self, random_samples);
  forward(self, kernel_size, random_samples, output, indices);
}

void fractional_max_pool2d_backward_out::impl(
    const at::Tensor& grad_output,
    const at::Tensor&,
    at::IntArrayRef,
    at::IntArrayRef,
    const at::Tensor& indices,
    const at::Tensor& grad_input) {
  backward(grad_output, indices, 2, grad_input);
}

at::Tensor fractional_max_pool3d_backward(
    const at::Tensor& grad_output,
    const at::Tensor& self,
    at::IntArrayRef,
    at::IntArrayRef output_size,
    const at::Tensor& indices) {
  check_pool3d_backward(grad_output, self, output_size);
  at::Tensor grad_input = at::empty_like(self, at::MemoryFormat::Contiguous);
  backward(grad_output, indices, 3, grad_input);
  return grad_input;
}

} // namespace torch_opencl::native
