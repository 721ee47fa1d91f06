"""A batching rule for `_cdist_backward` under torch.vmap, instead of PyTorch's."""

import warnings
from typing import Any

import torch

# The registration lasts as long as this object.
_library = torch.library.Library("aten", "FRAGMENT")


def _cdist_backward(info: Any, in_dims: tuple, *args: Any) -> tuple[torch.Tensor, int]:
    """Give every tensor the batch dimension. PyTorch's rule is wrong if only `grad` has one."""
    tensors = [(arg, dim) for arg, dim in zip(args, in_dims, strict=True) if isinstance(arg, torch.Tensor)]
    rank = max(arg.dim() - (dim is not None) for arg, dim in tensors)

    def batch(arg: Any, dim: int | None) -> Any:
        if not isinstance(arg, torch.Tensor):
            return arg
        moved = arg.unsqueeze(0).expand(info.batch_size, *arg.shape) if dim is None else arg.movedim(dim, 0)
        # The batch is the first dimension, and the others broadcast from the last.
        missing = [None] * (rank + 1 - moved.dim())
        return moved[(slice(None), *missing)].contiguous()

    return torch.ops.aten._cdist_backward(*map(batch, args, in_dims)), 0


def register() -> None:
    """Register the rule. It applies to all devices: the dispatcher has one rule per operator."""
    with warnings.catch_warnings():
        # PyTorch warns that there already was a rule.
        warnings.simplefilter("ignore")
        torch.library.register_vmap("aten::_cdist_backward", _cdist_backward, lib=_library)
