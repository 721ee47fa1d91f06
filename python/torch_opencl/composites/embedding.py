"""Embeddings."""

from __future__ import annotations

import torch
from torch import Tensor
from torch._prims_common import get_computation_dtype

from ._common import on_host


def embedding_renorm_(self: Tensor, indices: Tensor, max_norm: float, norm_type: float) -> Tensor:
    """Scale the rows at `indices` down to a norm of `max_norm` if theirs is larger."""
    op = torch.ops.aten.embedding_renorm_
    if self.dim() != 2 or indices.dtype not in (torch.int32, torch.int64):
        return on_host(op, self, indices, max_norm, norm_type)
    if indices.numel() == 0:
        return self
    count, flat = self.size(0), indices.reshape(-1).long()
    least, greatest = flat.aminmax()
    if least.item() < -count or greatest.item() >= count:
        return on_host(op, self, indices, max_norm, norm_type)
    # A row that is indexed twice is written twice, with the same values.
    flat = flat.remainder(count)
    rows = self.index_select(0, flat)
    dtype = get_computation_dtype(self.dtype)
    norms = torch.linalg.vector_norm(rows, norm_type, 1, keepdim=True).to(dtype)
    scales = torch.where(norms > max_norm, max_norm / (norms + 1e-7), 1.0)
    return self.index_copy_(0, flat, rows.to(dtype).mul_(scales).to(self.dtype))
