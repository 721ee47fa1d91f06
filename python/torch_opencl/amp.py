"""What :func:`torch.autocast` asks of a back end."""

import torch

__all__ = ["get_amp_supported_dtype"]


def get_amp_supported_dtype() -> list[torch.dtype]:
    """Return the dtypes that ``torch.autocast("opencl", dtype=...)`` accepts.

    Returns:
        float16 and bfloat16. Both are storage types here: kernels compute in float32.
    """
    return [torch.float16, torch.bfloat16]
