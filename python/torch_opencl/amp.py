"""Mixed precision: what :func:`torch.autocast` asks of a backend, and its classes with this device filled in."""

import torch

__all__ = ["GradScaler", "autocast", "get_amp_supported_dtype"]


def get_amp_supported_dtype() -> list[torch.dtype]:
    """Return the dtypes that ``torch.autocast("opencl", dtype=...)`` accepts.

    Returns:
        float16 and bfloat16. Both are storage types here: kernels compute in float32.
    """
    return [torch.float16, torch.bfloat16]


class autocast(torch.autocast):
    """:class:`torch.autocast` for this device.

    Args:
        enabled: whether to cast.
        dtype: the lower precision, float16 or bfloat16.
        cache_enabled: whether weights that are cast are kept for the block.
    """

    def __init__(
        self, enabled: bool = True, dtype: torch.dtype = torch.float16, cache_enabled: bool | None = True
    ) -> None:
        super().__init__("opencl", dtype=dtype, enabled=enabled, cache_enabled=cache_enabled)


class GradScaler(torch.amp.GradScaler):
    """:class:`torch.amp.GradScaler` for this device.

    Args:
        init_scale: the first scale.
        growth_factor: what the scale is multiplied with after ``growth_interval`` steps without overflow.
        backoff_factor: what the scale is multiplied with after a step with overflow.
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
