"""Fake implementations of operators whose results have other strides, shapes or devices than on other devices."""

from collections.abc import Callable
from typing import Any

import torch

from .eager_kernels import INTERPOLATIONS

_aten = torch.ops.aten
# Interpolations whose gradient is contiguous; for others it is channels-last if the output's gradient is.
_CONTIGUOUS_GRADIENTS = ("upsample_nearest3d", "_upsample_nearest_exact3d", "upsample_bicubic2d")


def install(module: Any) -> None:
    """Add the fakes for our devices; others keep PyTorch's.

    Args:
        module: torch._subclasses.fake_impls.
    """
    for op, fake in _FAKES.items():
        _install(module.op_implementations_dict, op, fake)


def _install(table: dict, op: Any, fake: Callable) -> None:
    before = table.get(op)

    def call_fake(fake_mode: Any, func: Any, *args: Any, **kwargs: Any) -> Any:
        first = args[0] if args else next(iter(kwargs.values()))
        if getattr(first, "fake_device", first.device).type == "opencl":
            return fake(before, fake_mode, func, *args, **kwargs)
        return before(fake_mode, func, *args, **kwargs) if before else NotImplemented

    table[op] = call_fake


def _attention(before: Any, fake_mode: Any, func: Any, *args: Any, **kwargs: Any) -> tuple:
    """In the output's memory the heads of a position are adjacent; seed and offset are CPU tensors."""
    query, key, value = args[:3]
    with fake_mode:
        *batch, heads, length, _ = query.shape
        out = query.new_empty([*batch, length, heads, value.shape[-1]]).transpose(-3, -2)
        dtype = torch.float64 if query.dtype == torch.float64 else torch.float32
        statistics = query.new_empty([batch[0] if batch else 1, heads, length], dtype=dtype)
        seed, offset = (torch.empty((), dtype=torch.int64, device="cpu") for _ in range(2))
    return out, statistics, None, None, length, key.shape[-2], seed, offset, None


def _attention_backward(before: Any, fake_mode: Any, func: Any, *args: Any, **kwargs: Any) -> tuple:
    """Gradients have their tensor's strides if its rows are dense; other gradients and the bias's are contiguous."""
    bias, wanted = args[4:6]
    with fake_mode:
        likes = map(torch.empty_like, args[1:4])
        gradients = [like if like.stride(-1) == 1 else like.contiguous() for like in likes]
        return (*gradients, bias.new_empty(bias.shape) if bias is not None and wanted[3] else None)


def _convolution(before: Any, fake_mode: Any, func: Any, *args: Any, **kwargs: Any) -> Any:
    """The output is channels-last if the input or the weight is."""
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


def _interpolation_backward(before: Any, fake_mode: Any, func: Any, *args: Any, **kwargs: Any) -> torch.Tensor:
    """PyTorch's fakes do not accept symbolic sizes."""
    grad_output, _, input_size = args[:3]
    is_contiguous = func._opname.removesuffix("_backward") in _CONTIGUOUS_GRADIENTS
    with fake_mode:
        memory_format = torch._prims_common.suggest_memory_format(grad_output)
        return grad_output.new_empty(input_size).contiguous(
            memory_format=torch.contiguous_format if is_contiguous else memory_format
        )


_FAKES: dict[Any, Callable] = {
    **{getattr(_aten, f"{name}_backward").default: _interpolation_backward for name in INTERPOLATIONS},
    _aten._scaled_dot_product_fused_attention_overrideable.default: _attention,
    _aten._scaled_dot_product_fused_attention_overrideable_backward.default: _attention_backward,
    _aten.convolution.default: _convolution,
    _aten._convolution.default: _convolution,
    _aten.convolution_backward.default: _convolution,
}
