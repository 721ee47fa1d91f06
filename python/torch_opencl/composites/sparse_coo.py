"""Elementwise operators, sums and selections of COO tensors, and `add` of all sparse tensors."""

import math

import torch
from torch import Tensor
from torch._prims_common import canonicalize_dim

from ._sparse import (
    assign,
    call_aten,
    check_cast,
    common_dtype,
    coo,
    find,
    flat,
    flatten_indices,
    masked,
)
from .sparse_layouts import add_compressed
from .sparse_matmul import COMPRESSED, pairs

aten = torch.ops.aten


def _add_at(sums: Tensor, index: Tensor, values: Tensor) -> None:
    """Add each of `values` to the element of `sums` that `index` names. The sum of bool is `or`."""
    if sums.dtype != torch.bool:
        sums.index_add_(0, index, values)
    else:
        sums.copy_(sums.int().index_add_(0, index, values.int()).ne(0))


def coalesce(self: Tensor) -> Tensor:
    """Sum the elements that have the same indices, and sort them by indices."""
    indices, values = self._indices(), self._values()
    nnz = values.shape[0]
    if nnz < 2:
        return self.clone()._coalesced_(True)
    ascending, order = flat(self).sort(stable=True)
    starts = torch.ones(nnz, dtype=torch.bool, device=values.device)
    torch.ne(ascending[1:], ascending[:-1], out=starts[1:])
    first = starts.nonzero().squeeze(1)
    indices = indices.index_select(1, order.index_select(0, first))
    values = values.index_select(0, order)
    count = first.shape[0]
    if count < nnz:
        terms, values = values, values.new_zeros(count, *values.shape[1:])
        _add_at(values, starts.cumsum(0).sub_(1), terms)
    return coo(indices, values, self.shape, is_coalesced=True)


def _scaled(values: Tensor, alpha: float, dtype: torch.dtype) -> Tensor:
    # Converted first: -1 times a uint8 would wrap around.
    values = values.to(dtype)
    return values if alpha == 1 else values.mul(alpha).to(dtype)


def _add_to_dense(self: Tensor, other: Tensor, alpha: float, out: Tensor) -> Tensor:
    if self.shape != other.shape:
        raise RuntimeError(
            f"add: expected 'self' and 'other' to have same size, but self has size {list(self.shape)} while other has "
            f"size {list(other.shape)} (FYI: dense-sparse addition does not currently support broadcasting)"
        )
    common = common_dtype("add", self, other, out)
    if out is not self:
        out.resize_as_(self)
    total = out if out.dtype == common else torch.empty_like(self, dtype=common)
    if total is not self:
        total.copy_(self)
    if other._nnz() > 0 and total.numel() > 0:
        target = total.contiguous()
        sparse_dim = other.sparse_dim()
        rows = target.view(math.prod(total.shape[:sparse_dim]), *total.shape[sparse_dim:])
        _add_at(rows, flat(other), _scaled(other._values(), alpha, common))
        if target is not total:
            total.copy_(target)
    return out if total is out else out.copy_(total)


def add_out(self: Tensor | complex, other: Tensor | complex, *, alpha: float = 1, out: Tensor) -> Tensor:
    """Compute self + alpha * other for sparse tensors of one layout, or for a dense and a sparse tensor."""
    if {getattr(each, "layout", None) for each in (self, other, out)} & COMPRESSED:
        return add_compressed(self, other, alpha=alpha, out=out)
    # A number arrives as such, not as a tensor.
    if not isinstance(self, Tensor) or not isinstance(other, Tensor) or (self.is_sparse and not other.is_sparse):
        raise RuntimeError("add(sparse, dense) is not supported. Use add(dense, sparse) instead.")
    if not self.is_sparse:
        return _add_to_dense(self, other, alpha, out)
    if self.shape != other.shape:
        raise RuntimeError(
            f"add: expected sizes of 'self' and 'other' to match, but {list(self.shape)} != {list(other.shape)}"
        )
    common = common_dtype("add", self, other, out)
    if other._nnz() == 0:
        aten.copy_sparse_to_sparse_(out, self)
        return out
    values = _scaled(other._values(), alpha, common)
    if self._nnz() == 0:
        copies = other._indices().clone(), values.clone() if values is other._values() else values
        return assign(out, *copies, other.shape, other.is_coalesced())
    if self.sparse_dim() != other.sparse_dim():
        raise RuntimeError(
            "add: expected 'self' and 'other' to have same density, but 'self' has "
            f"{self.sparse_dim()} sparse dimensions while 'other' has {other.sparse_dim()} sparse dimensions"
        )
    indices = torch.cat((self._indices(), other._indices()), 1)
    values = torch.cat((self._values().to(common), values))
    # Repeated sums of uncoalesced tensors must not grow without limit.
    if (self.is_coalesced() and other.is_coalesced()) or values.shape[0] > self.numel():
        total = coalesce(coo(indices, values, self.shape))
        return assign(out, total._indices(), total._values(), self.shape, is_coalesced=True)
    return assign(out, indices, values, self.shape)


def _mul_by_number(self: Tensor, other: complex, out: Tensor) -> Tensor:
    values = self._values().mul(other)
    check_cast("mul", values.dtype, out)
    return assign(out, self._indices().clone(), values, self.shape, self.is_coalesced())


