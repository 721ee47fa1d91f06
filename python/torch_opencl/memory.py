"""Statistics and limits of device memory and its cache."""

import json
from collections import OrderedDict
from typing import Any, Protocol

import torch

from torch_opencl._lazy import device_count, is_initialized
from torch_opencl._load import native
from torch_opencl._snapshots import _dump_snapshot, _record_memory_history, _snapshot, memory_snapshot
from torch_opencl._utils import DeviceLike, _check_index, _get_device_index

__all__ = [
    "OutOfMemoryError",
    "_dump_snapshot",
    "_record_memory_history",
    "_snapshot",
    "empty_cache",
    "get_per_process_memory_fraction",
    "host_memory_stats",
    "host_memory_stats_as_nested_dict",
    "ipc_collect",
    "max_memory_allocated",
    "max_memory_cached",
    "max_memory_reserved",
    "mem_get_info",
    "memory_allocated",
    "memory_cached",
    "memory_reserved",
    "memory_snapshot",
    "memory_stats",
    "memory_stats_as_nested_dict",
    "memory_summary",
    "reset_accumulated_host_memory_stats",
    "reset_accumulated_memory_stats",
    "reset_max_memory_allocated",
    "reset_max_memory_cached",
    "reset_peak_host_memory_stats",
    "reset_peak_memory_stats",
    "set_per_process_memory_fraction",
]

OutOfMemoryError = torch.OutOfMemoryError


def empty_cache() -> None:
    """Return the cached memory that no tensor uses to the drivers of all devices.

    A :class:`MemPool` keeps its memory, except the pool of the enclosing :func:`use_mem_pool`.
    """
    if is_initialized():
        for index in range(device_count()):
            native().empty_cache(index)


def memory_stats(device: DeviceLike = None) -> OrderedDict[str, int]:
    """Return the statistics of a device's memory allocator.

    Args:
        device: the device; the current one by default.

    Returns:
        Counts and bytes under the names of :func:`torch.accelerator.memory_stats`, sorted by name;
        empty if OpenCL has not been used yet.

    Raises:
        RuntimeError: there is no such device.
    """
    if not is_initialized():
        if device is not None:
            _check_index(device)
        return OrderedDict()
    return _sorted(native().memory_stats(_get_device_index(device, optional=True)))


def memory_stats_as_nested_dict(device: DeviceLike = None) -> dict[str, Any]:
    """Return :func:`memory_stats` with a dictionary for each part of a name: ``stats["segment"]["all"]["peak"]``.

    Args:
        device: the device; the current one by default.

    Returns:
        The statistics.

    Raises:
        RuntimeError: there is no such device.
    """
    return _nested(memory_stats(device))


class _Statistic(Protocol):
    """A function of a device, the current one by default."""

    def __call__(self, device: DeviceLike = None) -> int: ...


def _statistic(name: str, key: str, returns: str) -> _Statistic:
    def statistic(device: DeviceLike = None) -> int:
        return memory_stats(device).get(key, 0)

    statistic.__name__ = statistic.__qualname__ = name
    statistic.__doc__ = f"""Return {returns}.

    Args:
        device: the device; the current one by default.

    Returns:
        The number of bytes; 0 if OpenCL has not been used yet.

    Raises:
        RuntimeError: there is no such device.
    """
    return statistic


memory_allocated = _statistic("memory_allocated", "allocated_bytes.all.current", "the bytes that tensors use")
max_memory_allocated = _statistic(
    "max_memory_allocated",
    "allocated_bytes.all.peak",
    "the most bytes that tensors used at once since the start or :func:`reset_peak_memory_stats`",
)
memory_reserved = _statistic(
    "memory_reserved", "reserved_bytes.all.current", "the bytes that the allocator holds, in tensors and in its cache"
)
max_memory_reserved = _statistic(
    "max_memory_reserved",
    "reserved_bytes.all.peak",
    "the most bytes that the allocator held at once since the start or :func:`reset_peak_memory_stats`",
)


# Older names, as torch.cuda has them.
memory_cached = memory_reserved
max_memory_cached = max_memory_reserved


