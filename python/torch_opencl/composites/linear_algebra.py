"""Functions of matrices and vectors."""

from __future__ import annotations

from math import factorial

import torch
from torch import Tensor

from ._common import on_host

aten = torch.ops.aten

# A polynomial of degree 16 takes six matmuls (M. Paterson and L. Stockmeyer, "On the number of nonscalar
# multiplications necessary to evaluate polynomials", SIAM J. Comput. 2, 1973).
_DEGREE = 16
_COEFFICIENTS = [1 / factorial(k) for k in range(_DEGREE + 1)]
# The largest 1-norm for which the polynomial's relative backward error is within half a unit in the last place. The
# bound of the error is the series of log(exp(-x) T(x)), as in A. Al-Mohy and N. Higham, "Computing the action of the
# matrix exponential", SIAM J. Sci. Comput. 33, 2011.
_LARGEST_NORMS = {torch.float32: 2.4782808775219713, torch.float64: 0.7802874256626574}


def matrix_exp(self: Tensor) -> Tensor:
    """Return the exponential of matrices by scaling and squaring of a Taylor polynomial, all of it matmuls."""
    is_inexact = self.is_floating_point() or self.is_complex()
    if not is_inexact or self.dim() < 2 or self.size(-1) != self.size(-2) or self.numel() == 0:
        return on_host(aten.linalg_matrix_exp, self)
    n = self.size(-1)
    if n == 1:
        return self.exp()
    a = self.reshape(-1, n, n)
    norm = a.abs().sum(1).amax(1)
    # How often each matrix must be halved: never if its norm is not finite, as it then has no exponential.
    largest = _LARGEST_NORMS.get(norm.dtype, _LARGEST_NORMS[torch.float64])
    halvings = (norm / largest).log2_().ceil_().nan_to_num_(0, 0, 0).clamp_min_(0)
    most = int(halvings.max().item())
    # Powers of two by halving, which is exact.
    scale = torch.ones_like(norm)
    for k in range(most):
        scale = torch.where(halvings > k, scale * 0.5, scale)
    result = _taylor(a * scale.view(-1, 1, 1) if most > 0 else a)
    for k in range(most):
        result = torch.where((halvings > k).view(-1, 1, 1), result.bmm(result), result)
    return result.view(self.shape)


def _taylor(a: Tensor) -> Tensor:
    """Return the polynomial of degree 16, in parts of four degrees."""
    a2 = a.bmm(a)
    a3, a4 = a2.bmm(a), a2.bmm(a2)

    def terms(part: int) -> Tensor:
        """Return the terms of a part, over a^(4 part)."""
        c = _COEFFICIENTS[4 * part : 4 * part + 4]
        total = (a * c[1]).add_(a2, alpha=c[2]).add_(a3, alpha=c[3])
        total.diagonal(0, 1, 2).add_(c[0])
        return total

    result = terms(3).add_(a4, alpha=_COEFFICIENTS[_DEGREE])
    for part in (2, 1, 0):
        result = torch.baddbmm(terms(part), result, a4)
    return result


def trace(self: Tensor) -> Tensor:
    """Return the sum of a matrix's diagonal."""
    return self.diagonal().sum() if self.dim() == 2 else on_host(aten.trace, self)
