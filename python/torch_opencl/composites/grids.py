"""Sampling positions of affine transforms."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

import torch
from torch import Tensor
from torch._prims_common import get_computation_dtype

from ._common import on_host


def affine_grid_generator(theta: Tensor, size: Sequence[int], align_corners: bool) -> Tensor:
    """Return the positions that the affine maps `theta` give the pixels of images of the given size.

    ATen multiplies positions, a tensor 1.5 times as large as the result, by theta. Here each spatial dimension adds its
    contribution to rows that hold all coordinates of all columns: one pass over the result.
    """
    spatial = len(size) - 2
    if spatial not in (2, 3) or not prod(size) or theta.shape != (size[0], spatial, spatial + 1):
        return on_host(torch.ops.aten.affine_grid_generator, theta, size, align_corners)
    batch, columns = size[0], size[-1]
    # The columns of theta for each dimension, innermost first, then the translation: [batch, 1, spatial] each.
    matrix = theta.to(get_computation_dtype(theta.dtype)).contiguous()
    *steps, translation = matrix.unsqueeze(1).unbind(3)

    def positions(count: int) -> Tensor:
        """Return positions of pixels from -1 to 1: centres of the outermost if `align_corners`, else their edges."""
        edge = 0.0 if count <= 1 else 1.0 if align_corners else (count - 1) / count
        line = torch.linspace(-edge, edge, count, dtype=theta.dtype, device=theta.device)
        return line.to(matrix.dtype)

    grid = torch.addcmul(translation, steps[0], positions(columns).unsqueeze(1)).view(batch, -1)
    # The outermost dimension first, so that only the last sum has the size of the result.
    for dim in range(1, spatial):
        step = steps[spatial - dim].expand(batch, columns, spatial).reshape(batch, *[1] * dim, -1)
        grid = torch.addcmul(grid.unsqueeze(-2), step, positions(size[dim + 1]).unsqueeze(1))
    return grid.view(batch, *size[2:], spatial).to(theta.dtype)
