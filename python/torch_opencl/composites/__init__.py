"""Operators that are composed of others in Python: the functions of rows with ``python`` in native_functions.yaml.

The dispatcher calls such a function below autograd, with the operator's positional and keyword-only arguments; trailing
arguments that equal their defaults are left out.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any

import torch

# The registrations last as long as these objects.
_aten, _torchvision = torch.library.Library("aten", "IMPL"), torch.library.Library("torchvision", "IMPL")
# The key to which `form::Python` in cpp/dispatch/registration.h passes a call, of any layout.
_KEY = "PrivateUse2"


def register() -> None:
    """Register all functions. Their modules are imported at the first call."""
    # A row of two layouts is there twice.
    for row in dict.fromkeys(torch.ops.torch_opencl.python_functions()):
        op, target = row.split(" ")
        _aten.impl(op, _kernel(*target.split(":")), _KEY)
    # cpp/native/torchvision.cpp calls these. Importing torchvision declares the operators.
    _torchvision.impl("roi_align", _kernel("vision", "roi_align"), _KEY)
    _torchvision.impl("_roi_align_backward", _kernel("vision", "roi_align_backward"), _KEY)


def _kernel(module: str, function: str) -> Callable[..., Any]:
    implementation: Callable[..., Any] | None = None

    def kernel(*args: Any, **kwargs: Any) -> Any:
        nonlocal implementation
        if implementation is None:
            implementation = getattr(import_module(f"{__name__}.{module}"), function)
        # A mode such as `torch.set_default_device` is for calls of the user.
        with torch._C.DisableTorchFunction():
            return implementation(*args, **kwargs)

    return kernel
