"""Inductor's lowerings, where they are for Triton and C++ alone, or not right for another code generator."""

import functools
from collections.abc import Callable, Sequence
from typing import Any

import sympy
import torch
from torch._inductor.virtualized import ops

# Matmuls, and how many tensors come before the two matrices.
_MATMULS = {"mm": 0, "bmm": 0, "addmm": 1, "baddbmm": 1}


def install(module: Any) -> None:
    """Change the lowerings of opencl, and leave those of other devices as they are.

    Args:
        module: torch._inductor.lowering.
    """
    module._make_reduction_inner = _with_positions(module._make_reduction_inner)
    for operator, added in _MATMULS.items():
        op = getattr(torch.ops.aten, operator).default
        if op in module.lowerings:
            module.lowerings[op] = _matmul(operator, added, module.lowerings[op])


def _with_positions(make: Callable[..., dict[str, Any]]) -> Callable[..., dict[str, Any]]:
    """Let indices of extremes be those of the tensor as it is indexed: loops run in the order of the memory."""

    @functools.wraps(make)
    def made(x: Any, *, reduction_type: str | None = None, **options: Any) -> dict[str, Any]:
        # Releases that ask for the type ask for it by name.
        kwargs = make(x, **options) if reduction_type is None else make(x, reduction_type=reduction_type, **options)
        sizes, load = kwargs["reduction_ranges"], kwargs["inner_fn"]
        is_index = reduction_type in ("argmax", "argmin") and len(sizes) > 1
        if not is_index or kwargs["device"].type != "opencl":
            return kwargs

        def load_with_position(index: Sequence[sympy.Expr], reduction_index: Sequence[sympy.Expr]) -> tuple[Any, Any]:
            position = sympy.S.Zero
            for size, i in zip(sizes, reduction_index, strict=True):
                position = position * size + i
            return load(index, reduction_index), ops.index_expr(sympy.expand(position), torch.int64)

        return {**kwargs, "inner_fn": load_with_position}

    return made


def _matmul(operator: str, added: int, lower: Any) -> Any:
    """Let a matmul be fused with what follows it."""

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
