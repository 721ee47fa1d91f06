"""Sums of tensors in compressed layouts, and sparse matrices of diagonals."""

import torch
from torch import Tensor

from ._sparse import coo
from .sparse_matmul import COMPRESSED, assign_compressed

_COO, _CSR, _CSC = torch.sparse_coo, torch.sparse_csr, torch.sparse_csc


def add_compressed(self: Tensor | complex, other: Tensor | complex, *, alpha: float = 1, out: Tensor) -> Tensor:
    """Compute self + alpha * other for compressed tensors, or for a dense and a compressed tensor."""
    # A number arrives as such, not as a tensor.
    if (
        not isinstance(self, Tensor)
        or not isinstance(other, Tensor)
        or (self.layout != torch.strided and other.layout not in COMPRESSED)
    ):
        raise RuntimeError("add(sparse_csr, dense) is not supported. Use add(dense, sparse_csr) instead.")
    if self.layout == torch.strided and out.layout != torch.strided:
        raise RuntimeError(f"add: the sum of a strided and a sparse tensor is strided, but out has layout {out.layout}")
    if self.layout == torch.strided:
        return torch.add(self, other.to_sparse(), alpha=alpha, out=out)
    if self.shape != other.shape:
        raise RuntimeError(
            "torch.add: Expected input tensors to have the same shape, but got tensor `self` with shape "
            f"{list(self.shape)} and tensor `other` with shape {list(other.shape)}"
        )
    return assign_compressed(out, torch.add(self.to_sparse(), other.to_sparse(), alpha=alpha).coalesce())


def spdiags(diagonals: Tensor, offsets: Tensor, shape: list[int], layout: torch.layout | None = None) -> Tensor:
    """Return a sparse matrix with the rows of `diagonals` as its diagonals."""
    if diagonals.dim() == 1:
        diagonals = diagonals.unsqueeze(0)
    if diagonals.dim() != 2:
        raise RuntimeError("Diagonals must be vector or matrix")
    if len(shape) != 2:
        raise RuntimeError("Output shape must be 2d")
    if offsets.dim() == 0:
        offsets = offsets.unsqueeze(0)
    if offsets.dim() != 1:
        raise RuntimeError("Offsets must be scalar or vector")
    if diagonals.shape[0] != offsets.shape[0]:
        raise RuntimeError(
            f"Number of diagonals ({diagonals.shape[0]}) does not match the number of offsets ({offsets.shape[0]})"
        )
    if offsets.dtype != torch.long:
        raise RuntimeError(f"Offset Tensor must have dtype Long but got {offsets.dtype}")
    if torch._unique2(offsets)[0].numel() != offsets.numel():
        raise RuntimeError("Offset tensor contains duplicate values")
    if layout not in (None, _COO, _CSR, _CSC):
        raise RuntimeError(f"Only output layouts (Sparse, SparseCsc, SparseCsr) are supported, got {layout}")
    # Column j of the matrix has elements j of the diagonals.
    column = torch.arange(min(diagonals.shape[1], shape[1]), device=offsets.device)
    row = column - offsets.unsqueeze(1)
    is_within = row.ge(0).logical_and_(row.lt(shape[0])).flatten().nonzero().squeeze(1)
    indices = torch.stack((row, column.expand(row.shape))).flatten(1).index_select(1, is_within)
    values = diagonals[:, : column.shape[0]].reshape(-1).index_select(0, is_within)
    result = coo(indices, values, shape)
    return result if layout in (None, _COO) else result.to_sparse(layout=layout)
