"""Fake operators for ours that differ from other devices' in the strides, shapes or devices of their results."""

from collections.abc import Callable
from typing import Any

import torch

_aten = torch.ops.aten


def install(module: Any) -> None:
    """Serve our devices, and leave others to what was there before.

    Args:
        module: torch._subclasses.fake_impls.
    """
    for op, fake in _FAKES.items():
        _install(module.op_implementations_dict, op, fake)


def _install(table: dict, op: Any, fake: Callable) -> None:
    before = table.get(op)

    def serve(fake_mode: Any, func: Any, *args: Any, **kwargs: Any) -> Any:
        first = args[0] if args else next(iter(kwargs.values()))
        if getattr(first, "fake_device", first.device).type == "opencl":
            return fake(before, fake_mode, func, *args, **kwargs)
        return before(fake_mode, func, *args, **kwargs) if before else NotImplemented

    table[op] = serve


def _attention(before: Any, fake_mode: Any, func: Any, *args: Any, **kwargs: Any) -> tuple:
    """Heads lie beside each other in the output; seed and offset are numbers of the host."""
    query, key, value = args[:3]
    with fake_mode:
        *batch, heads, length, _ = query.shape
        out = query.new_empty([*batch, length, heads, value.shape[-1]]).transpose(-3, -2)
        dtype = torch.float64 if query.dtype == torch.float64 else torch.float32
        statistics = query.new_empty([batch[0] if batch else 1, heads, length], dtype=dtype)
        seed, offset = (torch.empty((), dtype=torch.int64, device="cpu") for _ in range(2))
    return out, statistics, None, None, length, key.shape[-2], seed, offset, None


def _convolution(before: Any, fake_mode: Any, func: Any, *args: Any, **kwargs: Any) -> Any:
    """The output is channels-last where the input or the weight is."""
    result = before(fake_mode, func, *args, **kwargs)
    is_backward = func is _aten.convolution_backward.default
    input, weight = args[1:3] if is_backward else args[:2]
    formats = {4: torch.channels_last, 5: torch.channels_last_3d}
    last = formats.get(weight.dim())
    with fake_mode:
        is_last = last is not None and any(
            torch._prims_common.suggest_memory_format(tensor) == last for tensor in (input, weight)
        )
        if not is_last:
            return result
        if is_backward:
            grads = [grad if grad is None else grad.contiguous(memory_format=last) for grad in result[:2]]
            return (*grads, result[2])
        return result.contiguous(memory_format=last)


_FAKES: dict[Any, Callable] = {
    _aten._scaled_dot_product_fused_attention_overrideable.default: _attention,
    _aten.convolution.default: _convolution,
    _aten._convolution.default: _convolution,
    _aten.convolution_backward.default: _convolution,
}
