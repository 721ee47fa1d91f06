"""Normalization of weights."""

import torch
from torch import Tensor


def weight_norm(v: Tensor, g: Tensor, dim: int = 0) -> tuple[Tensor, Tensor]:
    """Return the weight `v` scaled to the norms `g` along `dim`, and the norms that it had."""
    # The norms have the dtype of g, which for 16-bit weights may be wider.
    norms = torch.norm_except_dim(v.to(g.dtype), 2, dim)
    return v * (g / norms).to(v.dtype), norms