def memory_summary(device: DeviceLike = None, abbreviated: bool = False) -> str:
    """Return the statistics of a device's memory allocator as a table to print.

    Args:
        device: the device; the current one by default.
        abbreviated: whether to leave out the blocks of the cache.

    Returns:
        The table.

    Raises:
        RuntimeError: there is no such device.
    """
    stats = memory_stats(device)
    rows = _SUMMARY[:4] if abbreviated else _SUMMARY
    lines = [
        f"OpenCL memory of opencl:{_get_device_index(device, optional=True)}: "
        f"{stats.get('num_ooms', 0)} allocations refused, {stats.get('num_alloc_retries', 0)} retried",
        f"{'':<18}" + "".join(f"{figure:>14}" for figure in _FIGURES),
    ]
    for name, title in rows:
        show = _size if name.endswith("_bytes") else str
        cells = (show(stats.get(f"{name}.all.{figure}", 0)) for figure in _FIGURES)
        lines.append(f"{title:<18}" + "".join(f"{cell:>14}" for cell in cells))
    return "\n".join(lines) + "\n"


_FIGURES = ("current", "peak", "allocated", "freed")
_SUMMARY = (
    ("allocated_bytes", "in tensors"),
    ("requested_bytes", "asked for"),
    ("active_bytes", "in use"),
    ("reserved_bytes", "held"),
    ("inactive_split_bytes", "in cut buffers"),
    ("allocation", "tensors"),
    ("active", "blocks in use"),
    ("segment", "buffers"),
    ("inactive_split", "free blocks"),
)


def host_memory_stats() -> OrderedDict[str, int]:
    """Return the statistics of the allocator of pinned host memory.

    Returns:
        Counts and bytes under the names of :func:`torch.cuda.host_memory_stats`, sorted by name.

    Raises:
        LibraryError: the native library cannot be loaded.
    """
    return _sorted(native().host_memory_stats())


def host_memory_stats_as_nested_dict() -> dict[str, Any]:
    """Return :func:`host_memory_stats` with a dictionary for each part of a name.

    Returns:
        The statistics.

    Raises:
        LibraryError: the native library cannot be loaded.
    """
    return _nested(host_memory_stats())


def reset_peak_host_memory_stats() -> None:
    """Reset the peaks of :func:`host_memory_stats` to the current values.

    Raises:
        LibraryError: the native library cannot be loaded.
    """
    native().reset_peak_host_memory_stats()


def reset_accumulated_host_memory_stats() -> None:
    """Set the totals of :func:`host_memory_stats` (``allocated``, ``freed``...) to 0.

    Raises:
        LibraryError: the native library cannot be loaded.
    """
    native().reset_accumulated_host_memory_stats()


def reset_peak_memory_stats(device: DeviceLike = None) -> None:
    """Reset the peaks of :func:`memory_stats` to the current values.

    Args:
        device: the device; the current one by default.

    Raises:
        RuntimeError: there is no such device.
    """
    native().reset_peak_memory_stats(_get_device_index(device, optional=True))


def reset_max_memory_allocated(device: DeviceLike = None) -> None:
    """Older name of :func:`reset_peak_memory_stats`.

    Args:
        device: the device; the current one by default.

    Raises:
        RuntimeError: there is no such device.
    """
    reset_peak_memory_stats(device)


reset_max_memory_cached = reset_max_memory_allocated


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

    OpenCL does not report free memory: the first value is the second minus the bytes that this process holds.

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
        fraction: the part of the device's memory, from 0 to 1; initially 1.
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


def ipc_collect() -> None:
    """Do nothing: processes do not share OpenCL memory, so there is none to collect."""


def _sorted(stats: str) -> OrderedDict[str, int]:
    return OrderedDict(sorted(json.loads(stats).items()))


def _nested(stats: OrderedDict[str, int]) -> dict[str, Any]:
    nested: dict[str, Any] = {}
    for name, value in stats.items():
        *parts, last = name.split(".")
        inner = nested
        for part in parts:
            inner = inner.setdefault(part, {})
        inner[last] = value
    return nested


def _size(count: int) -> str:
    for unit in ("B", "KiB", "MiB"):
        if count < 10240:
            return f"{count} {unit}"
        count = round(count / 1024)
    return f"{count} GiB"
