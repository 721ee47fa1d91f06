"""Memory pools: allocations that are kept separate from all others, as with ``torch.cuda.MemPool``."""

import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NoReturn

import torch

from torch_opencl._lazy import _lazy_init
from torch_opencl._load import native
from torch_opencl._snapshots import memory_snapshot
from torch_opencl._utils import DeviceLike, _get_device_index
from torch_opencl.device import device as device_guard
from torch_opencl.streams import current_stream, stream as select_stream

__all__ = [
    "MemPool",
    "caching_allocator_alloc",
    "caching_allocator_delete",
    "change_current_allocator",
    "get_allocator_backend",
    "use_mem_pool",
]

_NO_OTHER_ALLOCATOR = (
    "OpenCL's allocator cannot be replaced: device memory is a cl_mem, and only this package's allocator knows which "
    "one an address belongs to. For tensors over other buffers use torch.opencl.interop or torch.from_dlpack."
)


class MemPool:
    """Separate memory for the allocations under :func:`use_mem_pool`.

    When the object is deleted, its free memory is returned to the drivers. Memory that tensors still use is returned
    later, by :func:`torch.opencl.empty_cache`, which keeps the free memory of a pool as long as the object exists.

    Args:
        allocator: must be None: OpenCL has no other allocators.
        use_on_oom: whether the pool's free memory is released for other allocations when memory runs out.
        no_split: whether a buffer is used for one tensor at a time.

    Raises:
        NotImplementedError: ``allocator`` is not None.
    """

    def __init__(self, allocator: object = None, use_on_oom: bool = False, no_split: bool = False) -> None:
        if allocator is not None:
            raise NotImplementedError(_NO_OTHER_ALLOCATOR)
        _lazy_init()
        self._id: tuple[int, int] = native().open_pool(use_on_oom, no_split)
        self._users = 1
        close = weakref.finalize(self, native().close_pool, *self._id)
        # The end of the process frees the memory anyway.
        close.atexit = False

    @property
    def id(self) -> tuple[int, int]:
        """The pool's id, two integers: ``torch.opencl.graph(g, pool=pool.id)`` captures into it."""
        return self._id

    @property
    def allocator(self) -> None:
        """None: the allocator is always this package's."""
        return None

    def __reduce__(self) -> NoReturn:
        # A copy would refer to this pool's memory without keeping it.
        raise TypeError("cannot copy or pickle a MemPool: the memory of a pool belongs to one object in one process")

    def use_count(self) -> int:
        """Return the number of users.

        Returns:
            1 for the object, and 1 for each active :func:`use_mem_pool`.
        """
        return self._users

    def snapshot(self, include_traces: bool = True) -> list[dict[str, Any]]:
        """Return the buffers of the pool.

        Args:
            include_traces: accepted for compatibility.

        Returns:
            The buffers of :func:`torch.opencl.memory_snapshot` that belong to the pool.
        """
        return memory_snapshot(self._id)


@contextmanager
def use_mem_pool(pool: MemPool, device: DeviceLike = None) -> Iterator[None]:
    """Allocate in a pool inside the ``with`` block, in the calling thread; autograd's threads are not affected.

    A capture inside allocates in its graph's pool: ``torch.opencl.graph(g, pool=pool.id)``.

    Args:
        pool: the pool.
        device: the device whose allocations go to the pool; the current device by default.

    Yields:
        Nothing.

    Raises:
        RuntimeError: there is no such device.
        TypeError: ``pool`` is not a :class:`MemPool`.
    """
    if not isinstance(pool, MemPool):
        raise TypeError(f"pool must be a torch.opencl.MemPool, got {type(pool).__name__}")
    _lazy_init()
    index = _get_device_index(device, optional=True)
    native().enter_pool(index, *pool.id)
    pool._users += 1
    try:
        yield
    finally:
        pool._users -= 1
        native().leave_pool(index, *pool.id)


def change_current_allocator(allocator: object) -> NoReturn:
    """Refuse: OpenCL has no other allocators.

    Args:
        allocator: any.

    Raises:
        NotImplementedError: always.
    """
    raise NotImplementedError(_NO_OTHER_ALLOCATOR)


def get_allocator_backend() -> str:
    """Return the name of the allocator.

    Returns:
        ``"native"``: there is no other.
    """
    return "native"


# Memory from `caching_allocator_alloc`, by address.
_ALLOCATED: dict[int, torch.Tensor] = {}


def caching_allocator_alloc(size: int, device: DeviceLike = None, stream: torch.Stream | int | None = None) -> int:
    """Allocate device memory that belongs to no tensor, until :func:`caching_allocator_delete`.

    Args:
        size: number of bytes.
        device: the device; the current one by default.
        stream: the stream, or its ``stream_id``, whose work uses the memory; the current one by default.

    Returns:
        An address, which is not a host pointer: ``torch_opencl_buffer`` of torch_opencl.h returns its ``cl_mem``. 0
        for 0 bytes.

    Raises:
        RuntimeError: there is no such device or stream, or the stream belongs to another device.
        TypeError: ``stream`` is neither a stream nor an int.
        torch.OutOfMemoryError: there is no memory left.
    """
    index = _get_device_index(device, optional=True)
    if isinstance(stream, int):
        like = current_stream(index)
        stream = torch.Stream(stream_id=stream, device_index=index, device_type=like.device_type)
    if stream is not None and not isinstance(stream, torch.Stream):
        raise TypeError(f"stream must be a torch.Stream, a stream_id or None, got {type(stream).__name__}")
    if stream is not None and stream.device_index != index:
        raise RuntimeError(f"a stream on {stream.device} cannot use memory that is allocated on opencl:{index}")
    with device_guard(index), select_stream(stream):
        memory = torch.empty(size, dtype=torch.uint8, device="opencl")
    address = memory.data_ptr()
    if size:
        _ALLOCATED[address] = memory
    return address


def caching_allocator_delete(mem_ptr: int) -> None:
    """Free memory of :func:`caching_allocator_alloc`.

    Args:
        mem_ptr: the address; 0 does nothing.

    Raises:
        ValueError: nothing has been allocated there.
    """
    if mem_ptr and _ALLOCATED.pop(mem_ptr, None) is None:
        raise ValueError(f"caching_allocator_alloc has allocated nothing at {mem_ptr:#x}")
