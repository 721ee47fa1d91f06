"""Counters of the backend: CPU fallbacks, kernel launches, compiled kernels, waits for the device."""

import json
from typing import TypedDict

from torch_opencl._load import native

__all__ = [
    "KernelCacheInfo",
    "fallbacks",
    "get_sync_debug_mode",
    "kernel_cache_info",
    "launches",
    "reset_fallbacks",
    "set_sync_debug_mode",
]

_SYNC_DEBUG_MODES = {"default": 0, "warn": 1, "error": 2}


def fallbacks() -> dict[str, int]:
    """Return which operators ran on the CPU because the backend has no kernel for them.

    ``TORCH_OPENCL_FALLBACK=error`` turns a fallback into an error.

    Returns:
        The number of fallbacks by operator name, since the start or :func:`reset_fallbacks`.

    Raises:
        LibraryError: the native library cannot be loaded.
    """
    return json.loads(native().fallbacks())


def reset_fallbacks() -> None:
    """Reset the counts of :func:`fallbacks`.

    Raises:
        LibraryError: the native library cannot be loaded.
    """
    native().reset_fallbacks()


def launches() -> int:
    """Return how many kernels this process has enqueued.

    Returns:
        The number of kernels.

    Raises:
        LibraryError: the native library cannot be loaded.
    """
    return native().launches()


class KernelCacheInfo(TypedDict):
    """The result of :func:`kernel_cache_info`."""

    path: str | None
    entries: int
    bytes: int
    hits: int
    compiled: int
    loaded: int
    specialized: int
    pending: int
    failed: int
    specialize: str
    bundle: str | None
    bundle_programs: int


def kernel_cache_info() -> KernelCacheInfo:
    """Return where compiled kernels are cached, and how this process got the kernels that it uses.

    Returns:
        ``path`` of the folder (None if nothing is kept on disk), ``entries`` and ``bytes`` in it;
        how many programs were ``compiled`` and how many ``loaded`` from the folder (a program has the kernels of
        a family, or with most drivers one of them), and the ``hits`` of programs in memory; how many of both
        were ``specialized`` for an operator and its dtypes, how many of these are ``pending`` in the background
        and how many have ``failed``; and the value of ``TORCH_OPENCL_SPECIALIZE``, ``specialize``.

    Raises:
        LibraryError: the native library cannot be loaded.
    """
    return json.loads(native().kernel_cache_info())


def set_sync_debug_mode(debug_mode: int | str) -> None:
    """Choose what happens when an operation waits for the device: ``.item()``, ``.cpu()``, a CPU fallback.

    Such a wait lets the device run out of work. :func:`torch_opencl.synchronize` and events, which exist for waiting,
    are never reported.

    Args:
        debug_mode: ``"default"`` or 0 for nothing, ``"warn"`` or 1 for a warning at each wait, ``"error"`` or 2 for a
            ``RuntimeError`` instead of the wait.

    Raises:
        RuntimeError: there is no such mode.
        TypeError: the mode is neither an int nor a str.
        LibraryError: the native library cannot be loaded.
    """
    if isinstance(debug_mode, str):
        if debug_mode not in _SYNC_DEBUG_MODES:
            raise RuntimeError("invalid value of debug_mode, expected one of `default`, `warn`, `error`")
        debug_mode = _SYNC_DEBUG_MODES[debug_mode]
    if not isinstance(debug_mode, int):
        raise TypeError(f"debug_mode must be an int or a str, not {type(debug_mode).__name__}")
    native().set_sync_debug_mode(debug_mode)


def get_sync_debug_mode() -> int:
    """Return what happens when an operation waits for the device.

    Returns:
        0 for nothing, 1 for a warning, 2 for an error: see :func:`set_sync_debug_mode`.

    Raises:
        LibraryError: the native library cannot be loaded.
    """
    return native().sync_debug_mode()
