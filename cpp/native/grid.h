// Interpolation at the places that a grid names.
#pragma once

#include <ATen/core/Tensor.h>
#include <array>
#include <tuple>

namespace torch_opencl::native {

at::Tensor grid_sampler_2d(
    const at::Tensor& input, const at::Tensor& grid, int64_t interpolation, int64_t padding, bool align_corners);
at::Tensor grid_sampler_3d(
    const at::Tensor& input, const at::Tensor& grid, int64_t interpolation, int64_t padding, bool align_corners);
// Of both numbers of dimensions.
std::tuple<at::Tensor, at::Tensor> grid_sampler_backward(
    const at::Tensor& grad_output,
    const at::Tensor& input,
    const at::Tensor& grid,
    int64_t interpolation,
    int64_t padding,
    bool align_corners,
    std::array<bool, 2> output_mask);

} // namespace torch_opencl::native
