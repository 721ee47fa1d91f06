"""Shared by the modules of compositions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import Tensor
from torch.utils._pytree import tree_map_only


def on_host(op: Callable[..., Any], self: Tensor, *args: Any, **kwargs: Any) -> Any:
    """Call an operator on copies on the host: for arguments that it refuses, so that the error is ATen's own."""
    args, kwargs = tree_map_only(Tensor, Tensor.cpu, (args, kwargs))
    return tree_map_only(Tensor, lambda result: result.to(self.device), op(self.cpu(), *args, **kwargs))
