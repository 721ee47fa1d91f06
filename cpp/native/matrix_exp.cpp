// The exponential of matrices by scaling and squaring of a Taylor polynomial, all of it matmuls.
#include "entries/linalg.h"

#include <ATen/TensorOperators.h>
#include <ATen/native/LinearAlgebraUtils.h>
#include <ATen/ops/baddbmm.h>
#include <ATen/ops/bmm.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/where.h>
#include <array>

namespace torch_opencl::native {
namespace {

// A polynomial of degree 16 takes six matmuls (M. Paterson and L. Stockmeyer, "On the number of nonscalar
// multiplications necessary to evaluate polynomials", SIAM J. Comput. 2, 1973).
constexpr int64_t kDegree = 16, kStep = 4;

// The largest 1-norm for which the polynomial's relative backward error is within half a unit in the last place: that
// of the series of log(exp(-x) T(x)), as A. Al-Mohy and N. Higham have it ("Computing the action of the matrix
// exponential", SIAM J. Sci. Comput. 33, 2011).
double largest_norm(at::ScalarType dtype) {
  return at::toRealValueType(dtype) == at::kFloat ? 2.4782808775219713 : 0.7802874256626574;
}

at::Tensor taylor(const at::Tensor& a) {
  std::array<double, kDegree + 1> coefficients{1.0};
  for (size_t k = 1; k <= kDegree; k++) coefficients[k] = coefficients[k - 1] / static_cast<double>(k);
  const at::Tensor a2 = at::bmm(a, a), a3 = at::bmm(a2, a), a4 = at::bmm(a2, a2);
  // Terms of `kStep` degrees, over a^(part * kStep).
  const auto terms = [&](int64_t part) {
    const double* c = &coefficients[static_cast<size_t>(part * kStep)];
    at::Tensor sum = a * c[1];
    sum.add_(a2, c[2]).add_(a3, c[3]).diagonal(0, 1, 2).add_(c[0]);
    return sum;
  };
  at::Tensor result = terms(kDegree / kStep - 1).add_(a4, coefficients[kDegree]);
  for (int64_t part = kDegree / kStep - 2; part >= 0; part--) result = at::baddbmm(terms(part), result, a4);
  return result;
}

} // namespace

at::Tensor matrix_exp(const at::Tensor& self) {
  at::native::squareCheckInputs(self, "linalg.matrix_exp");
  at::native::checkFloatingOrComplex(self, "linalg.matrix_exp");
  if (self.numel() == 0) return at::empty_like(self);
  const int64_t n = self.size(-1);
  if (n == 1) return self.exp();
  const at::Tensor a = self.reshape({at::native::batchCount(self), n, n});
  const at::Tensor norm = a.abs().sum(1).amax(1);
  // How often each matrix must be halved: never if its norm is not finite, as it then has no exponential.
  const at::Tensor halvings =
      (norm / largest_norm(self.scalar_type())).log2_().ceil_().nan_to_num_(0, 0, 0).clamp_min_(0);
  const auto most = static_cast<int64_t>(halvings.max().item<double>());
  // Powers of two by halving, which is exact.
  at::Tensor scale = at::ones_like(norm);
  for (int64_t k = 0; k < most; k++) scale = at::where(halvings.gt(k), scale * 0.5, scale);
  at::Tensor result = taylor(most > 0 ? a * scale.view({-1, 1, 1}) : a);
  for (int64_t k = 0; k < most; k++) {
    result = at::where(halvings.gt(k).view({-1, 1, 1}), at::bmm(result, result), result);
  }
  return result.view(self.sizes());
}

} // namespace torch_opencl::native
