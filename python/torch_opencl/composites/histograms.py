"""Counts of values, and histograms."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from math import isfinite, prod

import torch
from torch import Tensor
from torch._prims_common import get_computation_dtype

from ._common import on_host

aten = torch.ops.aten


def bincount(self: Tensor, weights: Tensor | None = None, minlength: int = 0) -> Tensor:
    """Count each integer, or add its weights."""
    is_counted = self.dim() == 1 and self.numel() > 0 and minlength >= 0 and _is_integral(self)
    if not is_counted or (weights is not None and weights.shape != self.shape):
        return on_host(aten.bincount, self, weights, minlength)
    least, greatest = self.aminmax()
    if least.item() < 0:
        return on_host(aten.bincount, self, weights, minlength)
    bins = max(int(greatest.item()) + 1, minlength)
    if weights is None:
        return _sums(self.long(), bins)
    # Floats are counted in their own dtype, everything else with weights in double.
    return _sums(self.long(), bins, weights.to(torch.float32 if weights.dtype == torch.float32 else torch.float64))


def histc(self: Tensor, bins: int = 100, min: float = 0, max: float = 0) -> Tensor:
    """Count the values in bins of equal width from `min` to `max`; if they are equal, over the range of the values.

    Integers are as on CUDA, and the CPU does not take them: bounds are truncated to integers, and bins are exact.
    """
    is_integral = _is_integral(self)
    # Bin indices in the compute dtype, as borders between bins would shift by rounding.
    values = self.reshape(-1).to(torch.long if is_integral else get_computation_dtype(self.dtype))
    low, high = (int(min), int(max)) if is_integral and isfinite(min) and isfinite(max) else (min, max)
    if low == high and values.numel() > 0:
        low, high = (bound.item() for bound in values.aminmax())
    if low == high:
        low, high = low - 1, high + 1
    if bins <= 0 or not (isfinite(low) and isfinite(high) and low < high):
        return aten.histc(self.cpu().double(), bins, min, max).to(self)  # raises
    inside = (values >= low).logical_and_(values <= high)
    if is_integral:
        index = ((values - low) * bins).div_(high - low, rounding_mode="floor")
    else:
        index = (values - low) / (high - low) * bins
    # Values outside, NaN too, go to an extra bin, which is dropped.
    index = torch.where(inside, index.clamp_max_(bins - 1), bins)
    if not is_integral:
        # A range that the dtype does not hold makes indices inside it NaN.
        index = index.nan_to_num_(bins).long()
    return _sums(index, bins + 1).narrow(0, 0, bins).to(self.dtype)


def histogram(
    self: Tensor, bins: Tensor, *, weight: Tensor | None = None, density: bool = False
) -> tuple[Tensor, Tensor]:
    """Return a histogram of all values, and its bin edges, which are given."""
    weight = None if weight is None else weight.reshape(-1)
    return histogramdd_from_edges(self.reshape(-1, 1), [bins], weight=weight, density=density), bins.clone()


def histogram_of_count(
    self: Tensor,
    bins: int = 100,
    *,
    range: Sequence[float] | None = None,
    weight: Tensor | None = None,
    density: bool = False,
) -> tuple[Tensor, Tensor]:
    """Return a histogram of all values with bins of equal width, and its bin edges."""
    weight = None if weight is None else weight.reshape(-1)
    rows = self.reshape(-1, 1)
    edges = histogramdd_edges(rows, [bins], range=range)
    return histogramdd_from_edges(rows, edges, weight=weight, density=density), edges[0]


def histogramdd_of_counts(
    self: Tensor,
    bins: Sequence[int],
    *,
    range: Sequence[float] | None = None,
    weight: Tensor | None = None,
    density: bool = False,
) -> Tensor:
    """Count the rows of `self` in bins of equal width in each dimension."""
    edges = histogramdd_edges(self, bins, range=range)
    return histogramdd_from_edges(self, edges, weight=weight, density=density)


def histogramdd_edges(
    self: Tensor,
    bins: Sequence[int],
    *,
    range: Sequence[float] | None = None,
    weight: Tensor | None = None,
    density: bool = False,
) -> list[Tensor]:
    """Return the edges of bins of equal width between the bounds of `range` or of the values in each dimension."""
    bounds = self
    if self.dim() >= 2 and self.numel() > 0:
        # Edges depend on the extremes alone, and ATen's function checks the arguments.
        rows = self.reshape(-1, self.size(-1))
        bounds = rows[:1] if range is not None else torch.stack(rows.aminmax(dim=0))
    return on_host(aten._histogramdd_bin_edges, bounds, bins, range=range)


def histogramdd_from_edges(
    self: Tensor, bins: Sequence[Tensor], *, weight: Tensor | None = None, density: bool = False
) -> Tensor:
    """Count the rows of `self` by the bins that their coordinates fall into.

    A bin includes its lower edge, the last bin also its upper edge.
    """
    is_valid = self.dim() >= 2 and self.size(-1) == len(bins) and self.numel() > 0
    is_valid = is_valid and all(edges.dim() == 1 and edges.numel() > 1 and edges.dtype == self.dtype for edges in bins)
    if weight is not None:
        is_valid = is_valid and weight.dtype == self.dtype and weight.shape == self.shape[:-1]
    if not is_valid:
        return on_host(aten._histogramdd_from_bin_tensors, self, bins, weight=weight, density=density)
    sizes = [edges.numel() - 1 for edges in bins]
    fits, positions = [], []
    for column, edges in zip(self.reshape(-1, len(bins)).unbind(1), bins, strict=True):
        values = column.contiguous()
        fits.append((values >= edges[0]).logical_and_(values <= edges[-1]))
        positions.append(
            torch.searchsorted(edges.contiguous(), values, right=True).sub_(1).clamp_(0, edges.numel() - 2)
        )
    inside, index = reduce(Tensor.logical_and_, fits), positions[0]
    for position, size in zip(positions[1:], sizes[1:], strict=True):
        index = torch.add(position, index, alpha=size)
    total = prod(sizes)
    # Rows outside, NaN too, go to an extra bin, which is dropped.
    index = torch.where(inside, index, total)
    amounts = self.new_ones(()) if weight is None else weight.reshape(-1)
    hist = _sums(index, total + 1, amounts).narrow(0, 0, total).clone().view(sizes)
    if density:
        hist.div_(hist.sum())
        for dim, edges in enumerate(bins):
            hist.div_(edges.diff().view([-1 if i == dim else 1 for i in range(len(bins))]))
    return hist


def _is_integral(tensor: Tensor) -> bool:
    return not (tensor.is_floating_point() or tensor.is_complex() or tensor.dtype == torch.bool)


def _sums(index: Tensor, bins: int, amounts: Tensor | None = None) -> Tensor:
    """Add the amounts, by default 1, of each bin."""
    if amounts is None:
        amounts = torch.ones((), dtype=torch.long, device=index.device)
    sums = torch.zeros(bins, dtype=amounts.dtype, device=index.device)
    return sums.index_add_(0, index, amounts.expand_as(index))
