"""safetensors: files are loaded to devices named "opencl", which its own list of names lacks."""

from typing import Any

import torch

from torch_opencl._utils import _get_device_index
from torch_opencl.integrations._changes import Changes

__all__ = ["disable", "enable"]


def enable() -> None:
    """Make safetensors take "opencl"; see :func:`torch_opencl.integrations.enable`."""
    _CHANGES.apply()


def disable() -> None:
    """Put back what :func:`enable` has changed."""
    _CHANGES.undo()


def _safe_open(original: Any) -> Any:
    def safe_open(filename: Any, framework: str = "pt", device: Any = "cpu", **options: Any) -> Any:
        if isinstance(device, str | torch.device) and torch.device(device).type == "opencl":
            # A number is one of the accelerator's devices, which safetensors leaves to PyTorch.
            device = _get_device_index(device, optional=True)
        return original(filename, framework, device, **options)

    return safe_open


_CHANGES = Changes("safetensors", {"safetensors:safe_open": _safe_open})
