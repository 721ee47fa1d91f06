// Linear algebra on GPUs: recursive algorithms that leave nearly all work to matmuls, and blocks to kernels. ATen's
// functions call them by its dispatch stubs.
//
// E. Elmroth, F. Gustavson, I. Jonsson and B. Kågström, "Recursive blocked algorithms and hybrid data structures for
// dense matrix library software", SIAM Review 46 (2004): a matrix is halved until a block is left, so that most matmuls
// are large.
#include "entries/linalg.h"

#include <ATen/Context.h>
#include <ATen/TensorOperators.h>
#include <ATen/native/BatchLinearAlgebra.h>
#include <ATen/native/FunctionOfAMatrixUtils.h>
#include <ATen/native/LinearAlgebraUtils.h>
#include <ATen/native/TransposeType.h>
#include <ATen/ops/bmm.h>
#include <ATen/ops/diag_embed.h>
#include <ATen/ops/where.h>

#include "runtime/error.h"
#include "runtime/tensor_arg.h"
#include "torch_opencl/rust/blas/mod.rs.h"
#include "torch_opencl/rust/ops/linalg/mod.rs.h"

namespace torch_opencl::native {
namespace {

using at::native::TransposeType;

// A view as a batch with one batch dimension, which is possible for all tensors that ATen passes to its stubs.
at::Tensor batched(const at::Tensor& tensor) {
  return tensor.view({at::native::batchCount(tensor), tensor.size(-2), tensor.size(-1)});
}

// The matrices of `tensor`, repeated for the batch of `other`.
at::Tensor batched_like(const at::Tensor& tensor, const at::Tensor& other) {
  at::DimVector sizes(other.sizes().slice(0, static_cast<size_t>(other.dim() - 2)));
  sizes.append({tensor.size(-2), tensor.size(-1)});
  return tensor.expand(sizes).reshape({at::native::batchCount(other), tensor.size(-2), tensor.size(-1)});
}

at::Tensor rows(const at::Tensor& a, int64_t first, int64_t end) {
  return a.narrow(1, first, end - first);
}
at::Tensor columns(const at::Tensor& a, int64_t first, int64_t end) {
  return a.narrow(2, first, end - first);
}

int64_t block() {
  return bridge::linalg_block();
}

// Half of a size that is larger than one block, rounded to a multiple of the block size.
int64_t half(int64_t size) {
  return (size + block() - 1) / block() / 2 * block();
}

// out -= a @ b. ATen's baddbmm would copy: it treats parts of one matrix as memory that may overlap.
void gemm_update(const at::Tensor& out, const at::Tensor& a, const at::Tensor& b) {
  if (out.numel() == 0 || a.size(2) == 0) return;
  const at::NoTF32Guard exact;
  const at::Tensor first = a.resolve_conj(), second = b.resolve_conj();
  checked([&] {
    bridge::matmul(arg(out), arg(first), arg(second), arg(out), arg(-1.0), arg(1.0), bridge::Activation::None);
  });
}

// Solves a @ x = b in place of b. `a` may be a lazy conjugate.
void solve(const at::Tensor& a, const at::Tensor& b, bool upper, bool unitriangular) {
  const int64_t n = a.size(1);
  if (b.numel() == 0) return;
  if (n <= block()) {
    return checked([&] { bridge::solve_block(arg(a), arg(b), upper, unitriangular, a.is_conj()); });
  }
  const int64_t h = half(n);
  const at::Tensor first = rows(b, 0, h), second = rows(b, h, n);
  const auto solve_first = [&] { solve(columns(rows(a, 0, h), 0, h), first, upper, unitriangular); };
  const auto solve_second = [&] { solve(columns(rows(a, h, n), h, n), second, upper, unitriangular); };
  if (upper) {
    solve_second();
    gemm_update(first, columns(rows(a, 0, h), h, n), second);
    solve_first();
  } else {
    solve_first();
    gemm_update(second, columns(rows(a, h, n), 0, h), first);
    solve_second();
  }
}

// Solves L @ L^H @ x = b, or U^H @ U @ x = b, in place of b.
void solve_factored(const at::Tensor& factor, const at::Tensor& b, bool upper) {
  solve(upper ? factor.mH() : factor, b, /*upper=*/false, /*unitriangular=*/false);
  solve(upper ? factor : factor.mH(), b, /*upper=*/true, /*unitriangular=*/false);
}

void swap_rows(const at::Tensor& a, const at::Tensor& pivots, int64_t first, bool reverse) {
  if (a.numel() == 0) return;
  checked([&] { bridge::swap_rows(arg(a), arg(pivots), first, reverse); });
}

// The lower factor; column 0 is column `first` of the whole matrix.
void factor_cholesky(const at::Tensor& a, const at::Tensor& infos, int64_t first) {
  const int64_t n = a.size(1);
  if (n <= block()) return checked([&] { bridge::cholesky_block(arg(a), arg(infos), first); });
  const int64_t h = half(n);
  const at::Tensor top = columns(rows(a, 0, h), 0, h), side = columns(rows(a, h, n), 0, h),
                   rest = columns(rows(a, h, n), h, n);
  factor_cholesky(top, infos, first);
  // side = side @ top^-H, which is transposed conj(top) @ x = side^T
  solve(top.conj(), side.mT(), /*upper=*/false, /*unitriangular=*/false);
  gemm_update(rest, side, side.mH());
  factor_cholesky(rest, infos, first + h);
}

// S. Toledo, "Locality of reference in LU decomposition with partial pivoting", SIAM J. Matrix Anal. Appl. 18 (1997).
void factor_lu(
    const at::Tensor& a, const at::Tensor& pivots, const at::Tensor& infos, int64_t first, bool compute_pivots) {
  const int64_t m = a.size(1), n = a.size(2);
  if (n <= m && n <= block()) {
    return checked([&] { bridge::lu_panel(arg(a), arg(pivots), arg(infos), first, compute_pivots); });
  }
  const int64_t h = n > m ? m : half(n);
  const at::Tensor left = columns(a, 0, h), right = columns(a, h, n);
  const at::Tensor done = pivots.narrow(1, 0, h), open = pivots.narrow(1, h, pivots.size(1) - h);
  factor_lu(left, done, infos, first, compute_pivots);
  swap_rows(right, done, first, /*reverse=*/false);
  solve(rows(left, 0, h), rows(right, 0, h), /*upper=*/false, /*unitriangular=*/true);
  if (open.size(1) == 0) return;
  const at::Tensor below = rows(left, h, m), rest = rows(right, h, m);
  gemm_update(rest, below, rows(right, 0, h));
  factor_lu(rest, open, infos, first + h, compute_pivots);
  swap_rows(below, open, first + h, /*reverse=*/false);
}

void set_to_identity(const at::Tensor& a) {
  a.zero_();
  a.diagonal(0, 1, 2).fill_(1);
}

// c = Q c, or Q^H c, for the reflectors in the columns of `panel`, Q = I - V T V^H with T as R. Schreiber and C. Van
// Loan have it ("A storage-efficient WY representation", 1989), computed from V^H V as in T. Joffrain et al.,
// "Accumulating Householder transformations, revisited" (2006).
void reflect(const at::Tensor& panel, const at::Tensor& tau, const at::Tensor& c, bool adjoint) {
  if (c.numel() == 0) return;
  const at::NoTF32Guard exact;
  const at::Tensor v = panel.tril(-1);
  v.diagonal(0, 1, 2).fill_(1);
  const at::Tensor v_adjoint = v.mH();
  // T solves (I + diag(tau) striu(V^H V)) T = diag(tau).
  const at::Tensor t = at::diag_embed(tau);
  solve(tau.unsqueeze(2) * at::bmm(v_adjoint, v).triu(1), t, /*upper=*/true, /*unitriangular=*/true);
  gemm_update(c, v, at::bmm(adjoint ? t.mH() : t, at::bmm(v_adjoint, c)));
}

} // namespace

void triangular_solve(
    const at::Tensor& A, const at::Tensor& B, bool left, bool upper, TransposeType transpose, bool unitriangular) {
  if (B.numel() == 0) return;
  // ATen passes memory to be read by columns, as LAPACK does: for a matrix that is contiguous by rows, or a lazy
  // conjugate, `transpose` gives the difference.
  const at::Tensor plain = A.is_conj() ? A.conj() : A, memory = A.mT().is_contiguous() ? plain : plain.mT();
  // There may be more rows than the triangle has.
  const int64_t n = left ? memory.size(-1) : B.size(-1);
  at::Tensor a = columns(rows(batched_like(memory, B), 0, n), 0, n), b = batched(B);
  if (left) b = rows(b, 0, n);
  if (transpose == TransposeType::ConjTranspose) a = a.conj();
  const bool transposes = transpose != TransposeType::NoTranspose;
  // x @ a = b is transposed a^T @ x^T = b^T
  if (!left) b = b.mT();
  if (transposes == left) a = a.mT();
  solve(a, b, upper != (transposes == left), unitriangular);
}

void cholesky(const at::Tensor& input, const at::Tensor& info, bool upper) {
  info.zero_();
  if (input.numel() == 0) return;
  const at::Tensor a = batched(input);
  // The transpose of an upper factor is a lower factor of the transpose.
  factor_cholesky(upper ? a.mT() : a, info.view({-1}), 0);
}

at::Tensor& cholesky_inverse(at::Tensor& result, at::Tensor& infos, bool upper) {
  if (result.numel() == 0) return result;
  const at::Tensor inverse = batched(result), factor = inverse.clone();
  const at::Tensor is_zero = factor.diagonal(0, 1, 2).eq(0);
  const at::Tensor first = is_zero.to(at::kInt).argmax(1).add_(1);
  infos.view({-1}).copy_(at::where(is_zero.any(1), first, at::zeros_like(first)));
  set_to_identity(inverse);
  solve_factored(factor, inverse, upper);
  return result;
}

at::Tensor cholesky_solve_helper(const at::Tensor& self, const at::Tensor& A, bool upper) {
  at::Tensor result = at::native::cloneBatchedColumnMajor(self);
  if (result.numel() == 0) return result;
  solve_factored(batched_like(A, self), batched(result), upper);
  return result;
}

void lu_factor(const at::Tensor& input, const at::Tensor& pivots, const at::Tensor& infos, bool compute_pivots) {
  infos.zero_();
  if (input.numel() == 0) return;
  const at::Tensor a = batched(input);
  factor_lu(a, pivots.view({a.size(0), pivots.size(-1)}), infos.view({-1}), 0, compute_pivots);
}

void lu_solve(const at::Tensor& LU, const at::Tensor& pivots, const at::Tensor& B, TransposeType trans) {
  if (B.numel() == 0) return;
  const at::Tensor a = batched_like(LU, B), b = batched(B);
  const at::Tensor swaps = batched_like(pivots.unsqueeze(-2), B).squeeze(1);
  if (trans == TransposeType::NoTranspose) {
    swap_rows(b, swaps, 0, /*reverse=*/false);
    solve(a, b, /*upper=*/false, /*unitriangular=*/true);
    solve(a, b, /*upper=*/true, /*unitriangular=*/false);
    return;
  }
  const at::Tensor transposed = trans == TransposeType::ConjTranspose ? a.mH() : a.mT();
  solve(transposed, b, /*upper=*/false, /*unitriangular=*/false);
  solve(transposed, b, /*upper=*/true, /*unitriangular=*/true);
  swap_rows(b, swaps, 0, /*reverse=*/true);
}

void geqrf(const at::Tensor& input, const at::Tensor& tau) {
  if (input.numel() == 0) return;
  const at::Tensor a = batched(input), scales = tau.view({a.size(0), tau.size(-1)});
  const int64_t m = a.size(1), n = a.size(2), k = std::min(m, n);
  for (int64_t first = 0; first < k; first += block()) {
    const int64_t end = std::min(first + block(), k);
    const at::Tensor below = rows(a, first, m), panel = columns(below, first, end),
                     scale = scales.narrow(1, first, end - first);
    checked([&] { bridge::qr_panel(arg(panel), arg(scale)); });
    reflect(panel, scale, columns(below, end, n), /*adjoint=*/true);
  }
}

at::Tensor& orgqr(at::Tensor& result, const at::Tensor& tau) {
  if (result.numel() == 0) return result;
  const at::Tensor q = batched(result), scales = tau.reshape({q.size(0), tau.size(-1)});
  const int64_t m = q.size(1), n = q.size(2), k = tau.size(-1);
  const at::Tensor reflectors = columns(q, 0, k).clone();
  set_to_identity(q);
  // Starts with the last block: it leaves the columns before it unchanged.
  for (int64_t first = (k - 1) / block() * block(); first >= 0 && k > 0; first -= block()) {
    const int64_t end = std::min(first + block(), k);
    const at::Tensor panel = columns(rows(reflectors, first, m), first, end);
    const at::Tensor part = columns(rows(q, first, m), first, n);
    reflect(panel, scales.narrow(1, first, end - first), part, /*adjoint=*/false);
  }
  return result;
}

// The iteration's first output holds identities, and its input the pivots; ATen made both contiguous.
void unpack_pivots(at::TensorIterator& iter, const int64_t dim_size, const int64_t max_pivot) {
  if (iter.numel() == 0 || dim_size == 0) return;
  const at::Tensor order = iter.tensor(0).view({-1, max_pivot}), pivots = iter.tensor(1).view({-1, dim_size});
  checked([&] { bridge::unpack_pivots(arg(order), arg(pivots)); });
}

// Sums over a dimension that ATen has given the stride 0: consecutive terms are `in_stride` and `coeff_stride` apart.
void linear_combination(at::TensorIterator& iter, int64_t in_stride, int64_t coeff_stride, int64_t num_summations) {
  const at::Tensor& out = iter.tensor(0);
  const auto term = [&](int operand, int64_t stride, int64_t n) {
    const at::Tensor& first = iter.tensor(operand);
    return first.as_strided(first.sizes(), first.strides(), first.storage_offset() + n * stride);
  };
  for (int64_t n = 0; n < num_summations; n++) out.addcmul_(term(1, in_stride, n), term(2, coeff_stride, n));
}

} // namespace torch_opencl::native
