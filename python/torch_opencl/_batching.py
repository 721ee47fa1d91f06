"""The rule by which torch.vmap runs `_cdist_backward`, in the place of PyTorch's."""

import warnings
from typing import Any

import torch

# The registration lasts as long as this does.
_library = torch.library.Library("aten", "FRAGMENT")


def _cdist_backward(info: Any, in_dims: tuple, grad: Any, x1: Any, x2: Any, p: float, distances: Any) -> tuple:
    """Give every operand the batch. PyTorch's rule adds up, or mixes, gradients where only `grad` has one."""
    dims = (*in_dims[:3], in_dims[4])
    batches = (
        operand.unsqueeze(0).expand(info.batch_size, *operand.shape) if dim is None else operand.movedim(dim, 0)
        for operand, dim in zip((grad, x1, x2, distances), dims, strict=True)
    )
    grad, x1, x2, distances = (batch.contiguous() for batch in batches)
    return torch.ops.aten._cdist_backward(grad, x1, x2, p, distances), 0


def register() -> None:
    """Register the rule. It holds for all devices: the dispatcher has one for each operator."""
    with warnings.catch_warnings():
        # PyTorch warns that a rule was there.
        warnings.simplefilter("ignore")
        torch.library.register_vmap("aten::_cdist_backward", _cdist_backward, lib=_library)
