"""sentence-transformers: the default device of models."""

from collections.abc import Callable

import torch_opencl
from torch_opencl.integrations import transformers
from torch_opencl.integrations._changes import Changes

__all__ = ["disable", "enable"]


def enable() -> None:
    """Make sentence-transformers use OpenCL; see :func:`torch_opencl.integrations.enable`."""
    transformers.enable()
    _CHANGES.apply()


def disable() -> None:
    """Undo the changes of :func:`enable` in sentence-transformers."""
    _CHANGES.undo()


def _get_device_name(original: Callable[[], str]) -> Callable[[], str]:
    return lambda: "opencl" if torch_opencl.is_available() else original()


_CHANGES = Changes(
    "sentence-transformers", {"sentence_transformers.util.environment:get_device_name": _get_device_name}
)
