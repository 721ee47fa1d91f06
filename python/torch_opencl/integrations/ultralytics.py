"""ultralytics: "opencl" in ``model.train(device=...)``, ``predict``, ``val`` and ``export``; scaled gradients."""

from typing import Any

import torch

from torch_opencl._utils import _get_device_index
from torch_opencl.integrations._changes import Changes

__all__ = ["disable", "enable"]


def enable() -> None:
    """Make ultralytics accept "opencl"; see :func:`torch_opencl.integrations.enable`."""
    _CHANGES.apply()


def disable() -> None:
    """Undo the changes of :func:`enable`."""
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


def _give_scaler(trainer: Any) -> None:
    """Replace a scaler for CUDA, which is disabled: ultralytics computes in float16 on every device except the CPU."""
    if trainer.device.type == "opencl" and trainer.scaler._device != "opencl":
        trainer.scaler = torch.amp.GradScaler("opencl", enabled=trainer.amp and trainer.args.amp != "bf16")


def _setup_train(original: Any) -> Any:
    def setup_train(self: Any, *args: Any, **kwargs: Any) -> None:
        original(self, *args, **kwargs)
        _give_scaler(self)

    return setup_train


def _load_checkpoint_state(original: Any) -> Any:
    def load_checkpoint_state(self: Any, *args: Any, **kwargs: Any) -> None:
        # Called by `_setup_train`, and reads the scaler's state.
        _give_scaler(self)
        original(self, *args, **kwargs)

    return load_checkpoint_state


_CHANGES = Changes(
    "ultralytics",
    {
        "ultralytics.utils.torch_utils:select_device": _select_device,
        "ultralytics.utils.torch_utils:parse_device": _parse_device,
        "ultralytics.engine.trainer:BaseTrainer._setup_train": _setup_train,
        "ultralytics.engine.trainer:BaseTrainer._load_checkpoint_state": _load_checkpoint_state,
    },
)
