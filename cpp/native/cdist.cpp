// Distances where ATen's own function refuses tensors of this device: in 2.11, not since.
#include "../compat.h"

#if !TORCH_OPENCL_TORCH_AT_LEAST(12)

#include <ATen/ExpandUtils.h>
#include <ATen/ops/_cdist_forward.h>
#include <ATen/ops/_euclidean_dist.h>
#include <vector>

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
