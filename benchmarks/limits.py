"""The device's limits: the speed of OpenCL kernels that only move bytes, or only multiply and add."""

import time
from ctypes import _SimpleCData, c_double, c_float, c_uint32, c_uint64, c_void_p
from pathlib import Path

import torch

from benchmarks.opencl import Device, Loader, Queue

SOURCE = Path(__file__).with_name("limits.cl")
# For limits.cl: the bytes that an item moves at a time. With 16, items on GPUs access neighbours in memory.
VECTOR_BYTES = {"cpu": 64, "gpu": 16}
# In limits.cl: twelve chains of such vectors, with a multiplication and an addition each.
CHAINS = 12
# Devices differ a thousandfold in the time of a round: the first launch shows how many rounds take LEAST_SECONDS.
FEWEST_ROUNDS, MOST_ROUNDS = 500, 1 << 24
# The limit is the device's, not the share that other programs leave: while these ran, successive launches had 70 to 304
# GFLOP/s on two cores with AVX-512, for any groups and rounds. So the best of several attempts counts.
ATTEMPTS = 3
# Shorter launches would measure the enqueueing.
SMALLEST_BYTES = 1 << 20
# In less time the clock and the scheduler show; with fewer launches, the wait for their end on a GPU.
LEAST_SECONDS, LAUNCHES = 0.005, 2
# More than the caches of any device: larger transfers have the same speed.
LARGEST_BYTES = 1 << 29
# (work-groups per compute unit, their size)
GROUPS = {"cpu": (8, 1), "gpu": (32, 64)}


class Limits:
    """Measures an OpenCL device through its driver alone, without code of the backend.

    Args:
        device: the device in the backend; the driver's device is found by name.

    Attributes:
        cache_bytes: the size of the device's largest cache.
    """

    def __init__(self, device: torch.device) -> None:
        properties = torch.opencl.get_device_properties(device)
        found = _find(properties.platform, properties.name)
        kind = "cpu" if properties.type == "cpu" else "gpu"
        self._vector_bytes = VECTOR_BYTES[kind]
        self._queue = Queue(found)
        self._program = self._queue.build(SOURCE.read_text(), f"-D VECTOR_BYTES={self._vector_bytes}")
        groups, size = GROUPS[kind]
        self._items, self._size = groups * size * properties.compute_units, size
        self._result = self._queue.buffer(8 * self._items)
        self._operands: dict[int, tuple[c_void_p, int]] = {}
        self._rounds: dict[str, int] = {}
        self.cache_bytes = found.properties()["cache_bytes"]

    def memory_seconds(self, read: int, written: int) -> float:
        """Measure the time to move this many bytes, from and to buffers of that size.

        Work that fits into a cache is thus compared with a kernel whose data fit as well.

        Args:
            read: bytes read.
            written: bytes written.

        Returns:
            Seconds of a kernel that only reads, copies, or adds two vectors, whichever is most similar.
        """
        if written * 8 < read:
            name, buffers = "sum", 1
        elif written * 3 < read * 2:
            name, buffers = "triad", 3
        else:
            name, buffers = "copy", 2
        total = min(max(read + written, SMALLEST_BYTES), LARGEST_BYTES)
        count = max(total // buffers // self._vector_bytes // 4 * 4, 4)
        operands = [self._buffer(index, count) for index in range(buffers)]
        if name == "sum":
            operands.append(self._result)
        seconds = self._run(name, *operands, c_uint64(count))
        return seconds * (read + written) / (count * self._vector_bytes * buffers)

    def flops(self, dtype: torch.dtype = torch.float32) -> float:
        """Measure the operations per second of a kernel that only multiplies and adds.

        Args:
            dtype: ``torch.float64``; any other dtype is computed in float32.

        Returns:
            Multiplications and additions per second.
        """
        name, scalar, size = ("fma_double", c_double, 8) if dtype == torch.float64 else ("fma_float", c_float, 4)
        each = 2 * CHAINS * (self._vector_bytes // size) * self._items

        def seconds(rounds: int) -> float:
            return self._run(name, self._result, scalar(0.5), scalar(0.25), c_uint32(rounds))

        if name not in self._rounds:
            needed = FEWEST_ROUNDS * LEAST_SECONDS / seconds(FEWEST_ROUNDS)
            self._rounds[name] = min(max(FEWEST_ROUNDS, round(needed)), MOST_ROUNDS)
        rounds = self._rounds[name]
        return each * rounds / min(seconds(rounds) for _ in range(ATTEMPTS))

    def _run(self, name: str, *arguments: _SimpleCData) -> float:
        """Return the mean time of launches, after one that fills the caches."""
        kernel = self._queue.kernel(self._program, name)
        self._queue.set_arguments(kernel, arguments)
        self._launch(kernel, 1)
        launches = LAUNCHES
        while (seconds := self._launch(kernel, launches)) < LEAST_SECONDS:
            launches *= 2
        return seconds / launches

    def _launch(self, kernel: c_void_p, times: int) -> float:
        start = time.perf_counter()
        for _ in range(times):
            self._queue.launch(kernel, self._items, self._size)
        self._queue.finish()
        return time.perf_counter() - start

    def _buffer(self, index: int, count: int) -> c_void_p:
        """Return the operand of that index, with at least `count` vectors of random values."""
        size = count * self._vector_bytes
        buffer, has = self._operands.get(index, (None, 0))
        if has < size:
            if buffer:
                self._queue.release(buffer)
            numbers = torch.rand(size // 4, generator=torch.Generator().manual_seed(index))
            buffer = self._queue.buffer(size, numbers.data_ptr())
            self._operands[index] = buffer, size
        return buffer


def _find(platform: str, name: str) -> Device:
    for found, _, devices in Loader().platforms():
        for device in devices:
            if (found, device.name) == (platform, name):
                return device
    raise LookupError(f"OpenCL does not list {name} of {platform}: does the backend use another loader?")
