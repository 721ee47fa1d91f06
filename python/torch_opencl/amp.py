"""Mixed precision: the hooks of :func:`torch.autocast`, and the classes of ``torch.amp`` for this device."""

from collections.abc import Callable
from typing import Any

import torch

__all__ = ["GradScaler", "autocast", "custom_bwd", "custom_fwd", "get_amp_supported_dtype"]


def get_amp_supported_dtype() -> list[torch.dtype]:
    """Return the dtypes that ``torch.autocast("opencl", dtype=...)`` accepts.

    Returns:
        float16 and bfloat16. Both are only storage types: kernels compute in float32.
    """
    return [torch.float16, torch.bfloat16]


class autocast(torch.autocast):
    """:class:`torch.autocast` for this device.

    Args:
        enabled: whether to cast.
        dtype: the lower precision, float16 or bfloat16.
        cache_enabled: whether casts of weights are cached for the block.
    """

    def __init__(
        self, enabled: bool = True, dtype: torch.dtype = torch.float16, cache_enabled: bool | None = True
    ) -> None:
        super().__init__("opencl", dtype=dtype, enabled=enabled, cache_enabled=cache_enabled)


class GradScaler(torch.amp.GradScaler):
    """:class:`torch.amp.GradScaler` for this device.

    Args:
        init_scale: the first scale.
        growth_factor: the scale is multiplied by it after ``growth_interval`` steps without overflow.
        backoff_factor: the scale is multiplied by it after a step with overflow.
        growth_interval: see ``growth_factor``.
        enabled: whether to scale.
    """

    def __init__(
        self,
        init_scale: float = 2.0**16,
        growth_factor: float = 2.0,
        backoff_factor: float = 0.5,
        growth_interval: int = 2000,
        enabled: bool = True,
    ) -> None:
        super().__init__("opencl", init_scale, growth_factor, backoff_factor, growth_interval, enabled)


def custom_fwd(fwd: Callable[..., Any] | None = None, *, cast_inputs: torch.dtype | None = None) -> Callable[..., Any]:
    """:func:`torch.amp.custom_fwd` for this device: a decorator of ``forward`` of a ``torch.autograd.Function``.

    Args:
        fwd: the function; None if the decorator is called with options.
        cast_inputs: the dtype that floating inputs are cast to within autocast, which is then disabled in ``fwd``;
            None changes neither.

    Returns:
        The decorated function, or the decorator.
    """
    return torch.amp.custom_fwd(fwd, device_type="opencl", cast_inputs=cast_inputs)


def custom_bwd(bwd: Callable[..., Any] | None = None) -> Callable[..., Any]:
    """:func:`torch.amp.custom_bwd` for this device: a decorator of ``backward``, which runs as ``forward`` did.

    Args:
        bwd: the function; None if the decorator is called without it.

    Returns:
        The decorated function, or the decorator.
    """
    return torch.amp.custom_bwd(bwd, device_type="opencl")
