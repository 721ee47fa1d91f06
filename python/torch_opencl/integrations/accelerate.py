"""Hugging Face accelerate: the device of ``Accelerator()``, several processes, mixed precision, device maps."""

import importlib
import os
import threading
from pathlib import Path
from typing import Any

import torch

import torch_opencl
from torch_opencl.integrations import safetensors
from torch_opencl.integrations._changes import Changes, flagged

__all__ = ["disable", "enable"]

# Set while an Accelerator is being made, by thread.
_being_made = threading.local()


def enable() -> None:
    """Make accelerate, and safetensors under it, use OpenCL; see :func:`torch_opencl.integrations.enable`."""
    safetensors.enable()
    _CHANGES.apply()


def disable() -> None:
    """Undo the changes of :func:`enable` in accelerate."""
    _CHANGES.undo()


def _default_device(original: Any) -> Any:
    def default_device(self: Any) -> torch.device:
        return torch.device("opencl") if torch_opencl.is_available() else original(self)

    return default_device


def _is_wanted(state: Any, cpu: bool) -> bool:
    """Return whether a launcher has started this process as one of several, and it should use this device."""
    if cpu or int(os.environ.get("LOCAL_RANK", "-1")) < 0 or not torch_opencl.is_available():
        return False
    return state.device is None or state.device.type == "opencl"


def _prepare_backend(original: Any) -> Any:
    def prepare_backend(self: Any, cpu: bool = False, sagemaker_dp: bool = False, backend: str | None = None) -> Any:
        if sagemaker_dp or not _is_wanted(self, cpu):
            return original(self, cpu, sagemaker_dp, backend)
        # accelerate's types are a closed list; MULTI_GPU means accelerators with torch.distributed's collectives.
        several = importlib.import_module("accelerate.utils").DistributedType.MULTI_GPU
        return backend or torch.distributed.get_default_backend_for_device("opencl"), several

    return prepare_backend


def _set_device(original: Any) -> Any:
    def set_device(self: Any) -> None:
        # Otherwise accelerate would select a CUDA device.
        if self.distributed_type == "MULTI_GPU" and _is_wanted(self, self._cpu):
            # As accelerate does for other devices; processes share devices if there are too few.
            index = self.local_process_index % torch_opencl.device_count()
            self.device = torch.device("opencl", index) if self.device is None else self.device
            torch_opencl.set_device(self.device)
        original(self)

    return set_device


def _wait_for_everyone(original: Any) -> Any:
    def wait_for_everyone(self: Any) -> None:
        if self.device.type != "opencl" or not self.use_distributed:
            original(self)
        else:
            # accelerate would pass the process's index as the device's, which may be another device or missing.
            torch.distributed.barrier()

    return wait_for_everyone


def _prepare_model(original: Any) -> Any:
    def prepare_model(self: Any, *args: Any, **kwargs: Any) -> Any:
        if self.device.type != "opencl" or not self.multi_device:
            return original(self, *args, **kwargs)
        # accelerate raises for models that a device map has divided, unless the user allows them.
        model = args[0] if args else kwargs["model"]
        if "ACCELERATE_BYPASS_DEVICE_MAP" not in os.environ and self.verify_device_map(model):
            return original(self, *args, **kwargs)
        # Without the bypass accelerate would pass a device index as well; a model on its device needs none.
        patched = importlib.import_module("accelerate.utils").patch_environment
        with patched(accelerate_bypass_device_map="true"):
            return original(self, *args, **kwargs)

    return prepare_model


def _mixed_precision(original: Any) -> Any:
    def mixed_precision(self: Any) -> str:
        # The constructor rejects fp16 on devices that are not in its list, so `__init__` below creates the scaler.
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
    # As accelerate does: states of another machine's devices are ignored.
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
        # PyTorch takes an integer device as an index of the accelerator, which is this backend.
        memory = {index: torch_opencl.mem_get_info(index)[0] for index in devices}
        if all(torch_opencl.get_device_properties(index).host_unified_memory for index in devices):
            # Host and devices share memory, which is counted once.
            return memory
        return memory | {key: size for key, size in original(None).items() if key == "cpu"}

    return get_max_memory


_CHANGES = Changes(
    "accelerate",
    {
        "accelerate.state:PartialState.default_device": _default_device,
        "accelerate.state:PartialState._prepare_backend": _prepare_backend,
        "accelerate.state:PartialState.set_device": _set_device,
        "accelerate.state:PartialState.wait_for_everyone": _wait_for_everyone,
        "accelerate.state:AcceleratorState.mixed_precision": _mixed_precision,
        "accelerate.accelerator:Accelerator.__init__": _init,
        "accelerate.accelerator:Accelerator.prepare_model": _prepare_model,
        "accelerate.utils.memory:clear_device_cache": _clear_device_cache,
        "accelerate.utils.modeling:get_max_memory": _get_max_memory,
    },
)
