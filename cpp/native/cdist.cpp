// Distances between the points of two lists, composed of ATen's functions: those that a matmul does not compute.
#include "entries/composite.h"

#include <ATen/ExpandUtils.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/_cdist_backward.h>
#include <ATen/ops/_cdist_forward.h>
#include <ATen/ops/_pdist_backward.h>
#include <ATen/ops/_pdist_forward.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/linalg_vector_norm.h>
#include <ATen/ops/triu_indices.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>
#include <algorithm>
#include <cmath>
#include <vector>

#include "cpu/cpu_call.h"
#include "native/check.h"
#include "runtime/compat.h"
#include "runtime/error.h"

namespace torch_opencl::native {
namespace {

// Most coordinate differences in memory at a time: those of all pairs would need memory quadratic in the points.
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

// Raises if ATen's own function does.
void check_lists(const at::Tensor& x1, const at::Tensor& x2, double p) {
  check_points("X1", x1);
  check_points("X2", x2);
  check_dtype("cdist", "X2", x2, x1.scalar_type());
  TORCH_CHECK(
      x1.size(-1) == x2.size(-1), "X1 and X2 must have the same number of columns. X1: ", x1.size(-1),
      " X2: ", x2.size(-1));
  TORCH_CHECK(p >= 0, "cdist only supports non-negative p values");
}

// Some points of each list.
struct Part {
  at::Tensor x1, x2; // their points
  at::Tensor of(const at::Tensor& distances) const {
    return distances.narrow(-2, first1, x1.size(-2)).narrow(-1, first2, x2.size(-2));
  }
  // [..., points of x1, points of x2, coordinates]
  at::Tensor difference() const {
    return x1.unsqueeze(-2) - x2.unsqueeze(-3);
  }
  int64_t first1, first2; // where they begin
};

// Calls `compute` with parts that have kMostDifferences coordinates, or one point of each list.
template <class Compute>
void by_parts(const at::Tensor& x1, const at::Tensor& x2, Compute&& compute) {
  const int64_t pair = std::max<int64_t>(c10::multiply_integers(batched(x1, x2, {x1.size(-1)})), 1);
  const int64_t most2 = std::clamp<int64_t>(kMostDifferences / pair, 1, x2.size(-2));
  const int64_t most1 = std::clamp<int64_t>(kMostDifferences / (pair * most2), 1, x1.size(-2));
  for (int64_t first1 = 0; first1 < x1.size(-2); first1 += most1) {
    for (int64_t first2 = 0; first2 < x2.size(-2); first2 += most2) {
      compute(
          Part{
              x1.narrow(-2, first1, std::min(most1, x1.size(-2) - first1)),
              x2.narrow(-2, first2, std::min(most2, x2.size(-2) - first2)), first1, first2});
    }
  }
}

} // namespace

at::Tensor cdist_forward(const at::Tensor& x1, const at::Tensor& x2, double p, std::optional<int64_t> compute_mode) {
  check_lists(x1, x2, p);
  // The CPU's function computes distances in one pass over memory, which CPU devices share: 1000 and 1000 points of 64
  // coordinates take 9 ms for p = 1, and 29 ms as composed here (PoCL, 2 cores).
  if (cpu_policy::runs_on_cpu(CpuCalls::Always, x1))
    return call_on_host<at::_ops::_cdist_forward>(x1, x2, p, compute_mode);
  const at::DimVector sizes = batched(x1, x2, {x1.size(-2), x2.size(-2)});
  at::Tensor out = at::zeros(sizes, x1.options());
  if (out.numel() == 0 || x1.size(-1) == 0) return out;
  by_parts(x1, x2, [&](const Part& part) { part.of(out).copy_(at::linalg_vector_norm(part.difference(), p, -1)); });
  return out;
}

// The gradient of x1: for each distance, the derivative of the norm by the difference. For a NaN coordinate it is 0 if
// p is 1 or infinity, whose derivative is a sign.
at::Tensor cdist_backward(
    const at::Tensor& grad, const at::Tensor& x1, const at::Tensor& x2, double p, const at::Tensor& cdist) {
  check_lists(x1, x2, p);
  const at::DimVector distances = batched(x1, x2, {x1.size(-2), x2.size(-2)});
  check_sizes("_cdist_backward", "grad", grad, distances);
  check_sizes("_cdist_backward", "cdist", cdist, distances);
  if (cpu_policy::runs_on_cpu(CpuCalls::Always, x1))
    return call_on_host<at::_ops::_cdist_backward>(grad, x1, x2, p, cdist);
  at::Tensor result = at::zeros(batched(x1, x2, {x1.size(-2), x1.size(-1)}), x1.options());
  if (p == 0 || result.numel() == 0 || x2.size(-2) == 0) return result;
  by_parts(x1, x2, [&](const Part& part) {
    const at::Tensor difference = part.difference(), upstream = part.of(grad).unsqueeze(-1),
                     distance = part.of(cdist).unsqueeze(-1);
    at::Tensor slope;
    if (p == 1) {
      slope = upstream * difference.sign();
    } else if (std::isinf(p)) {
      slope = (upstream * difference.sign()).masked_fill_(difference.abs().ne(distance), 0);
    } else {
      // Points that coincide in all coordinates, or for p < 1 in one, have a subgradient of 0 there.
      slope = p == 2 ? difference : difference.sign() * difference.abs().pow(p - 1);
      if (p < 1) slope.masked_fill_(difference.eq(0), 0);
      slope = slope * (upstream / (p == 2 ? distance : distance.pow(p - 1))).masked_fill_(distance.eq(0), 0);
    }
    result.narrow(-2, part.first1, part.x1.size(-2)).add_(slope.sum(-2));
  });
  return result;
}

namespace {

// Positions of the pairs of `count` points, of which the first comes before the second, in the matrix of all pairs.
at::Tensor pair_positions(const at::Tensor& points) {
  const int64_t count = points.size(0);
  const at::Tensor pairs = at::triu_indices(count, count, 1, points.options().dtype(at::kLong));
  return pairs.select(0, 0).mul(count).add_(pairs.select(0, 1));
}

} // namespace

at::Tensor pdist_forward(const at::Tensor& self, double p) {
  TORCH_CHECK(self.is_contiguous(), "_pdist_forward requires contiguous input");
  if (cpu_policy::runs_on_cpu(CpuCalls::Always, self)) return call_on_host<at::_ops::_pdist_forward>(self, p);
  if (self.size(0) <= 1) return at::empty({0}, self.options());
  return at::_cdist_forward(self, self, p, std::nullopt).view(-1).index_select(0, pair_positions(self));
}

at::Tensor pdist_backward(const at::Tensor& grad, const at::Tensor& self, double p, const at::Tensor& pdist) {
  TORCH_CHECK(self.is_contiguous(), "_pdist_backward requires self to be contiguous");
  TORCH_CHECK(pdist.is_contiguous(), "_pdist_backward requires pdist to be contiguous");
  check_sizes("_pdist_backward", "grad", grad, pdist.sizes());
  if (cpu_policy::runs_on_cpu(CpuCalls::Always, self))
    return call_on_host<at::_ops::_pdist_backward>(grad, self, p, pdist);
  const int64_t count = self.size(0);
  if (count <= 1) return at::zeros_like(self);
  check_numel("_pdist_backward", "pdist", pdist, count * (count - 1) / 2);
  const at::Tensor positions = pair_positions(self);
  // Each pair is one of the first point and one of the second.
  const auto both = [&](const at::Tensor& of_pairs) {
    const at::Tensor matrix = at::zeros({count * count}, self.options()).index_copy_(0, positions, of_pairs);
    const at::Tensor square = matrix.view({count, count});
    return square + square.t();
  };
  return at::_cdist_backward(both(grad), self, self, p, both(pdist));
}

} // namespace torch_opencl::native

// Only for torch 2.11, whose own function refuses tensors of this device.
#if !TORCH_OPENCL_TORCH_AT_LEAST(12)

#include <ATen/ops/_cdist_forward.h>
#include <ATen/ops/_euclidean_dist.h>

#include "native/composite.h"

namespace torch_opencl::native {
namespace {

// PyTorch's rule: a matmul computes the distances of many points; those of few points are computed directly.
at::Tensor cdist(const at::Tensor& x1, const at::Tensor& x2, double p, std::optional<int64_t> compute_mode) {
  const int64_t mode = compute_mode.value_or(0);
  const bool has_points = x1.dim() >= 2 && x2.dim() >= 2 && x1.size(-1) == x2.size(-1) && x1.numel() > 0 &&
      x2.numel() > 0 && at::isFloatingType(x1.scalar_type()) && at::isFloatingType(x2.scalar_type());
  const bool by_product = has_points && p == 2 && (mode == 1 || (mode == 0 && (x1.size(-2) > 25 || x2.size(-2) > 25)));
  // This also rejects inputs that are not lists of points.
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
