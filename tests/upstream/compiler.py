"""Adapts PyTorch's tests of Inductor, which are written for the CPU, and for one GPU with Triton."""

from collections import defaultdict
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

import torch

FOLDER = "inductor"
FILES = tuple(
    f"{FOLDER}/{name}.py"
    for name in ("test_torchinductor", "test_torchinductor_dynamic_shapes", "test_torchinductor_opinfo")
)
# The suffixes of test classes that a file creates for each device.
SUFFIXES = {"opencl": ("GPUTests", "GPUTest"), "cpu": ("CpuTests", "CpuTest")}


def is_of_compiler(file: Path) -> bool:
    """Return true if a file has tests of Inductor."""
    return file.parent.name == FOLDER


def provide(device: str) -> None:
    """Make the tests' helpers know only one device: opencl takes the role of their GPU.

    Args:
        device: `opencl` or `cpu`.
    """
    helpers = import_module("torch.testing._internal.inductor_utils")
    is_gpu = device != "cpu"
    # Test classes read these when they are created. HAS_CUDA and HAS_XPU are names of older releases.
    known = {"GPU_TYPE": "opencl", "HAS_GPU": is_gpu, "RUN_GPU": is_gpu, "HAS_MULTIGPU": False}
    known |= {"HAS_CUDA": False, "HAS_XPU": False}
    if is_gpu:
        known |= {"HAS_CPU": False, "RUN_CPU": False}
        torch.library.Library.impl = _for_us_too(torch.library.Library.impl)
    vars(helpers).update(known)
    # Names of PyTorch 2.6 that later releases have elsewhere, or not at all.
    utils, compile_fx = (
        import_module("torch.testing._internal.common_utils"),
        import_module("torch._inductor.compile_fx"),
    )
    vars(utils).setdefault("dtype_abbrs", import_module("torch.utils._dtype_abbrs").dtype_abbrs)
    vars(compile_fx).setdefault("complex_memory_overlap", _gone)


def _gone(*args: Any) -> None:
    raise NotImplementedError("PyTorch no longer has this function")


def _for_us_too(impl: Callable[..., Any]) -> Callable[..., Any]:
    """Make implementations that tests register for CUDA available for this device too."""

    def registered(library: Any, op_name: Any, fn: Any, dispatch_key: str = "", **options: Any) -> Any:
        if dispatch_key == "CUDA":
            impl(library, op_name, fn, "PrivateUse1", **options)
        return impl(library, op_name, fn, dispatch_key, **options)

    return registered


def adopt(module: ModuleType) -> None:
    """Copy a file's per-device tables from CUDA to opencl: tolerances, and where one sample is enough.

    Args:
        module: the module of tests.
    """
    for name, table in vars(module).items():
        if name.startswith("inductor_") and isinstance(table, defaultdict) and "cuda" in table:
            table.setdefault("opencl", table["cuda"])
