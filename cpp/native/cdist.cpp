// Distances between the points of two lists, composed of ATen's functions: those that a matmul does not compute.
#include "native_entries.h"

#include <ATen/ExpandUtils.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/linalg_vector_norm.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros.h>
#include <algorithm>
#include <cmath>
#include <vector>

#include "../compat.h"

namespace torch_opencl::native {
namespace {

// Coordinate differences that are in memory at a time, so that lists of many points do not need the square of it.
constexpr int64_t kMostDifferences = int64_t{1} << 24;

void check_points(const char* name, const at::Tensor& points) {
  TORCH_CHECK(points.dim() >= 2, "cdist only supports at least 2D tensors, ", name, " got: ", points.dim(), "D");
  TORCH_CHECK(
      at::isFloatingType(points.scalar_type()), "cdist only supports floating-point dtypes, ", name,
      " got: ", points.scalar_type());
}

// The batch dimensions of both lists, followed by `sizes`.
at::DimVector batched(const at::Tensor& x1, const at::Tensor& x2, std::initializer_list<int64_t> sizes) {
  const auto batch_of = [](const at::Tensor& x) { return x.sizes().slice(0, static_cast<size_t>(x.dim() - 2)); };
  at::DimVector all = at::infer_size_dimvector(batch_of(x1), batch_of(x2));
  all.append(sizes.begin(), sizes.end());
  return all;
}

// Calls `compute` with parts of x1's points, of shape [..., points, 1, dims] less x2's [..., 1, points, dims], and with
// the first point and the number of points of a part. Joins the results along the points.
template <class Compute>
at::Tensor by_parts(const at::Tensor& x1, const at::Tensor& x2, Compute&& compute) {
  const int64_t points = x1.size(-2);
  const int64_t per_point = c10::multiply_integers(batched(x1, x2, {x2.size(-2), x2.size(-1)}));
  const int64_t most = std::max<int64_t>(kMostDifferences / std::max<int64_t>(per_point, 1), 1);
  std::vector<at::Tensor> parts;
  for (int64_t first = 0; first < points; first += most) {
    const int64_t count = std::min(most, points - first);
    parts.push_back(compute(x1.narrow(-2, first, count).unsqueeze(-2) - x2.unsqueeze(-3), first, count));
  }
  return parts.size() == 1 ? parts[0] : at::cat(parts, -2);
}

} // namespace

at::Tensor cdist_forward(
    const at::Tensor& x1, const at::Tensor& x2, double p, std::optional<int64_t> /*compute_mode*/) {
  check_points("X1", x1);
  check_points("X2", x2);
  TORCH_CHECK(
      x1.size(-1) == x2.size(-1), "X1 and X2 must have the same number of columns. X1: ", x1.size(-1),
      " X2: ", x2.size(-1));
  TORCH_CHECK(p >= 0, "cdist only supports non-negative p values");
  const at::DimVector sizes = batched(x1, x2, {x1.size(-2), x2.size(-2)});
  if (c10::multiply_integers(sizes) == 0 || x1.size(-1) == 0) return at::zeros(sizes, x1.options());
  return by_parts(x1, x2, [&](const at::Tensor& difference, int64_t, int64_t) {
    return at::linalg_vector_norm(difference, p, -1);
  });
}

// The gradient of x1: of each distance, the derivative of the norm by the difference.
at::Tensor cdist_backward(
    const at::Tensor& grad, const at::Tensor& x1, const at::Tensor& x2, double p, const at::Tensor& cdist) {
  const at::DimVector sizes = batched(x1, x2, {x1.size(-2), x1.size(-1)});
  if (p == 0 || c10::multiply_integers(sizes) == 0 || x2.size(-2) == 0) return at::zeros(sizes, x1.options());
  return by_parts(x1, x2, [&](const at::Tensor& difference, int64_t first, int64_t count) {
    const at::Tensor upstream = grad.narrow(-2, first, count).unsqueeze(-1);
    const at::Tensor distance = cdist.narrow(-2, first, count).unsqueeze(-1);
    if (p == 1) return (upstream * difference.sign()).sum(-2);
    if (std::isinf(p)) {
      return (upstream * difference.sign()).masked_fill_(difference.abs().ne(distance), 0).sum(-2);
    }
    // Points that coincide in all coordinates, or for p < 1 in one, have a subgradient of 0 there.
    at::Tensor slope = p == 2 ? difference : difference.sign() * difference.abs().pow(p - 1);
    if (p < 1) slope.masked_fill_(difference.eq(0), 0);
    const at::Tensor weight = (upstream / (p == 2 ? distance : distance.pow(p - 1))).masked_fill_(distance.eq(0), 0);
    return (weight * slope).sum(-2);
  });
}

} // namespace torch_opencl::native

// Distances where ATen's own function refuses tensors of this device: in 2.11, not since.
#if !TORCH_OPENCL_TORCH_AT_LEAST(12)

#include <ATen/ops/_cdist_forward.h>
#include <ATen/ops/_euclidean_dist.h>

#include "composite.h"

namespace torch_opencl::native {
namespace {

// PyTorch's choice: distances of many points are computed by a matmul, those of few one by one.
at::Tensor cdist(const at::Tensor& x1, const at::Tensor& x2, double p, std::optional<int64_t> compute_mode) {
  const int64_t mode = compute_mode.value_or(0);
  const bool has_points = x1.dim() >= 2 && x2.dim() >= 2 && x1.size(-1) == x2.size(-1) && x1.numel() > 0 &&
      x2.numel() > 0 && at::isFloatingType(x1.scalar_type()) && at::isFloatingType(x2.scalar_type());
  const bool by_product = has_points && p == 2 && (mode == 1 || (mode == 0 && (x1.size(-2) > 25 || x2.size(-2) > 25)));
  // Which also refuses what is no list of points.
  if (!by_product) return at::_cdist_forward(x1, x2, p, compute_mode);
  const auto batch = at::infer_size_dimvector(
      x1.sizes().slice(0, static_cast<size_t>(x1.dim() - 2)), x2.sizes().slice(0, static_cast<size_t>(x2.dim() - 2)));
  const auto expanded = [&](const at::Tensor& points) {
    std::vector<int64_t> sizes(batch.begin(), batch.end());
    sizes.insert(sizes.end(), {points.size(-2), points.size(-1)});
    return points.expand(sizes);
  };
  return at::_euclidean_dist(expanded(x1), expanded(x2));
}

void register_all(torch::Library& m) {
  m.impl("cdist", TORCH_FN(cdist));
}

TORCH_OPENCL_COMPOSITES(register_all);

} // namespace
} // namespace torch_opencl::native

#endif
