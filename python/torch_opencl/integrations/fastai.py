"""fastai: the default device, and mixed precision by ``to_fp16()`` and ``to_bf16()``."""

import importlib
import warnings
from typing import Any

import torch

import torch_opencl
from torch_opencl.integrations._changes import Changes

__all__ = ["disable", "enable"]


def enable() -> None:
    """Make fastai use OpenCL; see :func:`torch_opencl.integrations.enable`."""
    _CHANGES.apply()


def disable() -> None:
    """Undo the changes of :func:`enable` in fastai."""
    _CHANGES.undo()


def _default_device(original: Any) -> Any:
    def default_device(use: Any = -1) -> torch.device:
        chosen = original(use)
        # `use_cuda` has the user's choice: False is the CPU.
        refused = importlib.import_module("fastai.torch_core").defaults.use_cuda is False
        if chosen.type == "cpu" and not refused and torch_opencl.is_available():
            return torch.device("opencl", torch_opencl.current_device())
        return chosen

    return default_device


def _before_fit(original: Any) -> Any:
    def before_fit(self: Any) -> None:
        if self.dls.device.type != "opencl":
            original(self)
            return
        with warnings.catch_warnings():
            # Autocast and scaler for CUDA are replaced below.
            warnings.filterwarnings("ignore", message=".*CUDA is not available", category=UserWarning)
            original(self)
        self.autocast = torch.autocast("opencl", dtype=self.autocast.fast_dtype)
        self.learn.scaler = torch.amp.GradScaler("opencl", **self.kwargs)

    return before_fit


_CHANGES = Changes(
    "fastai",
    {
        "fastai.torch_core:default_device": _default_device,
        "fastai.callback.fp16:MixedPrecision.before_fit": _before_fit,
    },
)
