#include "entries/grid_sampler.h"

#include <ATen/Context.h>
#include <ATen/OpMathType.h>
#include <ATen/native/GridSamplerUtils.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>

#include "native/check.h"
#include "runtime/error.h"
#include "runtime/tensor_arg.h"
#include "torch_opencl/rust/ops/grid_sampler/mod.rs.h"

namespace torch_opencl::native {
namespace {

template <class Op>
bridge::GridSampler sampler(const Arguments<Op>& args) {
  return {static_cast<int32_t>(args.interpolation_mode), static_cast<int32_t>(args.padding_mode), args.align_corners};
}

// Sizes of the output: those of the grid, with the input's channels instead of the coordinates.
at::DimVector output_sizes(const at::Tensor& input, const at::Tensor& grid) {
  TORCH_CHECK(
      grid.scalar_type() == input.scalar_type(), "grid_sampler(): expected scalar type ", input.scalar_type(),
      " but found ", grid.scalar_type(), " for grid");
  at::DimVector sizes(grid.sizes().slice(0, grid.dim() - 1));
  sizes.insert(sizes.begin() + 1, input.size(1));
  return sizes;
}

template <class Op>
at::Tensor sample(const Arguments<Op>& args) {
  const at::Tensor &input = args.input, &grid = args.grid;
  at::Tensor output = at::empty(output_sizes(input, grid), input.options());
  checked([&] { bridge::grid_sample(sampler(args), arg(output), arg(input), arg(grid)); });
  return output;
}

// Sums in the kernels' compute dtype: in any order, as PyTorch's own GPU backend does, or channels-last, with channels
// padded to whole vectors.
at::Tensor input_gradient(
    const at::Tensor& grad_output, const at::Tensor& input, const at::Tensor& grid, const bridge::GridSampler& how) {
  const auto dtype = at::toOpMathType(input.scalar_type());
  at::Tensor grad_input = at::empty_like(input, at::MemoryFormat::Contiguous);
  if (grad_input.numel() == 0) return grad_input;
  if (grad_output.numel() == 0) return grad_input.zero_();
  if (!at::globalContext().deterministicAlgorithms() &&
      checked([&] { return bridge::grid_has_any_order(arg(grad_output)); })) {
    const at::Tensor sums = dtype == input.scalar_type() ? grad_input.zero_() : at::zeros_like(grad_input, dtype);
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

// For 2d and 3d inputs.
template <class Op>
Returns<Op> sample_backward(const Arguments<Op>& args) {
  const at::Tensor &grad_output = args.grad_output, &input = args.input, &grid = args.grid;
  const bridge::GridSampler how = sampler(args);
  TORCH_CHECK(
      input.dim() >= 4 && input.dim() <= 5 && grid.dim() == input.dim(),
      "grid_sampler_backward: expected input and grid of 4 or 5 dimensions, but got shapes ", input.sizes(), " and ",
      grid.sizes());
  check_sizes("grid_sampler_backward", "grad_output", grad_output, output_sizes(input, grid));
  check_dtype("grid_sampler_backward", "grad_output", grad_output, input.scalar_type());
  at::Tensor grad_input, grad_grid = at::empty_like(grid, at::MemoryFormat::Contiguous);
  if (args.output_mask[0]) grad_input = input_gradient(grad_output, input, grid, how);
  if (args.output_mask[1]) {
    if (input.numel() == 0) {
      grad_grid.zero_();
    } else {
      checked([&] { bridge::grid_sample_grid_gradient(how, arg(grad_grid), arg(grad_output), arg(input), arg(grid)); });
    }
  }
  return {std::move(grad_input), std::move(grad_grid)};
}

} // namespace

at::Tensor grid_sampler_2d(const Arguments<at::_ops::grid_sampler_2d>& args) {
  at::native::check_grid_sampler_common(args.input, args.grid);
  at::native::check_grid_sampler_2d(args.input, args.grid);
  return sample(args);
}

at::Tensor grid_sampler_3d(const Arguments<at::_ops::grid_sampler_3d>& args) {
  at::native::check_grid_sampler_common(args.input, args.grid);
  at::native::check_grid_sampler_3d(args.input, args.grid, args.interpolation_mode);
  return sample(args);
}

std::tuple<at::Tensor, at::Tensor> grid_sampler_backward(const Arguments<at::_ops::grid_sampler_2d_backward>& args) {
  return sample_backward(args);
}
std::tuple<at::Tensor, at::Tensor> grid_sampler_backward(const Arguments<at::_ops::grid_sampler_3d_backward>& args) {
  return sample_backward(args);
}

} // namespace torch_opencl::native
