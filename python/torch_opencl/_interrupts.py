"""Lets signals interrupt the waits of the native library: Ctrl-C works while a device is busy."""

import atexit
from typing import Any

import torch

# Kept alive, because the registration ends when this object is destroyed.
_library: torch.library.Library | None = None


def install(native: Any) -> None:
    """Let the library run the handlers of signals while the main thread waits in it, until the process ends.

    Args:
        native: the library's operators.
    """
    global _library
    _library = torch.library.Library("torch_opencl", "IMPL")
    _library.impl("run_signal_handlers", _run_signal_handlers, "CPU")
    native.watch_signals(True)
    atexit.register(native.watch_signals, False)


def _run_signal_handlers() -> None:
    """Does nothing: Python runs handlers in its main thread when a function starts, and their exceptions propagate."""
