"""Hugging Face transformers: training, pipelines, bf16, random states, caches, fused layers, packed checkpoints."""

import importlib
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

import torch_opencl
from torch_opencl.integrations import accelerate
from torch_opencl.integrations._changes import Changes

__all__ = ["disable", "enable"]

# These import transformers.
_QUANTIZERS = "torch_opencl.integrations._quantizers"
_LAYERS = "torch_opencl.integrations._transformers_layers"


def enable() -> None:
    """Make transformers, and accelerate under it, use OpenCL; see :func:`torch_opencl.integrations.enable`."""
    # May fail with another version of transformers, before anything is changed.
    quantizers = importlib.import_module(_QUANTIZERS)
    importlib.import_module(_LAYERS)
    accelerate.enable()
    _CHANGES.apply()
    quantizers.enable()


def disable() -> None:
    """Undo the changes of :func:`enable` in transformers."""
    _CHANGES.undo()
    if _QUANTIZERS in sys.modules:
        sys.modules[_QUANTIZERS].disable()
    if _LAYERS in sys.modules:
        sys.modules[_LAYERS].restore()


def _post_init(original: Any) -> Any:
    def post_init(self: Any) -> None:
        original(self)
        sys.modules[_LAYERS].fuse_layers(self)

    return post_init


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
        # A negative index is the CPU.
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


def _update_cache(original: Any) -> Any:
    def update(
        self: Any, key_states: torch.Tensor, value_states: torch.Tensor, layer_idx: int, *args: Any, **kw: Any
    ) -> Any:
        if not self.offloading or key_states.device.type != "opencl":
            return original(self, key_states, value_states, layer_idx, *args, **kw)
        # The original uses CUDA's stream. This layer was prefetched while the layer before it was computed.
        stream = torch_opencl.default_stream(key_states.device)
        stream.wait_stream(self.prefetch_stream)
        self.offloading = False
        try:
            states = original(self, key_states, value_states, layer_idx, *args, **kw)
        finally:
            self.offloading = True
        self.offload(layer_idx, self.only_non_sliding)
        self.prefetch_stream.wait_stream(stream)
        self.prefetch(layer_idx + 1, self.only_non_sliding)
        return states

    return update


def _memory_breakdown(original: Any) -> Any:
    def get_device_and_memory_breakdown() -> tuple[torch.device, int, int, int]:
        if not torch_opencl.is_available():
            return original()
        torch_opencl.synchronize()
        torch_opencl.empty_cache()
        total = torch_opencl.mem_get_info()[1]
        reserved, allocated = torch_opencl.memory_reserved(), torch_opencl.memory_allocated()
        return torch.device("opencl", torch_opencl.current_device()), total, reserved, allocated

    return get_device_and_memory_breakdown


def _memory_share(original: Any) -> Any:
    def resolve_max_memory_percent(cb_config: Any, has_logit_processors: bool, device: Any = None) -> None:
        is_opencl = device is not None and device.type == "opencl"
        if is_opencl and torch_opencl.get_device_properties(device).host_unified_memory:
            # The share that is used of the host's memory.
            device = torch.device("cpu")
        original(cb_config, has_logit_processors, device)

    return resolve_max_memory_percent


_BATCHING = "transformers.generation.continuous_batching"

_CHANGES = Changes(
    "transformers",
    {
        "transformers.utils.import_utils:is_torch_bf16_gpu_available": _is_torch_bf16_gpu_available,
        "transformers.modeling_utils:PreTrainedModel.post_init": _post_init,
        "transformers.training_args:TrainingArguments._setup_devices": _setup_devices,
        "transformers.pipelines.base:Pipeline.__init__": _pipeline_init,
        "transformers.cache_utils:Cache.update": _update_cache,
        f"{_BATCHING}.utils:get_device_and_memory_breakdown": _memory_breakdown,
        f"{_BATCHING}.initialization:resolve_max_memory_percent": _memory_share,
        "transformers.trainer:Trainer._save_rng_state": _save_rng_state,
        "transformers.trainer:Trainer._load_rng_state": _load_rng_state,
    },
)
