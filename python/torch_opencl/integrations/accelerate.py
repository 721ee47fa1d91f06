"""Hugging Face accelerate: the device of ``Accelerator()``, mixed precision, ``device_map="auto"``, random states."""

import os
import threading
from pathlib import Path
from typing import Any

import torch

import torch_opencl
from torch_opencl.integrations._changes import Changes, flagged

__all__ = ["disable", "enable"]

# Set while an Accelerator is being made, by thread.
_being_made = threading.local()


def enable() -> None:
    """Make accelerate use OpenCL; see :func:`torch_opencl.integrations.enable`."""
    _CHANGES.apply()


def disable() -> None:
    """Put back what :func:`enable` has changed."""
    _CHANGES.undo()


def _default_device(original: Any) -> Any:
    def default_device(self: Any) -> torch.device:
        return torch.device("opencl") if torch_opencl.is_available() else original(self)

    return default_device


def _mixed_precision(original: Any) -> Any:
    def mixed_precision(self: Any) -> str:
        # The constructor refuses fp16 on devices that are not in its list; what it would make is made after it.
        precision = original(self)
        hidden = precision == "fp16" and self.device.type == "opencl" and getattr(_being_made, "on", False)
        return "no" if hidden else precision

    return mixed_precision


def _init(original: Any) -> Any:
    def __init__(self: Any, *args: Any, **kwargs: Any) -> None:
        with flagged(_being_made):
            original(self, *args, **kwargs)
        if self.device.type != "opencl":
            return
        self.register_save_state_pre_hook(lambda models, weights, folder: _save_random_state(self, folder))
        self.register_load_state_pre_hook(lambda models, folder: _load_random_state(self, folder))
        if self.mixed_precision == "fp16":
            options = self.scaler_handler.to_kwargs() if self.scaler_handler is not None else {}
            self.native_amp = True
            self.scaler = torch.amp.GradScaler("opencl", **options)

    return __init__


def _random_state_file(accelerator: Any, folder: str | os.PathLike[str]) -> Path:
    return Path(folder) / f"random_states_opencl_{accelerator.process_index}.pt"


def _save_random_state(accelerator: Any, folder: str | os.PathLike[str]) -> None:
    torch.save(torch_opencl.get_rng_state_all(), _random_state_file(accelerator, folder))


def _load_random_state(accelerator: Any, folder: str | os.PathLike[str]) -> None:
    file = _random_state_file(accelerator, folder)
    # As accelerate does with its own: states of another machine's devices are left alone.
    if file.is_file() and len(states := torch.load(file, weights_only=True)) == torch_opencl.device_count():
        torch_opencl.set_rng_state_all(states)


def _clear_device_cache(original: Any) -> Any:
    def clear_device_cache(*args: Any, **kwargs: Any) -> None:
        original(*args, **kwargs)
        torch_opencl.empty_cache()

    return clear_device_cache


def _get_max_memory(original: Any) -> Any:
    def get_max_memory(max_memory: dict[Any, Any] | None = None) -> dict[Any, Any]:
        if max_memory is not None or not torch_opencl.is_available():
            return original(max_memory)
        devices = range(torch_opencl.device_count())
        # PyTorch's number of a device without a type is the accelerator's, and so this backend's.
        memory = {index: torch_opencl.mem_get_info(index)[0] for index in devices}
        if all(torch_opencl.get_device_properties(index).host_unified_memory for index in devices):
            # The host's memory is the devices': counted once.
            return memory
        return memory | {key: size for key, size in original(None).items() if key == "cpu"}

    return get_max_memory


_CHANGES = Changes(
    "accelerate",
    {
        "accelerate.state:PartialState.default_device": _default_device,
        "accelerate.state:AcceleratorState.mixed_precision": _mixed_precision,
        "accelerate.accelerator:Accelerator.__init__": _init,
        "accelerate.utils.memory:clear_device_cache": _clear_device_cache,
        "accelerate.utils.modeling:get_max_memory": _get_max_memory,
    },
)
