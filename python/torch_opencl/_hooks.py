"""Runs functions when modules are imported, so that unused modules need not be imported."""

import importlib
import importlib.abc
import importlib.machinery
import importlib.util
import sys
from collections.abc import Sequence
from types import ModuleType
from typing import Any, ClassVar

from torch_opencl.inductor import names

__all__ = ["failures", "when_imported"]


def when_imported(name: str, function: str) -> None:
    """Call one of our functions with a module once that is imported; at once if it has been.

    Args:
        name: of the module.
        function: ``module:function`` in this package, imported when it is needed.
    """
    if name in sys.modules:
        _call(function, sys.modules[name])
        return
    if not any(isinstance(finder, _Finder) for finder in sys.meta_path):
        sys.meta_path.insert(0, _Finder())
    _Finder.waiting.setdefault(name, []).append(function)


# Messages about modules of PyTorch that are not as expected. If there are any, graphs on this device run in eager mode,
# with a warning (`torch_opencl.inductor.graph.fall_back`); other devices are unaffected.
failures: list[str] = []


def _call(function: str, module: ModuleType) -> None:
    owner, _, attribute = function.partition(":")
    try:
        names.check(module)
        getattr(importlib.import_module(owner), attribute)(module)
    except Exception as failure:
        failures.append(f"{module.__name__} is not as expected ({failure!r})")


class _Finder(importlib.abc.MetaPathFinder):
    """Finds no modules itself: it wraps the loaders of modules that functions wait for."""

    waiting: ClassVar[dict[str, list[str]]] = {}

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if fullname not in self.waiting:
            return None
        functions = self.waiting.pop(fullname)
        spec = importlib.util.find_spec(fullname)
        if spec is None or spec.loader is None:
            return spec
        spec.loader = _Loader(spec.loader, functions)
        return spec


class _Loader(importlib.abc.Loader):
    """Loads a module as its own loader does, and calls functions with it."""

    def __init__(self, loader: importlib.abc.Loader, functions: list[str]) -> None:
        self.loader = loader
        self.functions = functions

    def __getattr__(self, name: str) -> Any:
        return getattr(self.loader, name)

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType | None:
        return self.loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        self.loader.exec_module(module)
        for function in self.functions:
            _call(function, module)
