"""Other libraries on OpenCL devices: those that choose among the devices they know are told of this one.

Nothing is changed before :func:`enable` is called. Libraries that take any device of PyTorch need none of this.
"""

import importlib
import importlib.util
from types import ModuleType

__all__ = ["LIBRARIES", "disable", "enable"]

# The module of each, beside this one, and the package that it is for.
LIBRARIES = {
    "accelerate": "accelerate",
    "cuda": "torch",
    "fastai": "fastai",
    "lightning": "lightning",
    "safetensors": "safetensors",
    "sentence_transformers": "sentence_transformers",
    "stable_baselines3": "stable_baselines3",
    "transformers": "transformers",
    "ultralytics": "ultralytics",
}

# It changes PyTorch itself, so it has to be named.
_ONLY_BY_NAME = ("cuda",)


def enable(*libraries: str) -> tuple[str, ...]:
    """Make libraries use OpenCL devices where they would use a GPU; see docs/libraries.md for what each then does.

    The libraries are imported. What they offer for other devices is used; where they have closed lists, functions of
    theirs are replaced in this process, all that a library needs or none. A second call does nothing.

    Args:
        libraries: names of :data:`LIBRARIES`; all that are installed, but for "cuda", where none is given.

    Returns:
        The names of those that are enabled now.

    Raises:
        ValueError: there is no such library.
        ImportError: a library is not installed.
        RuntimeError: a version of a library is not as expected; the message names what it lacks. Of this library
            nothing has been changed.

    Example::

        import torch_opencl

        torch_opencl.integrations.enable("accelerate")
        Accelerator().device  # opencl
    """
    chosen = libraries or tuple(
        name for name, package in LIBRARIES.items() if name not in _ONLY_BY_NAME and importlib.util.find_spec(package)
    )
    for name in chosen:
        _integration(name).enable()
    return tuple(chosen)


def disable(*libraries: str) -> None:
    """Put back what :func:`enable` has changed. Objects that were made in between stay as they are.

    Args:
        libraries: names of :data:`LIBRARIES`; all by default.

    Raises:
        ValueError: there is no such library.
    """
    for name in libraries or tuple(LIBRARIES):
        _integration(name).disable()


def _integration(name: str) -> ModuleType:
    if name not in LIBRARIES:
        raise ValueError(f"there is no integration of {name!r}, but of: {', '.join(LIBRARIES)}")
    return importlib.import_module(f"torch_opencl.integrations.{name}")
