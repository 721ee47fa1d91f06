"""Scripts written for CUDA: ``"cuda"`` and ``torch.cuda`` mean OpenCL if there is no CUDA device.

Functions that take a device are replaced by ones that translate it, and names of ``torch.cuda`` by names of
``torch.opencl``. Other functions, which are nearly all that a training step calls, are unchanged.
"""

import functools
import importlib
import sys
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any

import torch

import torch_opencl
from torch_opencl import _hooks, _utils
from torch_opencl.integrations._changes import Changes

__all__ = ["disable", "enable"]

_INDUCTOR = "torch._inductor.utils"


def enable() -> None:
    """Make "cuda" mean OpenCL; see :func:`torch_opencl.integrations.enable`.

    Raises:
        RuntimeError: there is a CUDA device.
    """
    if _CHANGES.done:
        return
    if count := torch.cuda.device_count():
        raise RuntimeError(
            f'there are {count} CUDA devices, which "cuda" means. Name "opencl" in the script, or hide them by '
            "CUDA_VISIBLE_DEVICES=-1 in the environment."
        )
    _CHANGES.apply()
    _utils.device_types.add("cuda")
    _hooks.when_imported(_INDUCTOR, "torch_opencl.integrations.cuda:leave_out_of_gpu_types")
    # TorchScript looks up PyTorch's functions by identity.
    for each in _CHANGES.done:
        if (builtin := torch.jit._builtins._find_builtin(each.present)) is not None:
            torch.jit._builtins._register_builtin(each.other, builtin)


def disable() -> None:
    """Undo the changes of :func:`enable`."""
    for each in _CHANGES.done:
        torch.jit._builtins._get_builtin_table().pop(id(each.other), None)
    _CHANGES.undo()
    _utils.device_types.discard("cuda")
    if (inductor := sys.modules.get(_INDUCTOR)) and "cuda" not in inductor.GPU_TYPES:
        inductor.GPU_TYPES.insert(0, "cuda")


def leave_out_of_gpu_types(inductor: ModuleType) -> None:
    """Make PyTorch's compiler see one type of GPU and not two while "cuda" means OpenCL.

    Args:
        inductor: ``torch._inductor.utils``.
    """
    if _CHANGES.done and "cuda" in inductor.GPU_TYPES:
        inductor.GPU_TYPES.remove("cuda")


def _translated(device: Any) -> Any:
    """Return the OpenCL device for a CUDA device or its name, and anything else unchanged."""
    if isinstance(device, str):
        return f"opencl{device[4:]}" if device == "cuda" or device.startswith("cuda:") else device
    if isinstance(device, torch.device) and device.type == "cuda":
        return torch.device("opencl" if device.index is None else f"opencl:{device.index}")
    return device


def _with_device(original: Callable[..., Any]) -> Callable[..., Any]:
    """Make a replacement of a function whose device is a keyword argument."""

    @functools.wraps(original)
    def call(*args: Any, **kwargs: Any) -> Any:
        if kwargs.get("device") is not None:
            kwargs["device"] = _translated(kwargs["device"])
        return original(*args, **kwargs)

    return call


def _anywhere(original: Callable[..., Any]) -> Callable[..., Any]:
    """Make a replacement of a function or method that takes a device, or its type, in any argument."""

    @functools.wraps(original)
    def call(*args: Any, **kwargs: Any) -> Any:
        named = {name: _translated(value) for name, value in kwargs.items()}
        return original(*map(_translated, args), **named)

    return call


def _to_device(original: Callable[..., Any]) -> Callable[..., Any]:
    """Make a replacement of the method ``cuda`` of a tensor or a storage."""

    @functools.wraps(original)
    def cuda(self: Any, device: _utils.DeviceLike = None, non_blocking: bool = False, **kwargs: Any) -> Any:
        place = torch.device("opencl", _utils._get_device_index(device, optional=True))
        return self.to(device=place, non_blocking=non_blocking, **kwargs)

    return cuda


