"""Streams and events: PyTorch's classes, with the OpenCL device as the default."""

from typing import cast

import torch

from torch_opencl._lazy import _lazy_init
from torch_opencl._load import native
from torch_opencl._utils import DeviceLike, _get_device_index
from torch_opencl.device import device as device_guard

__all__ = [
    "Event",
    "ExternalStream",
    "Stream",
    "StreamContext",
    "current_stream",
    "default_stream",
    "get_stream_from_external",
    "set_stream",
    "stream",
]


class Stream(torch.Stream):
    """An in-order queue of work on one device. Streams of one device run independently.

    Args:
        device: the device to run on; the current one by default.
        priority: accepted for compatibility; OpenCL queues have no priority.
        stream_id: with ``device_index`` and ``device_type``, names an existing stream.

    Raises:
        RuntimeError: there is no such device.
    """

    def __new__(cls, device: DeviceLike = None, priority: int = 0, **existing: int) -> "Stream":
        """Make a stream, or an object for an existing one."""
        if existing:
            return super().__new__(cls, **existing, priority=priority)
        index = _get_device_index(device, optional=True)
        _lazy_init()
        return super().__new__(cls, torch.device("opencl", index), priority=priority)

    def wait_stream(self, stream: torch.Stream) -> None:
        """Make work submitted to this stream from now on wait for the work that ``stream`` has now.

        Args:
            stream: the stream to wait for.
        """
        self.wait_event(stream.record_event())

    def record_event(self, event: torch.Event | None = None) -> torch.Event:
        """Record an event in this stream.

        Args:
            event: the event to record; a new :class:`Event` by default.

        Returns:
            The event.
        """
        event = Event() if event is None else event
        event.record(self)
        return event

    def __repr__(self) -> str:
        return f"torch.opencl.Stream(device={self.device}, stream_id={self.stream_id:#x})"


class ExternalStream(Stream):
    """The stream of a command queue that other code has made, such as PyOpenCL's.

    Commands of tensors and of that code are in order. The queue is retained for the rest of the process, and equal
    queues are equal streams.

    Args:
        stream_ptr: the ``cl_command_queue`` as an integer, PyOpenCL's ``queue.int_ptr``, in the context of
            :func:`torch.opencl.interop.context`. Events can be timed only if it has ``CL_QUEUE_PROFILING_ENABLE``.
        device: the device; the current one by default.

    Raises:
        RuntimeError: the queue has another context or device or is not in order, or there is no such device.
        TypeError: ``stream_ptr`` is not an integer that fits a pointer.
    """

    def __new__(cls, stream_ptr: int, device: DeviceLike = None) -> "ExternalStream":
        """Make an object for the stream of the queue."""
        if not isinstance(stream_ptr, int) or not 0 <= stream_ptr < 2**63:
            raise TypeError(f"stream_ptr must be a cl_command_queue as an integer, got {stream_ptr!r}")
        index = _get_device_index(device, optional=True)
        _lazy_init()
        kind = torch._C._accelerator_getStream(index).device_type
        stream_id = native().adopt_queue(index, stream_ptr)
        made = super().__new__(cls, stream_id=stream_id, device_index=index, device_type=kind)
        return cast("ExternalStream", made)


class Event(torch.Event):
    """A marker in a stream, for waiting and for measuring time.

    The object is a plain :class:`torch.Event`: PyTorch measures the time only between these.

    Args:
        enable_timing: whether :meth:`elapsed_time` will be called.
        blocking: accepted for compatibility; a waiting thread always sleeps.
        interprocess: must be False; OpenCL events belong to one process.

    Raises:
        ValueError: ``interprocess`` is True.
    """

    def __new__(  # type: ignore[misc]  # a plain event, on purpose
        cls, enable_timing: bool = False, blocking: bool = False, interprocess: bool = False
    ) -> torch.Event:
        """Make an event on the current device."""
        if interprocess:
            raise ValueError("OpenCL events cannot be shared between processes")
        _lazy_init()
        return torch.Event("opencl", enable_timing=enable_timing, blocking=blocking)


class StreamContext:
    """Context manager that makes a stream, and its device, the current one; see :func:`stream`."""

    def __init__(self, stream: torch.Stream | None) -> None:
        self.stream = stream
        self._device = device_guard(None if stream is None else stream.device)
        self._previous: Stream | None = None

    def __enter__(self) -> None:
        if self.stream is not None:
            self._device.__enter__()
            self._previous = current_stream(self.stream.device)
            set_stream(self.stream)

    def __exit__(self, *exception: object) -> None:
        if self._previous is not None:
            set_stream(self._previous)
            self._device.__exit__(*exception)


def stream(stream: torch.Stream | None) -> StreamContext:
    """Select a stream for the ``with`` block that follows.

    Args:
        stream: the stream; None selects nothing.

    Returns:
        A context manager.
    """
    return StreamContext(stream)


def current_stream(device: DeviceLike = None) -> Stream:
    """Return the current stream of this thread.

    Args:
        device: the device; the current one by default.

    Returns:
        The stream.

    Raises:
        RuntimeError: there is no such device.
    """
    _lazy_init()
    current = torch._C._accelerator_getStream(_get_device_index(device, optional=True))
    return _wrap(current.stream_id, current.device_index, current.device_type)


def default_stream(device: DeviceLike = None) -> Stream:
    """Return the stream that is used unless another one is selected.

    Args:
        device: the device; the current one by default.

    Returns:
        The stream.

    Raises:
        RuntimeError: there is no such device.
    """
    current = current_stream(device)
    return _wrap(0, current.device_index, current.device_type)


def get_stream_from_external(data_ptr: int, device: DeviceLike = None) -> Stream:
    """Return the stream of a command queue that other code has made: :class:`ExternalStream`.

    Args:
        data_ptr: the ``cl_command_queue`` as an integer.
        device: the device; the current one by default.

    Returns:
        The stream.

    Raises:
        RuntimeError: as :class:`ExternalStream`.
    """
    return ExternalStream(data_ptr, device)


def set_stream(stream: torch.Stream | None) -> None:
    """Make a stream, and its device, the current one of this thread.

    Args:
        stream: the stream; None changes nothing.

    Raises:
        RuntimeError: the stream does not belong to an OpenCL device.
    """
    if stream is None:
        return
    _lazy_init()
    torch._C._accelerator_setStream(stream)


def _wrap(stream_id: int, device_index: int, device_type: int) -> Stream:
    return Stream(stream_id=stream_id, device_index=device_index, device_type=device_type)
