"""Replacements of Inductor's lowerings that support only Triton and C++, or are wrong for other code generators."""

import functools
from collections.abc import Callable, Sequence
from typing import Any

import sympy
import torch
from torch._inductor.virtualized import V, ops

from . import eager_kernels

# Matmuls, and the number of tensor arguments before the two matrices.
_MATMULS = {"mm": 0, "bmm": 0, "addmm": 1, "baddbmm": 1}


def install(module: Any) -> None:
    """Change the lowerings for opencl; the lowerings for other devices are unchanged.

    Args:
        module: torch._inductor.lowering.
    """
    for kind in ("argmax", "argmin"):
        op = getattr(torch.ops.aten, kind).default
        module.lowerings[op] = _with_positions(module, kind, module.lowerings[op])
    module.get_constant_value = _not_on_opencl(module.get_constant_value)
    for operator, added in _MATMULS.items():
        op = getattr(torch.ops.aten, operator).default
        if op in module.lowerings:
            module.lowerings[op] = _matmul(operator, added, module.lowerings[op])
    eager_kernels.lower(module)
    convolution = torch.ops.aten.convolution.default
    if convolution in module.lowerings:
        module.lowerings[convolution] = _convolution(module, module.lowerings[convolution])


def _not_on_opencl(constant_value: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Keep divisions by constants; Inductor multiplies by the reciprocal on every device except the CPU.

    The products differ from eager mode in the last bit, and are infinite or NaN for the smallest divisors.
    """

    @functools.wraps(constant_value)
    def value(x: Any) -> Any:
        constant = constant_value(x)
        return None if constant is not None and x.get_device().type == "opencl" else constant

    return value


def _with_positions(module: Any, kind: str, lower: Any) -> Any:
    """Make argmax and argmin return indices in the tensor's index order: loops run in memory order."""

    @functools.wraps(lower)
    def lowered(x: Any, axis: Any = None, keepdims: bool = False) -> Any:
        sizes = x.get_size()
        if axis is not None or len(sizes) <= 1 or x.get_device().type != "opencl":
            return lower(x, axis, keepdims)
        kwargs = module._make_reduction_inner(
            x, axis=None, keepdims=keepdims, dtype=None, override_return_dtype=torch.int64
        )
        load = kwargs["inner_fn"]

        def load_with_position(index: Sequence[sympy.Expr], reduction_index: Sequence[sympy.Expr]) -> tuple[Any, Any]:
            position = sympy.S.Zero
            for size, i in zip(sizes, reduction_index, strict=True):
                position = position * size + i
            return load(index, reduction_index), ops.index_expr(sympy.expand(position), torch.int64)

        kwargs["inner_fn"] = load_with_position
        result = module.Reduction.create(reduction_type=kind, input_node=x, **kwargs)
        if isinstance(result.data.data, module.Reduction):
            result.realize()
        return result

    return lowered


def _matmul(operator: str, added: int, lower: Any) -> Any:
    """Make a matmul fusible with following operations."""

    @functools.wraps(lower)
    def lowered(*args: Any, **kwargs: Any) -> Any:
        scales = {name: kwargs.get(name, 1) for name in ("beta", "alpha")} if added else {}
        asks_more = any(value is not None for name, value in kwargs.items() if name not in scales)
        if len(args) == added + 2 and not asks_more:
            # Imported late, because it imports the rest of the compiler.
            from . import matmuls

            result = matmuls.lowered(operator, args[added:], args[:added], scales)
            if result is not None:
                return result
        return lower(*args, **kwargs)

    return lowered


def _convolution(module: Any, lower: Any) -> Any:
    """Make a convolution fusible with following operations, or at least add the bias in its kernel.

    PyTorch would add the bias in a separate kernel on GPUs.
    """
    eager = module.fallback_handler(torch.ops.aten.convolution.default, add_to_fallback_set=False)

    @functools.wraps(lower)
    def lowered(x: Any, weight: Any, bias: Any, *args: Any, **kwargs: Any) -> Any:
        # Otherwise PyTorch chooses the layouts.
        is_as_given = not V.graph.layout_opt and len(x.get_size()) == len(weight.get_size())
        if x.get_device().type != "opencl" or not is_as_given:
            return lower(x, weight, bias, *args, **kwargs)
        # Imported late, because it imports the rest of the compiler.
        from . import convolutions

        # Stride, padding, dilation, whether it is transposed, the output's padding, groups.
        if len(args) == 6 and not args[3]:
            result = convolutions.lowered(x, weight, bias, args[:3], args[5])
            if result is not None:
                return result
        return (lower if bias is None else eager)(x, weight, bias, *args, **kwargs)

    return lowered