def _type(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def type_(self: Any, dtype: Any = None, *args: Any, **kwargs: Any) -> Any:
        if isinstance(dtype, str):
            dtype = dtype.replace("torch.cuda.", "torch.opencl.")
        elif isinstance(dtype, type) and dtype.__module__ == "torch.opencl":
            dtype = f"torch.opencl.{dtype.__name__}"
        return original(self, dtype, *args, **kwargs)

    return type_


def _autocast(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def __init__(self: Any, device_type: str, dtype: torch.dtype | None = None, *args: Any, **kwargs: Any) -> None:
        if device_type == "cuda" and dtype is None:
            # CUDA's default is float16, OpenCL's differs.
            dtype = torch.get_autocast_dtype("cuda")
        original(self, _translated(device_type), dtype, *args, **kwargs)

    return __init__


def _grad_scaler(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def __init__(self: Any, device: str = "cuda", *args: Any, **kwargs: Any) -> None:
        original(self, _translated(device), *args, **kwargs)

    return __init__


def _generator(original: Any) -> Any:
    class Kind(type):
        """Makes isinstance() accept generators that PyTorch makes."""

        def __instancecheck__(cls, instance: Any) -> bool:
            return isinstance(instance, original)

    class Generator(metaclass=Kind):
        """Makes PyTorch generators."""

        def __new__(cls, device: Any = "cpu") -> Any:
            return original(device=_translated(device))

    Generator.__doc__ = original.__doc__
    return Generator


def _factories() -> Iterator[str]:
    """Yield the names of functions that make tensors on a device."""
    # PyTorch caches this set, to which it applies a default device: it has to hold the original functions.
    constructors = importlib.import_module("torch.utils._device")._device_constructors()
    likes = ("empty", "full", "ones", "rand", "randint", "randn", "zeros")
    yield from (f"torch:{name}_like" for name in likes)
    yield "torch:normal"
    for module in (torch, torch.fft, torch.nested):
        for name, value in vars(module).items():
            if callable(value) and getattr(value, "__hash__", None) and value in constructors:
                yield f"{module.__name__}:{name}"


def _names_of_cuda() -> Iterator[tuple[str, Any]]:
    """Yield the names of ``torch.cuda`` that ``torch.opencl`` has, also in the modules that define them."""
    modules = [torch.cuda, torch.cuda.graphs, torch.cuda.memory, torch.cuda.random, torch.cuda.streams]
    for name in torch.cuda.__all__:
        value = vars(torch_opencl).get({"CUDAGraph": "OpenCLGraph"}.get(name, name))
        original = getattr(torch.cuda, name)
        if callable(value) and callable(original) and not isinstance(value, ModuleType):
            for module in modules:
                if vars(module).get(name) is original:
                    yield f"{module.__name__}:{name}", value


_CHANGES = Changes(
    "torch",
    {
        "torch.amp.autocast_mode:custom_fwd": _anywhere,
        "torch.amp.autocast_mode:custom_bwd": _anywhere,
        "torch._utils:_get_available_device_type": lambda original: lambda: _translated(original()),
        "torch.serialization:default_restore_location": _anywhere,
        **dict.fromkeys(_factories(), _with_device),
    },
    {
        "torch:Generator": _generator,
        "torch:Tensor.cuda": _to_device,
        "torch:Tensor.type": _type,
        **dict.fromkeys((f"torch:Tensor.{name}" for name in ("to", "pin_memory", "is_pinned")), _anywhere),
        **dict.fromkeys(
            (f"torch:Tensor.new_{name}" for name in ("empty", "empty_strided", "full", "ones", "tensor", "zeros")),
            _with_device,
        ),
        "torch.amp.autocast_mode:autocast.__init__": _autocast,
        "torch.amp.grad_scaler:GradScaler.__init__": _grad_scaler,
        "torch.storage:_StorageBase.cuda": _to_device,
        "torch.utils._device:DeviceContext.__init__": _anywhere,
        **{name: lambda _, value=value: value for name, value in _names_of_cuda()},  # type: ignore[misc]
    },
)
