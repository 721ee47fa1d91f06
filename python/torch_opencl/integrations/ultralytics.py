"""ultralytics: devices named "opencl" in ``model.train(device=...)``, ``predict``, ``val`` and ``export``."""

from typing import Any

import torch

from torch_opencl._utils import _get_device_index
from torch_opencl.integrations._changes import Changes

__all__ = ["disable", "enable"]


def enable() -> None:
    """Make ultralytics take "opencl"; see :func:`torch_opencl.integrations.enable`."""
    _CHANGES.apply()


def disable() -> None:
    """Put back what :func:`enable` has changed."""
    _CHANGES.undo()


def _select_device(original: Any) -> Any:
    def select_device(device: Any = "", *args: Any, **kwargs: Any) -> torch.device:
        if str(device).partition(":")[0] == "opencl":
            return torch.device("opencl", _get_device_index(str(device), optional=True))
        return original(device, *args, **kwargs)

    return select_device


def _parse_device(original: Any) -> Any:
    def parse_device(device: Any = "") -> str:
        return str(device) if str(device).partition(":")[0] == "opencl" else original(device)

    return parse_device


_CHANGES = Changes(
    "ultralytics",
    {
        "ultralytics.utils.torch_utils:select_device": _select_device,
        "ultralytics.utils.torch_utils:parse_device": _parse_device,
    },
)
