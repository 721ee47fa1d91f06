"""``torch.opencl.interop``: shares context, queues and memory with PyOpenCL, in both directions.

PyOpenCL (``pip install pyopencl``) is imported when a function here is called. docs/interop.md has examples.
"""

from typing import TYPE_CHECKING, Any

import torch

from torch_opencl import _dlpack
from torch_opencl._lazy import _lazy_init
from torch_opencl._load import native
from torch_opencl._utils import DeviceLike, _get_device_index
from torch_opencl.streams import current_stream

if TYPE_CHECKING:
    import pyopencl
    import pyopencl.array

__all__ = ["context", "from_pyopencl", "queue", "to_pyopencl"]


def context(device: DeviceLike = None) -> "pyopencl.Context":
    """Return a device's OpenCL context: objects that are made in it can share memory with tensors.

    Args:
        device: the device; the current one by default.

    Returns:
        The context, of this one device.

    Raises:
        ModuleNotFoundError: PyOpenCL is not installed.
        RuntimeError: there is no such device.
    """
    _lazy_init()
    handle = native().native_context(_get_device_index(device, optional=True))
    return _pyopencl().Context.from_int_ptr(handle, retain=True)


def queue(stream: torch.Stream | None = None) -> "pyopencl.CommandQueue":
    """Return a stream's command queue: it is in order, so its commands and the tensors' need no other synchronization.

    Args:
        stream: the stream; the current one of the current device by default.

    Returns:
        The queue. From now on the stream defers no launches, and queries the driver to find out whether it is idle.

    Raises:
        ModuleNotFoundError: PyOpenCL is not installed.
    """
    chosen = current_stream() if stream is None else stream
    handle: int = chosen.native_handle  # type: ignore[attr-defined]  # PyTorch does not declare it
    return _pyopencl().CommandQueue.from_int_ptr(handle, retain=True)


def to_pyopencl(tensor: torch.Tensor) -> "pyopencl.array.Array":
    """Return a PyOpenCL array over a tensor's memory, without copying.

    Args:
        tensor: a tensor on an OpenCL device, of any strides. NumPy has no bfloat16 and no float8: view these as
            integers.

    Returns:
        The array, on the queue of the current stream. It keeps the tensor's memory alive, and so do its views and
        copies.

    Raises:
        ModuleNotFoundError: PyOpenCL is not installed.
        ValueError: the tensor is not on an OpenCL device, has no elements, or requires gradients.
        TypeError: NumPy has no such dtype.
    """
    cl = _pyopencl()
    import pyopencl.array  # noqa: PLC0415

    if tensor.device.type != "opencl" or tensor.layout != torch.strided or tensor.numel() == 0:
        raise ValueError(f"expected a dense tensor with elements on an opencl device, not {_described(tensor)}")
    if tensor.requires_grad or tensor.is_conj() or tensor.is_neg():
        raise ValueError(
            "pass tensor.detach().resolve_conj().resolve_neg(): an array has no gradient, conjugate bit or negative bit"
        )
    dtype = _numpy_dtype(tensor.dtype)
    stream = current_stream(tensor.device)
    # Other code may use the memory on this stream after the tensor is freed.
    tensor.record_stream(stream)
    memory, offset = native().native_buffer(tensor)
    buffer, offset = _region(cl.MemoryObject.from_int_ptr(memory, retain=True), offset, tensor, context(tensor.device))
    buffer._torch_tensor = tensor
    strides = tuple(stride * tensor.element_size() for stride in tensor.stride())
    return pyopencl.array.Array(queue(stream), tuple(tensor.shape), dtype, data=buffer, offset=offset, strides=strides)


def from_pyopencl(array: "pyopencl.array.Array") -> torch.Tensor:
    """Return a tensor over a PyOpenCL array's memory, without copying.

    The current stream waits for the commands now in the array's queue and for the array's events. Later work on the
    array is ordered only if it is enqueued on the queue of :func:`queue`.

    Args:
        array: an array in the context of :func:`context`, without negative strides.

    Returns:
        The tensor, which keeps the array alive.

    Raises:
        ModuleNotFoundError: PyOpenCL is not installed.
        RuntimeError: the array belongs to another context.
        TypeError: its memory is not a buffer, or PyTorch has no dtype for its elements.
        ValueError: it has no elements or negative strides.
    """
    cl = _pyopencl()
    if not isinstance(array.base_data, cl.MemoryObjectHolder):
        raise TypeError(f"expected an array over a buffer, not over {type(array.base_data).__name__}")
    dtype = _torch_dtype(array.dtype)
    size = array.dtype.itemsize
    if any(stride < 0 or stride % size for stride in array.strides):
        raise ValueError(f"a tensor cannot have strides of {array.strides} bytes with elements of {size} bytes")
    strides = [stride // size for stride in array.strides]
    held = [array]
    tensor = _dlpack.tensor_of(
        array.base_data.int_ptr,
        int(array.offset),
        shape=array.shape,
        strides=strides,
        dtype=dtype,
        release=held.clear,
    )
    _order(cl, array, queue(current_stream(tensor.device)))
    return tensor


def _order(cl: Any, array: Any, ours: Any) -> None:
    """Make our queue wait for the commands that have been enqueued for an array."""
    events = list(array.events)
    if array.queue is not None and array.queue != ours:
        events.append(cl.enqueue_marker(array.queue))
        array.queue.flush()
    if events:
        cl.enqueue_barrier(ours, wait_for=events)


def _region(parent: Any, offset: int, tensor: torch.Tensor, context: Any) -> tuple[Any, int]:
    """A sub-buffer for a tensor, if the device allows one to start there: PyOpenCL's kernels may take no offsets."""
    alignment = max(device.mem_base_addr_align for device in context.devices) // 8
    last = sum((n - 1) * stride for n, stride in zip(tensor.shape, tensor.stride(), strict=True))
    if offset == 0 or offset % alignment != 0:
        return parent, offset
    return parent.get_sub_region(offset, (last + 1) * tensor.element_size()), 0


def _described(tensor: torch.Tensor) -> str:
    return f"one of shape {tuple(tensor.shape)} and layout {tensor.layout} on {tensor.device}"


def _numpy_dtype(dtype: torch.dtype) -> Any:
    try:
        return torch.empty(0, dtype=dtype).numpy().dtype
    except TypeError as failure:
        raise TypeError(f"NumPy has no {dtype}: view the tensor as integers, tensor.view(torch.int16)") from failure


def _torch_dtype(dtype: Any) -> torch.dtype:
    import numpy as np  # noqa: PLC0415

    return torch.from_numpy(np.empty(0, dtype)).dtype


def _pyopencl() -> Any:
    try:
        import pyopencl  # noqa: PLC0415
    except ModuleNotFoundError as failure:
        raise ModuleNotFoundError(
            "torch.opencl.interop needs PyOpenCL: pip install pyopencl", name="pyopencl"
        ) from failure
    return pyopencl
