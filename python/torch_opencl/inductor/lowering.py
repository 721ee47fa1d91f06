"""Lowerings that stand in front of Inductor's."""

import functools
from typing import Any

import torch

# Matmuls, and how many tensors come before the two matrices.
_MATMULS = {"mm": 0, "bmm": 0, "addmm": 1, "baddbmm": 1}


def fuse_epilogues(module: Any) -> None:
    """Let matmuls be fused with what follows them.

    Args:
        module: torch._inductor.lowering.
    """
    for operator, added in _MATMULS.items():
        op = getattr(torch.ops.aten, operator).default
        if op in module.lowerings:
            module.lowerings[op] = _matmul(operator, added, module.lowerings[op])


def _matmul(operator: str, added: int, lower: Any) -> Any:
    @functools.wraps(lower)
    def lowered(*args: Any, **kwargs: Any) -> Any:
        scales = {name: kwargs.get(name, 1) for name in ("beta", "alpha")} if added else {}
        asks_more = any(value is not None for name, value in kwargs.items() if name not in scales)
        if len(args) == added + 2 and not asks_more:
            # What it needs is imported with the rest of the compiler.
            from . import epilogues

            result = epilogues.lowered(operator, args[added:], args[:added], scales)
            if result is not None:
                return result
        return lower(*args, **kwargs)

    return lowered
