"""A plugin for mypy: ``torch.opencl`` is this package, and tensors, modules and storages have its methods.

PyTorch adds those names when this package is loaded, which type checkers do not see. In pyproject.toml::

    [tool.mypy]
    plugins = ["torch_opencl.mypy_plugin"]
"""

from collections.abc import Callable

from mypy.nodes import GDEF, MypyFile, SymbolTableNode
from mypy.plugin import ClassDefContext, Plugin

__all__ = ["plugin"]

# mypy's priority of an import that may be part of a cycle.
_PRIORITY = 20

# Our names, each with the name whose type it has.
_ALIKE = {"opencl": "cuda", "is_opencl": "is_cuda"}
_CLASSES = ("torch._C.TensorBase", "torch.nn.modules.module.Module", "torch.storage._StorageBase")


def _add_names(context: ClassDefContext) -> None:
    names = context.cls.info.names
    for ours, theirs in _ALIKE.items():
        if theirs in names:
            names[ours] = names[theirs].copy()


def _add_module(context: ClassDefContext) -> None:
    modules = context.api.modules
    if "torch_opencl" in modules:
        modules["torch"].names["opencl"] = SymbolTableNode(GDEF, modules["torch_opencl"])


class _OpenCLPlugin(Plugin):
    """Adds our names while mypy reads PyTorch."""

    def get_additional_deps(self, file: MypyFile) -> list[tuple[int, str, int]]:
        """Return the modules that mypy must read for a module of PyTorch besides its imports."""
        return [(_PRIORITY, "torch_opencl", -1)] if file.fullname == "torch" else []

    def get_customize_class_mro_hook(self, fullname: str) -> Callable[[ClassDefContext], None] | None:
        """Return the function to call when a class is analysed."""
        if fullname in _CLASSES:
            return _add_names
        # A class of the module torch itself: when it is analysed, the module's names are available.
        return _add_module if fullname == "torch.SymInt" else None


def plugin(version: str) -> type[Plugin]:
    """Return the plugin; mypy calls this.

    Args:
        version: of mypy.

    Returns:
        The class.
    """
    return _OpenCLPlugin