def mul_out(self: Tensor | complex, other: Tensor | complex, *, out: Tensor) -> Tensor:
    """Compute self * other for COO tensors, or for a COO and a dense tensor or number."""
    # A number arrives as such, not as a tensor.
    if not isinstance(self, Tensor):
        return mul_out(other, self, out=out)
    if not isinstance(other, Tensor):
        return _mul_by_number(self, other, out)
    if not (self.is_sparse and other.is_sparse and self.dim() and other.dim()):
        return call_aten(aten.mul.out, self, other, out=out)
    sparse_dim = self.sparse_dim()
    if other.sparse_dim() != sparse_dim or self.shape[:sparse_dim] != other.shape[:sparse_dim]:
        raise RuntimeError(
            "mul: expected 'self' and 'other' to have same sizes when both are sparse, but "
            f"{list(self.shape)} != {list(other.shape)}"
        )
    common = common_dtype("mul", self, other, out)
    size = torch._C._infer_size(self.shape, other.shape)
    a, b = self.coalesce(), other.coalesce()
    if a._nnz() == 0 or b._nnz() == 0:
        values = torch.empty((0, *size[sparse_dim:]), dtype=common, device=out.device)
        return assign(out, a._indices().new_empty(sparse_dim, 0), values, size, is_coalesced=True)
    position, found = find(flat(a), flat(b))
    of_b = found.nonzero().squeeze(1)
    of_a = position.index_select(0, of_b)
    values = a._values().index_select(0, of_a).to(common) * b._values().index_select(0, of_b).to(common)
    return assign(out, b._indices().index_select(1, of_b), values, size, is_coalesced=True)


def sparse_mask(self: Tensor, mask: Tensor) -> Tensor:
    """Return the elements of `self` at the indices of the COO tensor `mask`."""
    is_composed = not self.is_sparse or self is mask or self._nnz() == 0 or mask._nnz() == 0
    if is_composed or self.shape != mask.shape:
        return call_aten(aten.sparse_mask.default, self, mask)
    if self.sparse_dim() != mask.sparse_dim():
        raise RuntimeError(
            "sparse_mask(): the number of sparse dimensions in `self` should match that of the `mask`. Got "
            f"`self.sparse_dim() == {self.sparse_dim()}` != `mask.sparse_dim() == {mask.sparse_dim()}`."
        )
    source = self.coalesce()
    position, found = find(flat(source), flat(mask))
    values = masked(source._values().index_select(0, position), found)
    return coo(mask._indices().clone(), values, mask.shape, mask.is_coalesced())


def index_select(self: Tensor, dim: int, index: Tensor) -> Tensor:
    """Select slices of a COO tensor along `dim`."""
    if self.dim() == 0:
        raise IndexError("index_select() cannot be applied to a 0-dim tensor.")
    if index.dim() != 1 or index.dtype != torch.long or index.layout != torch.strided:
        raise IndexError("index_select() argument index must be 1-D strided (non-sparse) long-tensor.")
    dim = canonicalize_dim(self.dim(), dim)
    size = [*self.shape[:dim], index.shape[0], *self.shape[dim + 1 :]]
    indices, values, sparse_dim = self._indices(), self._values(), self.sparse_dim()
    if dim >= sparse_dim:
        return coo(indices.clone(), values.index_select(dim - sparse_dim + 1, index), size, self.is_coalesced())
    extent = self.shape[dim]
    wrapped = torch.where(index < 0, index + extent, index)
    if index.numel() > 0:
        least, greatest = wrapped.aminmax()
        if least.item() < 0 or greatest.item() >= extent:
            raise IndexError(
                "index_select(): index contains indices that are out of range for tensor of size "
                f"{list(self.shape)} at dimension {dim}"
            )
    selected, element = pairs(wrapped, indices[dim], extent)
    indices = indices.index_select(1, element)
    indices[dim].copy_(selected)
    return coo(indices, values.index_select(0, element), size)


def sparse_sum_backward(grad: Tensor, self: Tensor, dim: list[int]) -> Tensor:
    """Return the gradient of a sum over `dim`: each element has the gradient of the sum that it is in."""
    sparse_dim = self.sparse_dim()
    summed = {canonicalize_dim(self.dim(), each) for each in dim}
    kept = [each for each in range(sparse_dim) if each not in summed]
    if not kept:
        return call_aten(aten._sparse_sum_backward.default, grad, self, dim)
    if not grad.is_sparse:
        raise RuntimeError("_sparse_sum_backward: expected grad to be sparse, but got a dense tensor")
    input, source = self.coalesce(), grad.coalesce()
    indices = input._indices()
    if source._nnz() == 0:
        return coo(indices.clone(), torch.zeros_like(input._values()), self.shape, is_coalesced=True)
    kept_indices = torch.stack([indices[each] for each in kept])
    position, found = find(flat(source), flatten_indices(kept_indices, [self.shape[each] for each in kept]))
    values = source._values()
    for each in range(sparse_dim, self.dim()):
        if each in summed:
            values = values.unsqueeze(each - sparse_dim + 1)
    values = masked(values.index_select(0, position), found).expand(input._values().shape)
    return coo(indices.clone(), values.contiguous(), self.shape, input.is_coalesced())
