#include "entries/grid_sampler.h"

#include <ATen/Context.h>
#include <ATen/OpMathType.h>
#include <ATen/native/GridSamplerUtils.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>

#include "../error.h"
#include "../tensor_arg.h"
#include "check.h"
#include "torch_opencl/rust/ops/grid_sampler/mod.rs.h"

namespace torch_opencl::native {
namespace {

bridge::GridSampler sampler(int64_t interpolation, int64_t padding, bool align_corners) {
  return {static_cast<int32_t>(interpolation), static_cast<int32_t>(padding), align_corners};
}

// Sizes of the output: those of the grid, with the input's channels where the grid has its coordinates.
at::DimVector output_sizes(const at::Tensor& input, const at::Tensor& grid) {
  TORCH_CHECK(
      grid.scalar_type() == input.scalar_type(), "grid_sampler(): expected scalar type ", input.scalar_type(),
      " but found ", grid.scalar_type(), " for grid");
  at::DimVector sizes(grid.sizes().slice(0, grid.dim() - 1));
  sizes.insert(sizes.begin() + 1, input.size(1));
  return sizes;
}

at::Tensor sample(const at::Tensor& input, const at::Tensor& grid, const bridge::GridSampler& how) {
  at::Tensor output = at::empty(output_sizes(input, grid), input.options());
  checked([&] { bridge::grid_sample(how, arg(output), arg(input), arg(grid)); });
  return output;
}

// Sums in the dtype that kernels compute in: in any order, as PyTorch's own GPU backend adds them, or with channels
// last and as many as fill whole vectors.
at::Tensor input_gradient(
    const at::Tensor& grad_output, const at::Tensor& input, const at::Tensor& grid, const bridge::GridSampler& how) {
  const auto dtype = at::toOpMathType(input.scalar_type());
  at::Tensor grad_input = at::empty_like(input);
  if (grad_input.numel() == 0) return grad_input;
  if (grad_output.numel() == 0) return grad_input.zero_();
  if (!at::globalContext().deterministicAlgorithms() &&
      checked([&] { return bridge::grid_has_any_order(arg(grad_output)); })) {
    const at::Tensor sums = dtype == input.scalar_type() ? grad_input.zero_() : at::zeros_like(input, dtype);
    checked([&] { bridge::grid_sample_input_gradient_in_any_order(how, arg(sums), arg(grad_output), arg(grid)); });
    return sums.to(input.scalar_type());
  }
  at::DimVector sizes(input.sizes());
  sizes.erase(sizes.begin() + 1);
  sizes.push_back(checked([&] { return bridge::grid_padded_channels(arg(grad_output)); }));
  const at::Tensor sums = at::zeros(sizes, input.options().dtype(dtype));
  checked([&] { bridge::grid_sample_input_gradient(how, arg(sums), arg(grad_output), arg(grid)); });
  return grad_input.copy_(sums.narrow(-1, 0, input.size(1)).movedim(-1, 1));
}

} // namespace

at::Tensor grid_sampler_2d(
    const at::Tensor& input, const at::Tensor& grid, int64_t interpolation, int64_t padding, bool align_corners) {
  at::native::check_grid_sampler_common(input, grid);
  at::native::check_grid_sampler_2d(input, grid);
  return sample(input, grid, sampler(interpolation, padding, align_corners));
}

at::Tensor grid_sampler_3d(
    const at::Tensor& input, const at::Tensor& grid, int64_t interpolation, int64_t padding, bool align_corners) {
  at::native::check_grid_sampler_common(input, grid);
  at::native::check_grid_sampler_3d(input, grid, interpolation);
  return sample(input, grid, sampler(interpolation, padding, align_corners));
}

// Of planes and volumes.
std::tuple<at::Tensor, at::Tensor> grid_sampler_backward(
    const at::Tensor& grad_output,
    const at::Tensor& input,
    const at::Tensor& grid,
    int64_t interpolation,
    int64_t padding,
    bool align_corners,
    std::array<bool, 2> output_mask) {
  const bridge::GridSampler how = sampler(interpolation, padding, align_corners);
  TORCH_CHECK(
      input.dim() >= 4 && input.dim() <= 5 && grid.dim() == input.dim(),
      "grid_sampler_backward: expected input and grid of 4 or 5 dimensions, but got shapes ", input.sizes(), " and ",
      grid.sizes());
  check_sizes("grid_sampler_backward", "grad_output", grad_output, output_sizes(input, grid));
  check_dtype("grid_sampler_backward", "grad_output", grad_output, input.scalar_type());
  at::Tensor grad_input, grad_grid = at::empty_like(grid, at::MemoryFormat::Contiguous);
  if (output_mask[0]) grad_input = input_gradient(grad_output, input, grid, how);
  if (output_mask[1]) {
    if (input.numel() == 0) {
      grad_grid.zero_();
    } else {
      checked([&] { bridge::grid_sample_grid_gradient(how, arg(grad_grid), arg(grad_output), arg(input), arg(grid)); });
    }
  }
  return {std::move(grad_input), std::move(grad_grid)};
}

} // namespace torch_opencl::native
