"""The environment variables of this package: their names, their values, and warnings about wrong ones."""

import difflib
import os
import sys
import warnings
from collections.abc import Iterator, Mapping

PREFIX = "TORCH_OPENCL_"

# Every variable that the package reads, and its allowed values if these are few. docs/options.md explains them.
VARIABLES: Mapping[str, tuple[str, ...]] = {
    "TORCH_OPENCL_BLAS": ("auto", "opencl", "host", "cublas"),
    "TORCH_OPENCL_CACHE_DIR": (),
    "TORCH_OPENCL_CACHE_SIZE": (),
    "TORCH_OPENCL_DEVICES": (),
    "TORCH_OPENCL_DEVICE_CLASS": ("cpu", "gpu"),
    "TORCH_OPENCL_FALLBACK": ("warn", "silent", "error"),
    "TORCH_OPENCL_KERNEL_BUNDLE": (),
    "TORCH_OPENCL_MATRIX": (),
    "TORCH_OPENCL_PROGRESS": ("auto", "never"),
    "TORCH_OPENCL_SMALL_CALLS": ("host", "kernels"),
    "TORCH_OPENCL_SPECIALIZE": ("background", "eager", "never"),
}

# Read when the package is built. `make` sets them, and they may still be set when the package runs.
BUILD_VARIABLES = ("TORCH_OPENCL_PYTHON",)
# Constants that `make bench-constants` builds with.
BUILD_PREFIX = "TORCH_OPENCL_CONSTANT_"

_said: set[str] = set()


def problems(environment: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Find variables whose names or values this package does not know.

    Args:
        environment: names and values, such as ``os.environ``.

    Yields:
        The name of each, and a sentence or two about it.
    """
    for name, value in environment.items():
        if not name.startswith(PREFIX) or name in BUILD_VARIABLES or name.startswith(BUILD_PREFIX):
            continue
        if name not in VARIABLES:
            similar = difflib.get_close_matches(
                name.removeprefix(PREFIX), [known.removeprefix(PREFIX) for known in VARIABLES], 1
            )
            meant = f"Did you mean {PREFIX}{similar[0]}?" if similar else f"There are: {', '.join(VARIABLES)}."
            yield name, f"{name} is not a variable of torch_opencl. {meant}"
        elif (words := VARIABLES[name]) and value not in words:
            allowed = f"{', '.join(words[:-1])} or {words[-1]}"
            yield name, f"{name}={value}: expected {allowed}. Its use will raise an error."


def warn_about_environment() -> None:
    """Warn about each problem of this process's environment, once."""
    for name, message in problems(os.environ):
        warn_once(name, message)


def warn_once(subject: str, message: str) -> None:
    """Warn, unless there has been a warning about this subject.

    Args:
        subject: the key of the warning, such as a variable's name.
        message: of the warning.
    """
    if subject in _said:
        return
    _said.add(subject)
    try:
        warnings.warn(message, RuntimeWarning, stacklevel=3)
    except RuntimeWarning:
        # Under `python -W error` a warning is an exception, and this must not break `import torch`.
        print(f"RuntimeWarning: {message}", file=sys.stderr)
