"""How much memory tensors use, and the cache behind it."""

import json
from collections import OrderedDict

import torch

from torch_opencl._lazy import device_count, is_initialized
from torch_opencl._load import native
from torch_opencl._utils import DeviceLike, _get_device_index

__all__ = [
    "OutOfMemoryError",
    "empty_cache",
    "get_per_process_memory_fraction",
    "max_memory_allocated",
    "max_memory_reserved",
    "mem_get_info",
    "memory_allocated",
    "memory_reserved",
    "memory_stats",
    "reset_accumulated_memory_stats",
    "reset_peak_memory_stats",
    "set_per_process_memory_fraction",
]

OutOfMemoryError = torch.OutOfMemoryError


def empty_cache() -> None:
    """Give the cached memory that no tensor uses back to the drivers of all devices."""
    if is_initialized():
        for index in range(device_count()):
            native().empty_cache(index)


def memory_stats(device: DeviceLike = None) -> OrderedDict[str, int]:
    """Return the statistics of a device's memory allocator.

    Args:
        device: the device; the current one by default.

    Returns:
        Counts and bytes under the names of :func:`torch.accelerator.memory_stats`, sorted by name;
        empty where OpenCL has not been used yet.

    Raises:
        RuntimeError: there is no such device.
    """
    if not is_initialized():
        return OrderedDict()
    stats = json.loads(native().memory_stats(_get_device_index(device, optional=True)))
    return OrderedDict(sorted(stats.items()))


def memory_allocated(device: DeviceLike = None) -> int:
    """Return the bytes that tensors use.

    Args:
        device: the device; the current one by default.

    Returns:
        The number of bytes.

    Raises:
        RuntimeError: there is no such device.
    """
    return memory_stats(device).get("allocated_bytes.all.current", 0)


def max_memory_allocated(device: DeviceLike = None) -> int:
    """Return the most bytes that tensors have used at a time.

    Args:
        device: the device; the current one by default.

    Returns:
        The number of bytes since the start, or since :func:`reset_peak_memory_stats`.

    Raises:
        RuntimeError: there is no such device.
    """
    return memory_stats(device).get("allocated_bytes.all.peak", 0)


def memory_reserved(device: DeviceLike = None) -> int:
    """Return the bytes that the allocator holds, in tensors and in its cache.

    Args:
        device: the device; the current one by default.

    Returns:
        The number of bytes.

    Raises:
        RuntimeError: there is no such device.
    """
    return memory_stats(device).get("reserved_bytes.all.current", 0)


def max_memory_reserved(device: DeviceLike = None) -> int:
    """Return the most bytes that the allocator has held at a time.

    Args:
        device: the device; the current one by default.

    Returns:
        The number of bytes since the start, or since :func:`reset_peak_memory_stats`.

    Raises:
        RuntimeError: there is no such device.
    """
    return memory_stats(device).get("reserved_bytes.all.peak", 0)


def reset_peak_memory_stats(device: DeviceLike = None) -> None:
    """Start counting the peaks of :func:`memory_stats` anew from the present values.

    Args:
        device: the device; the current one by default.

    Raises:
        RuntimeError: there is no such device.
    """
    native().reset_peak_memory_stats(_get_device_index(device, optional=True))


def reset_accumulated_memory_stats(device: DeviceLike = None) -> None:
    """Set the totals of :func:`memory_stats` (``allocated``, ``freed``, ``num_ooms``...) to 0.

    Args:
        device: the device; the current one by default.

    Raises:
        RuntimeError: there is no such device.
    """
    native().reset_accumulated_memory_stats(_get_device_index(device, optional=True))


def mem_get_info(device: DeviceLike = None) -> tuple[int, int]:
    """Return how much memory a device has.

    OpenCL cannot be asked what is free: the first figure is the second less what this process holds.

    Args:
        device: the device; the current one by default.

    Returns:
        The free and the total bytes.

    Raises:
        RuntimeError: there is no such device.
    """
    free, total = native().mem_get_info(_get_device_index(device, optional=True))
    return free, total


def set_per_process_memory_fraction(fraction: float, device: DeviceLike = None) -> None:
    """Limit how much of a device's memory this process may hold, in tensors and in its cache.

    Args:
        fraction: the part of the device's memory, from 0 to 1; 1 at the start.
        device: the device; the current one by default.

    Raises:
        ValueError: ``fraction`` is not from 0 to 1.
        RuntimeError: there is no such device.
    """
    if not 0 <= fraction <= 1:
        raise ValueError(f"Invalid fraction value: {fraction}. Allowed range: 0 to 1")
    native().set_memory_fraction(fraction, _get_device_index(device, optional=True))


def get_per_process_memory_fraction(device: DeviceLike = None) -> float:
    """Return the limit that :func:`set_per_process_memory_fraction` has set.

    Args:
        device: the device; the current one by default.

    Returns:
        The part of the device's memory that this process may hold.

    Raises:
        RuntimeError: there is no such device.
    """
    return native().memory_fraction(_get_device_index(device, optional=True))
