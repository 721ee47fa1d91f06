"""Runs of equal elements, sorted or not: unique elements, and the most frequent ones."""

from __future__ import annotations

import torch
from torch import Tensor

from ._common import on_host

aten = torch.ops.aten

# Values, inverse and counts.
Unique = tuple[Tensor, Tensor, Tensor]


def unique2(self: Tensor, sorted: bool = True, return_inverse: bool = False, return_counts: bool = False) -> Unique:
    """Return the different elements, which are always sorted."""
    if self.numel() == 0:
        return _nothing(self, return_inverse)
    values, order = self.reshape(-1).sort(stable=True)
    found, inverse, counts = _runs(values, order, return_inverse, return_counts)
    return found, inverse.view(self.shape) if return_inverse else inverse, counts


def unique(self: Tensor, sorted: bool = True, return_inverse: bool = False) -> tuple[Tensor, Tensor]:
    """Return the different elements and the index of each element among them."""
    return unique2(self, sorted, return_inverse)[:2]


def unique_dim(
    self: Tensor, dim: int, sorted: bool = True, return_inverse: bool = False, return_counts: bool = False
) -> Unique:
    """Return the different slices along `dim`, which are always sorted."""
    return _unique_slices(self, dim, True, return_inverse, return_counts)


def unique_consecutive(
    self: Tensor, return_inverse: bool = False, return_counts: bool = False, dim: int | None = None
) -> Unique:
    """Return the first element, or slice along `dim`, of each run of equal ones."""
    if dim is not None and not (dim == 0 and self.dim() == 1):
        return _unique_slices(self, dim, False, return_inverse, return_counts)
    if self.numel() == 0:
        return _nothing(self, return_inverse)
    found, inverse, counts = _runs(self.reshape(-1), None, return_inverse, return_counts)
    return found, inverse.view(self.shape) if return_inverse else inverse, counts


def unique_dim_consecutive(self: Tensor, dim: int, return_inverse: bool = False, return_counts: bool = False) -> Unique:
    """Return the first slice along `dim` of each run of equal ones."""
    return _unique_slices(self, dim, False, return_inverse, return_counts)


def mode(self: Tensor, dim: int = -1, keepdim: bool = False) -> tuple[Tensor, Tensor]:
    """Return the most frequent element of each row along `dim`, the smallest of several, and an index of it."""
    input = self if self.dim() > 0 else self.unsqueeze(0)
    length = input.size(dim)
    if length == 0:
        return on_host(aten.mode, self, dim, keepdim)
    values, indices = input.sort(dim=dim, stable=True)
    # Position of each element in its run: the longest run ends where this is greatest, the first such where it is
    # smallest.
    rows = values.movedim(dim, -1)
    order = torch.arange(length, device=self.device)
    starts = torch.zeros(rows.shape, dtype=torch.long, device=self.device)
    if length > 1:
        differs = rows.narrow(-1, 1, length - 1) != rows.narrow(-1, 0, length - 1)
        torch.mul(differs, order.narrow(0, 1, length - 1), out=starts.narrow(-1, 1, length - 1))
    depth = order - starts.cummax(-1)[0]
    last = depth.argmax(-1, keepdim=True).movedim(-1, dim)
    values, indices = values.gather(dim, last), indices.gather(dim, last)
    return (values, indices) if keepdim and self.dim() > 0 else (values.squeeze(dim), indices.squeeze(dim))


def _runs(self: Tensor, order: Tensor | None, return_inverse: bool, return_counts: bool) -> Unique:
    """Find the runs of equal slices along dimension 0: first slices, run of each slice in `order`, and lengths."""
    count = self.size(0)
    differs = self.narrow(0, 1, count - 1) != self.narrow(0, 0, count - 1)
    if self.dim() > 1:
        differs = differs.flatten(1).any(1)
    starts = torch.cat([torch.ones(1, dtype=torch.bool, device=self.device), differs])
    first = starts.nonzero().squeeze(1)
    inverse, counts = first.new_empty(0), first.new_empty(0)
    if return_inverse:
        inverse = starts.cumsum(0).sub_(1)
        inverse = inverse if order is None else torch.empty_like(inverse).scatter_(0, order, inverse)
    if return_counts:
        ends = torch.cat([first.narrow(0, 1, first.numel() - 1), first.new_full((1,), count)])
        counts = ends - first
    return self.index_select(0, first), inverse, counts


def _nothing(self: Tensor, return_inverse: bool) -> Unique:
    """Return the results for an empty tensor."""
    nothing = torch.empty(0, dtype=torch.long, device=self.device)
    return self.new_empty(0), nothing.new_empty(self.shape) if return_inverse else nothing, nothing.clone()


def _row_order(rows: Tensor) -> Tensor:
    """Sort the rows of a matrix, lexicographically: by the last column first, each sort stable."""
    order = torch.arange(rows.size(0), device=rows.device)
    for column in reversed(rows.unbind(1)):
        order = order.index_select(0, column.index_select(0, order).argsort(stable=True))
    return order


def _unique_slices(self: Tensor, dim: int, sort: bool, return_inverse: bool, return_counts: bool) -> Unique:
    if self.numel() == 0:
        return on_host(aten.unique_dim, self, dim)
    rows = self.movedim(dim, 0)
    order = _row_order(rows.reshape(rows.size(0), -1)) if sort else None
    slices = rows if order is None else rows.index_select(0, order)
    found, inverse, counts = _runs(slices, order, return_inverse, return_counts)
    return found.movedim(0, dim).contiguous(), inverse, counts
