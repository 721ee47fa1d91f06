"""safetensors: loads files to devices named "opencl", which its list of names lacks."""

from typing import Any

import torch

from torch_opencl._utils import _get_device_index
from torch_opencl.integrations._changes import Changes

__all__ = ["disable", "enable"]


def enable() -> None:
    """Make safetensors accept "opencl"; see :func:`torch_opencl.integrations.enable`."""
    _CHANGES.apply()


def disable() -> None:
    """Undo the changes of :func:`enable`."""
    _CHANGES.undo()


def _safe_open(original: Any) -> Any:
    def safe_open(filename: Any, framework: str = "pt", device: Any = "cpu", **options: Any) -> Any:
        if isinstance(device, str | torch.device) and torch.device(device).type == "opencl":
            # safetensors passes an integer to PyTorch, which takes it as an index of the accelerator.
            device = _get_device_index(device, optional=True)
        return original(filename, framework, device, **options)

    return safe_open


_CHANGES = Changes("safetensors", {"safetensors:safe_open": _safe_open})
