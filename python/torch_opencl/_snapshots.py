"""Snapshots for PyTorch's memory visualiser, and the history of allocations in them."""

import json
import pickle
import sys
from typing import Any

from torch_opencl._lazy import _lazy_init, device_count, is_initialized
from torch_opencl._load import native
from torch_opencl._utils import DeviceLike, _check_index

__all__ = ["_dump_snapshot", "_record_memory_history", "_snapshot", "memory_snapshot"]


def memory_snapshot(mempool_id: tuple[int, int] | None = None, include_traces: bool = True) -> list[dict[str, Any]]:
    """Return the buffers that the allocators of all devices hold, and the blocks that each is cut into.

    Args:
        mempool_id: return only the buffers of this pool; None or (0, 0) for all.
        include_traces: accepted for compatibility.

    Returns:
        A dictionary per buffer, with the keys of :func:`torch.cuda.memory_snapshot`. ``frames`` are empty: the traces
        of ``_snapshot()`` have the call stacks. Empty if OpenCL has not been used yet.
    """
    if not is_initialized():
        return []
    segments = [segment for index in range(device_count()) for segment in json.loads(native().memory_snapshot(index))]
    if mempool_id is None or tuple(mempool_id) == (0, 0):
        return segments
    return [segment for segment in segments if tuple(segment["segment_pool_id"]) == tuple(mempool_id)]


def _record_memory_history(
    enabled: str | None = "all",
    context: str | None = "all",
    stacks: str = "python",
    max_entries: int = sys.maxsize,
    device: DeviceLike = None,
    *,
    clear_history: bool = False,
) -> None:
    """Record the allocations and frees of tensors on all devices, for the traces of :func:`_snapshot`.

    Args:
        enabled: ``"all"`` or ``"state"`` to record from now on, None to stop.
        context: for which events to record Python call stacks: ``"all"``, ``"alloc"`` or ``"state"`` (allocations
            only), or None.
        stacks: accepted for compatibility; stacks are Python's.
        max_entries: how many of the latest events to keep.
        device: accepted for compatibility.
        clear_history: whether to discard recorded events.

    Raises:
        RuntimeError: an argument has another value.
    """
    if enabled not in ("all", "state", None):
        raise RuntimeError(f"expected enabled to be 'all', 'state' or None, but got: {enabled!r}")
    if context not in ("all", "alloc", "state", None):
        raise RuntimeError(f"expected context to be 'all', 'alloc', 'state' or None, but got: {context!r}")
    _lazy_init()
    if clear_history:
        native().clear_memory_history()
    most = 0 if enabled is None else max_entries
    native().record_memory_history(most, context is not None, context == "all")


def _snapshot(device: DeviceLike = None) -> dict[str, Any]:
    """Return :func:`memory_snapshot` in the form that PyTorch's memory visualiser reads.

    Args:
        device: return only the buffers and events of this device; None for all.

    Returns:
        A dictionary with the keys of ``torch.cuda.memory._snapshot``. ``device_traces`` has, for each device, the list
        of events since :func:`_record_memory_history`.
    """
    index = None if device is None else _check_index(device)
    segments = [segment for segment in memory_snapshot() if index in (None, segment["device"])]
    traces: list[list[dict[str, Any]]] = [[] for _ in range(device_count())]
    if is_initialized():
        _fill(traces, index)
    return {"segments": segments, "device_traces": traces, "allocator_settings": {}}


def _fill(traces: list[list[dict[str, Any]]], index: int | None) -> None:
    fields, files, names, lines = native().memory_history()
    frames = [
        {"filename": file, "name": name, "line": line} for file, name, line in zip(files, names, lines, strict=True)
    ]
    rest = iter(fields)
    for is_free in rest:
        device, address, size, stream, time, depth = (next(rest) for _ in range(6))
        stack = [frames[next(rest)] for _ in range(depth)]
        if index not in (None, device):
            continue
        event = {"addr": address, "frames": stack, "size": size, "stream": stream, "time_us": time}
        # The visualiser expects both events; here a freed block can be reused at once.
        for action in ("free_requested", "free_completed") if is_free else ("alloc",):
            traces[device].append({"action": action} | event)


def _dump_snapshot(filename: str = "dump_snapshot.pickle") -> None:
    """Write :func:`_snapshot` to a file, for https://pytorch.org/memory_viz.

    Args:
        filename: the file.
    """
    with open(filename, "wb") as file:
        pickle.dump(_snapshot(), file)
