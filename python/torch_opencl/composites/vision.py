"""Operators that torchvision declares, for programs that import it."""

import torch
from torch import Tensor
from torch._prims_common import get_computation_dtype

from ._sparse import coo

# Elements of sampling matrices that are in memory at a time.
_MOST_ELEMENTS = 1 << 24


class _RoiAlign:
    """The bins of regions as matmuls of sampling matrices and feature maps.

    A sampling matrix multiplies feature maps, [positions, channels], to bins. Bilinear interpolation is a product of
    one interpolation along each dimension.
    """

    def __init__(self, scale: float, bins: tuple[int, int], features: tuple[int, int, int], ratio: int, aligned: bool):
        self.scale, self.bins, self.features, self.ratio, self.aligned = scale, bins, features, ratio, aligned
        self.count = bins[0] * bins[1]
        # Without a sampling ratio a region reads at most as many elements as there are, each for up to four neighbours.
        extents = [extent + n for extent, n in zip(features[1:], bins, strict=True)]
        read = self.count * ratio**2 if ratio > 0 else extents[0] * extents[1]
        self.step = max(1, _MOST_ELEMENTS // max(1, 4 * read))

    def samples(self, begin: Tensor, end: Tensor, dim: int) -> tuple[Tensor, Tensor]:
        """Return what all bins read along dimension 0 or 1, for regions in elements of feature maps.

        Returns:
            Tensors [regions, bins, samples, 2]: indices of two neighbours, and their weights in the bin's mean.
        """
        bins, extent, ratio = self.bins[dim], self.features[dim + 1], self.ratio
        size = end - begin
        bin = ((size if self.aligned else size.clamp_min_(1)) / bins).view(-1, 1, 1)
        # A ratio that is not positive takes as many samples as the bin has elements.
        counts = bin.new_full(bin.shape, ratio) if ratio > 0 else bin.ceil()
        most = ratio if ratio > 0 else max(1, int(counts.max()))
        sample, nth = (torch.arange(n, dtype=begin.dtype, device=begin.device) for n in (most, bins))
        divisor = counts.clamp_min(1)
        position = begin.view(-1, 1, 1) + nth.unsqueeze(1) * bin + (sample + 0.5) * bin / divisor
        inside = position.ge(-1).logical_and_(position.le(extent)).logical_and_(sample.lt(counts))
        x = torch.where(inside, position, 0).clamp_min_(0)
        low = x.floor().clamp_max_(extent - 1)
        fraction = x - low
        weights = torch.stack((1 - fraction, fraction), -1).div_(divisor.unsqueeze(-1))
        indices = torch.stack((low, (low + 1).clamp_max_(extent - 1)), -1)
        return indices.long(), torch.where(inside.unsqueeze(-1), weights, 0)

    def matrix(self, rois: Tensor, transpose: bool = False) -> Tensor:
        """Return the sampling matrix of some regions, or its transpose, as a COO matrix."""
        batch, height, width = self.features
        corners = rois[:, 1:] * self.scale - (0.5 if self.aligned else 0)
        left, top, right, bottom = corners.unbind(1)
        y, y_weights = self.samples(top, bottom, 0)
        x, x_weights = self.samples(left, right, 1)
        # [regions, bins of y, bins of x, samples of y, 2, samples of x, 2]
        y, y_weights = (each[:, :, None, :, :, None, None] for each in (y, y_weights))
        x, x_weights = (each[:, None, :, None, None] for each in (x, x_weights))
        image = rois[:, 0].long().mul_(height).view(-1, 1, 1, 1, 1, 1, 1)
        values = y_weights * x_weights
        indices = x.new_empty(2, *values.shape)
        row, column = reversed(indices.unbind()) if transpose else indices.unbind()
        size = rois.shape[0] * self.count, batch * height * width
        row.view(size[0], -1).copy_(torch.arange(size[0], device=rois.device).unsqueeze(1))
        torch.add((image + y) * width, x, out=column)
        return coo(indices.view(2, -1), values.flatten(), size[::-1] if transpose else size, is_coalesced=not transpose)


def _check(rois: Tensor, maps: Tensor, name: str) -> None:
    if maps.dim() != 4:
        raise RuntimeError(f"roi_align: expected {name} of 4 dimensions, but got {maps.dim()}")
    if rois.dim() != 2 or rois.shape[1] != 5:
        raise RuntimeError("rois must have shape as Tensor[K, 5]")
    if rois.dtype != maps.dtype:
        raise RuntimeError(f"roi_align: expected rois to have dtype {maps.dtype}, but got {rois.dtype}")


def _rows(maps: Tensor) -> Tensor:
    """Return maps as a matrix with their channels as columns, in the dtype that they are computed in."""
    return maps.permute(0, 2, 3, 1).to(get_computation_dtype(maps.dtype)).reshape(-1, maps.shape[1])


def roi_align(
    input: Tensor,
    rois: Tensor,
    spatial_scale: float,
    pooled_height: int,
    pooled_width: int,
    sampling_ratio: int,
    aligned: bool,
) -> Tensor:
    """Average bilinear samples of each bin of each region: He, Gkioxari, Dollár and Girshick, Mask R-CNN (2017)."""
    _check(rois, input, "input")
    batch, channels, height, width = input.shape
    bins = pooled_height, pooled_width
    align = _RoiAlign(spatial_scale, bins, (batch, height, width), sampling_ratio, aligned)
    pooled = input.new_zeros(rois.shape[0], *bins, channels)
    if pooled.numel() > 0 and input.numel() > 0:
        rows = _rows(input)
        parts = [torch.mm(align.matrix(regions), rows) for regions in rois.to(rows.dtype).split(align.step)]
        pooled = (torch.cat(parts) if len(parts) > 1 else parts[0]).view(pooled.shape)
    return pooled.permute(0, 3, 1, 2).to(input.dtype).contiguous()


def roi_align_backward(
    grad: Tensor,
    rois: Tensor,
    spatial_scale: float,
    pooled_height: int,
    pooled_width: int,
    batch_size: int,
    channels: int,
    height: int,
    width: int,
    sampling_ratio: int,
    aligned: bool,
) -> Tensor:
    """Return the gradient of `roi_align`, which is linear in the feature maps."""
    _check(rois, grad, "grad")
    bins, features = (pooled_height, pooled_width), (batch_size, height, width)
    align = _RoiAlign(spatial_scale, bins, features, sampling_ratio, aligned)
    total = grad.new_zeros(batch_size * height * width, channels)
    if total.numel() > 0 and grad.numel() > 0:
        rows = _rows(grad)
        total = total.to(rows.dtype)
        each = align.step * align.count
        for regions, part in zip(rois.to(rows.dtype).split(align.step), rows.split(each), strict=True):
            total.add_(torch.mm(align.matrix(regions, transpose=True), part))
    return total.view(*features, channels).permute(0, 3, 1, 2).to(grad.dtype).contiguous()
