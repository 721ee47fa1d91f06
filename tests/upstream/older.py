"""Helpers that test files of older releases import, and that the current release renamed or removed."""

import unittest
from collections.abc import Callable
from importlib import import_module
from types import FunctionType, ModuleType
from typing import Any

INTERNAL = "torch.testing._internal"
# Helpers by their old module and name, with the new module and name.
MOVED = {
    ("common_mkldnn", "bf32_on_and_off"): ("common_mkldnn", "reduced_f32_on_and_off"),
    ("common_methods_invocations", "skip"): ("common_device_type", "skip"),
    ("common_methods_invocations", "xfail"): ("common_device_type", "xfail"),
    ("common_methods_invocations", "binary_ufuncs_and_refs"): ("common_methods_invocations", "binary_ufuncs"),
}


def provide() -> None:
    """Add the older names to PyTorch's helpers if the current release lacks them."""
    for (module, name), (source, now) in MOVED.items():
        _set(_internal(module), name, getattr(_internal(source), now, None))
    devices = _internal("common_device_type")
    if hasattr(devices, "skipOps"):
        _set(_internal("common_methods_invocations"), "skipOps", _skip_ops)
    devices.instantiate_device_type_tests = _with_supers(devices.instantiate_device_type_tests)
    # For CUDA devices, and for tests without a device type, neither of which is run here.
    _set(_internal("common_cuda"), "tf32_is_not_fp32", lambda: False)
    _set(_internal("common_nn"), "new_module_tests", [])


def _skip_ops(test_class: str, test: str, skipped: Any) -> Any:
    """Accept the class and the name of a test too, which are not parameters any more."""
    del test_class, test
    return _internal("common_device_type").skipOps(skipped)


def _with_supers(instantiate: Callable[..., None]) -> Callable[..., None]:
    """Make `super(self.__class__, self)` refer to the class in the source, not to one generated from it."""

    def instantiated(generic: type[unittest.TestCase], scope: dict[str, Any], **options: Any) -> None:
        for name in ("setUp", "tearDown"):
            method = vars(generic).get(name)
            if isinstance(method, FunctionType) and {"super", "__class__"} <= set(method.__code__.co_names):
                names = {**method.__globals__, "super": lambda _, self: super(generic, self)}
                setattr(generic, name, FunctionType(method.__code__, names, name, None, method.__closure__))
        instantiate(generic, scope, **options)

    return instantiated


def _set(module: ModuleType, name: str, value: Any) -> None:
    if value is not None and not hasattr(module, name):
        setattr(module, name, value)


def _internal(name: str) -> ModuleType:
    return import_module(f"{INTERNAL}.{name}")
