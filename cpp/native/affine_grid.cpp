// Sampling positions of affine transforms.
#include "entries/composite.h"

#include <ATen/OpMathType.h>
#include <ATen/ops/addcmul.h>
#include <ATen/ops/affine_grid_generator_native.h>
#include <ATen/ops/linspace.h>

namespace torch_opencl::native {
namespace {

// Positions of `count` pixels between -1 and 1, which are the centres of the outermost ones if `align_corners`, and
// otherwise their outer edges.
at::Tensor pixel_positions(int64_t count, bool align_corners, const at::Tensor& theta, at::ScalarType dtype) {
  const double edge = count <= 1 ? 0 : align_corners ? 1 : static_cast<double>(count - 1) / static_cast<double>(count);
  return at::linspace(-edge, edge, count, theta.options()).to(dtype);
}

// A tensor of one dimension, along dimension `dim` of `dims`.
at::Tensor along(const at::Tensor& line, int64_t dim, int64_t dims) {
  at::DimVector sizes(static_cast<size_t>(dims), 1);
  sizes[static_cast<size_t>(dim)] = line.numel();
  return line.view(sizes);
}

} // namespace

// ATen multiplies positions, a tensor 1.5 times as large as the result, by theta. Here each spatial dimension adds its
// contribution to rows that hold all coordinates of all columns: one pass over the result.
at::Tensor affine_grid_generator(const at::Tensor& theta, at::IntArrayRef size, bool align_corners) {
  const int64_t spatial = static_cast<int64_t>(size.size()) - 2;
  const bool is_served = (spatial == 2 || spatial == 3) && c10::multiply_integers(size) > 0 &&
      theta.sizes() == at::IntArrayRef{size[0], spatial, spatial + 1};
  if (!is_served) return at::native::affine_grid_generator(theta, size, align_corners);
  const int64_t batch = size[0], columns = size.back(), row = columns * spatial;
  const at::ScalarType dtype = at::toOpMathType(theta.scalar_type());
  // Results of operators inherit the strides of their inputs, and the views below need row-major ones.
  const at::Tensor matrix = theta.to(dtype).contiguous();
  // The column of theta for a dimension, innermost first, or the translation, as [batch, 1, spatial].
  const auto coefficients = [&](int64_t i) { return matrix.select(2, i).unsqueeze(1); };
  const at::Tensor x = along(pixel_positions(columns, align_corners, theta, dtype), 1, 3);
  const int64_t dims = spatial + 1;
  at::DimVector row_sizes(static_cast<size_t>(dims), 1);
  row_sizes.front() = batch;
  row_sizes.back() = row;
  at::Tensor grid = at::addcmul(coefficients(spatial), coefficients(0), x).view(row_sizes);
  // The outermost dimension first, so that only the last sum has the size of the result.
  for (int64_t dim = 1; dim < spatial; dim++) {
    const at::Tensor step = coefficients(spatial - dim).expand({batch, columns, spatial}).reshape(row_sizes);
    const at::Tensor positions = pixel_positions(size[static_cast<size_t>(dim) + 1], align_corners, theta, dtype);
    grid = at::addcmul(grid, step, along(positions, dim, dims));
  }
  at::DimVector sizes(size);
  sizes.erase(sizes.begin() + 1);
  sizes.push_back(spatial);
  return grid.view(sizes).to(theta.scalar_type());
}

} // namespace torch_opencl::native
