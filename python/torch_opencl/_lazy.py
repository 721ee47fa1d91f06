"""When OpenCL is initialized, and the seeds that wait for it.

Drivers keep threads that do not survive a fork, so OpenCL is initialized as late as possible: a program that
only imports torch never does it, and seeds set before that are kept.
"""

import atexit
import contextlib
import functools
import glob
import os
import threading
from collections.abc import Callable

from torch_opencl import _embedded_driver, _load, _settings
from torch_opencl._load import native

_lock = threading.RLock()
_initialized = False
# Variables that hide all devices if their value is wrong; the library's error then says so.
_HIDING_VARIABLES = ("TORCH_OPENCL_DEVICES", "TORCH_OPENCL_DEVICE_CLASS")
_pending_seeds: dict[str, Callable[[], None]] = {}


def device_count() -> int:
    """Return the number of OpenCL devices that this process may use.

    ``TORCH_OPENCL_DEVICES`` filters and orders them. Never raises.

    Returns:
        The number of devices; 0 without a device, a driver or the native library, and in a forked child
        of a process that has used OpenCL.
    """
    if _load.error() is not None:
        return 0
    count = native().device_count()
    if count == 0:
        _warn_of_hiding_setting()
    return count


def no_device_reason() -> str:
    """Return why there is no device, and what to do.

    Returns:
        Some sentences; an empty string if there is a device.
    """
    reason = native().device_error()
    # If the user has pointed the loader somewhere, it ignores the registered drivers, so that is said first.
    if reason and hiding_setting() == "OCL_ICD_VENDORS":
        return f"{_embedded_driver.choice_of_the_user()} {reason}"
    return reason


def hiding_setting() -> str | None:
    """Find the setting that leaves this process without a device.

    Returns:
        The name of an environment variable, or None if no setting does.
    """
    # An empty TORCH_OPENCL_DEVICES hides all devices on purpose.
    if os.environ.get("TORCH_OPENCL_DEVICES", "all").strip() == "":
        return None
    reason = native().device_error()
    if name := next((name for name in _HIDING_VARIABLES if f"{name}=" in reason), None):
        return name
    if _embedded_driver.choice_of_the_user():
        return "OCL_ICD_VENDORS"
    # PoCL offers no device if it cannot write its cache, and the reason then says so.
    has_pocl = any(_embedded_driver.REGISTRY.glob("*pocl*.icd"))
    return "POCL_CACHE_DIR" if has_pocl and "POCL_CACHE_DIR" in reason else None


@functools.cache
def _warn_of_hiding_setting() -> None:
    if not _is_in_bad_fork() and (name := hiding_setting()):
        _settings.warn_once(name, f"torch.opencl.is_available() is False: {no_device_reason()}")


def is_available() -> bool:
    """Return whether there is an OpenCL device to use. Never raises.

    Returns:
        True if :func:`device_count` is not 0.
    """
    return device_count() > 0


def is_initialized() -> bool:
    """Return whether this process has started to use OpenCL.

    Returns:
        True after :func:`init` or the first use of an OpenCL device.
    """
    return _initialized and not _is_in_bad_fork()


def init() -> None:
    """Start using OpenCL now rather than at the first tensor. Does nothing the second time.

    Raises:
        RuntimeError: there is no OpenCL device, the native library cannot be loaded, this is a forked
            child of a process that has used OpenCL, or an environment variable has an invalid value.
    """
    _lazy_init()


def _lazy_init() -> None:
    """Start OpenCL; PyTorch calls this before it makes the first tensor. See :func:`init`."""
    global _initialized
    if is_initialized():
        return
    with _lock:
        if is_initialized():
            return
        if _is_in_bad_fork():
            raise RuntimeError(
                "Cannot re-initialize OpenCL in forked subprocess. To use OpenCL with "
                "multiprocessing, you must use the 'spawn' start method"
            )
        native().check_environment()
        if device_count() == 0:
            message = f"No OpenCL device was found: {no_device_reason()} `python -m torch_opencl.info` shows more."
            raise RuntimeError(message)
        _initialized = True
        atexit.register(_finish)
        for seed in _pending_seeds.values():
            seed()
        _pending_seeds.clear()


def _finish() -> None:
    """Wait for the devices before the process ends: a driver that is unloaded while it works may abort it."""
    if _is_in_bad_fork():
        return
    if _has_autograd_threads():
        for index in range(device_count()):
            if native().is_initialized(index):
                native().finish_autograd(index)
    native().finish()


def _has_autograd_threads() -> bool:
    """Return whether there are autograd threads, which may hold Python objects for a moment longer."""
    for name in glob.iglob("/proc/self/task/*/comm"):
        with contextlib.suppress(OSError), open(name) as file:
            if file.read().startswith("pt_autograd"):
                return True
    return False


def _is_in_bad_fork() -> bool:
    """Return whether this is a forked child of a process that had started OpenCL."""
    return _load.error() is None and native().in_bad_fork()


def seed_when_initialized(scope: str, seed: Callable[[], None]) -> None:
    """Seed generators now, or as soon as there are any.

    Args:
        scope: "all" for the generators of all devices, which discards earlier seeds, else a name; the last
            of several waiting seeds with one name is used.
        seed: sets the seed.
    """
    with _lock:
        if is_initialized():
            seed()
            return
        if scope == "all":
            _pending_seeds.clear()
        _pending_seeds[scope] = seed
