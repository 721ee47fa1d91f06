"""Other libraries on OpenCL devices: adds this device to libraries that have fixed lists of devices.

Nothing is changed before :func:`enable` is called. Libraries that accept any PyTorch device do not need this.
"""

import importlib
import importlib.util
from types import ModuleType

__all__ = ["LIBRARIES", "disable", "enable"]

# The integration modules in this package, and the package that each one is for.
LIBRARIES = {
    "accelerate": "accelerate",
    "cuda": "torch",
    "diffusers": "diffusers",
    "fastai": "fastai",
    "lightning": "lightning",
    "safetensors": "safetensors",
    "sentence_transformers": "sentence_transformers",
    "stable_baselines3": "stable_baselines3",
    "torchao": "torchao",
    "transformers": "transformers",
    "ultralytics": "ultralytics",
}

# It changes PyTorch itself, so it must be requested by name.
_ONLY_BY_NAME = ("cuda",)


def enable(*libraries: str) -> tuple[str, ...]:
    """Make libraries use OpenCL devices instead of a GPU; docs/libraries.md describes the effect for each.

    The libraries are imported. Their registries for other devices are used; functions with closed lists of devices are
    replaced in this process, either all that a library needs or none. A second call does nothing.

    Args:
        libraries: names of :data:`LIBRARIES`; by default all that are installed, except "cuda".

    Returns:
        The names of the enabled libraries.

    Raises:
        ValueError: there is no such library.
        ImportError: a library is not installed.
        RuntimeError: a version of a library is not as expected; the message has the missing name. Nothing in this
            library has been changed.

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
    """Undo the changes of :func:`enable`. Objects that were made in between are unchanged.

    Args:
        libraries: names of :data:`LIBRARIES`; all by default.

    Raises:
        ValueError: there is no such library.
    """
    for name in libraries or tuple(LIBRARIES):
        _integration(name).disable()


def _integration(name: str) -> ModuleType:
    if name not in LIBRARIES:
        raise ValueError(f"there is no integration of {name!r}; choose from: {', '.join(LIBRARIES)}")
    return importlib.import_module(f"torch_opencl.integrations.{name}")
