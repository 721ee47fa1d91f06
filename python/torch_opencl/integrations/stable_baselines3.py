"""stable-baselines3: the device of agents without one, or with "auto"."""

from typing import Any

import torch

import torch_opencl
from torch_opencl.integrations._changes import Changes

__all__ = ["disable", "enable"]


def enable() -> None:
    """Make stable-baselines3 use OpenCL; see :func:`torch_opencl.integrations.enable`."""
    _CHANGES.apply()


def disable() -> None:
    """Undo the changes of :func:`enable` in stable-baselines3."""
    _CHANGES.undo()


def _get_device(original: Any) -> Any:
    def get_device(device: torch.device | str = "auto") -> torch.device:
        if device == "auto" and torch_opencl.is_available():
            return torch.device("opencl")
        return original(device)

    return get_device


_CHANGES = Changes("stable-baselines3", {"stable_baselines3.common.utils:get_device": _get_device})
