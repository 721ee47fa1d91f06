"""Hugging Face transformers: the device of ``Trainer`` and ``pipeline``, bf16, and random states in checkpoints."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

import torch_opencl
from torch_opencl.integrations import accelerate
from torch_opencl.integrations._changes import Changes

__all__ = ["disable", "enable"]


def enable() -> None:
    """Make transformers, and accelerate under it, use OpenCL; see :func:`torch_opencl.integrations.enable`."""
    accelerate.enable()
    _CHANGES.apply()


def disable() -> None:
    """Put back what :func:`enable` has changed in transformers."""
    _CHANGES.undo()


def _is_torch_bf16_gpu_available(original: Callable[[], bool]) -> Callable[[], bool]:
    return lambda: original() or torch_opencl.is_bf16_supported()


def _setup_devices(original: Any) -> Any:
    def setup_devices(self: Any) -> torch.device:
        device = original(self)
        state = self.distributed_state
        alone = state is not None and state.num_processes == 1
        if self.use_cpu or not alone or state.device.type != "opencl":
            return device
        self._n_gpu = 1
        return state.device

    return setup_devices


def _pipeline_init(original: Any) -> Any:
    def __init__(self: Any, model: Any, *args: Any, device: Any = None, **kwargs: Any) -> None:
        placed = getattr(model, "hf_device_map", None) is not None
        # A number below 0 is the CPU.
        numbered = device is None or (isinstance(device, int) and device >= 0)
        if numbered and not placed and torch_opencl.is_available():
            device = torch.device("opencl", device or 0)
        original(self, model, *args, device=device, **kwargs)

    return __init__


def _random_state_file(trainer: Any, folder: str | os.PathLike[str]) -> Path:
    return Path(folder) / f"rng_state_opencl_{trainer.args.process_index}.pth"


def _save_rng_state(original: Any) -> Any:
    def save_rng_state(self: Any, output_dir: str) -> None:
        original(self, output_dir)
        if self.args.device.type == "opencl":
            torch.save(torch_opencl.get_rng_state(), _random_state_file(self, output_dir))

    return save_rng_state


def _load_rng_state(original: Any) -> Any:
    def load_rng_state(self: Any, checkpoint: str | None) -> None:
        original(self, checkpoint)
        if checkpoint is not None and self.args.device.type == "opencl":
            file = _random_state_file(self, checkpoint)
            if file.is_file():
                torch_opencl.set_rng_state(torch.load(file, weights_only=True))

    return load_rng_state


_CHANGES = Changes(
    "transformers",
    {
        "transformers.utils.import_utils:is_torch_bf16_gpu_available": _is_torch_bf16_gpu_available,
        "transformers.training_args:TrainingArguments._setup_devices": _setup_devices,
        "transformers.pipelines.base:Pipeline.__init__": _pipeline_init,
        "transformers.trainer:Trainer._save_rng_state": _save_rng_state,
        "transformers.trainer:Trainer._load_rng_state": _load_rng_state,
    },
)
