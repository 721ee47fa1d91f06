"""The device's limits: how fast an OpenCL kernel that does nothing else moves bytes, and multiplies and adds."""

import time
import warnings
from pathlib import Path

import numpy
import pyopencl
import torch

SOURCE = Path(__file__).with_name("limits.cl")
VECTOR_BYTES = 64
# Of limits.cl: twelve chains of vectors of 64 bytes, a multiplication and an addition each.
CHAINS = 12
ARITHMETIC_ROUNDS = 50_000
# Shorter launches would measure the enqueueing.
SMALLEST_BYTES = 1 << 20
# The clock's and the scheduler's part shows in less.
LEAST_SECONDS, LAUNCHES = 0.005, 2
# More than the caches of any device: what is larger runs at the same speed.
LARGEST_BYTES = 1 << 29
# (work-groups for each compute unit, their size)
GROUPS = {"cpu": (8, 1), "gpu": (32, 64)}


class Limits:
    """Measures an OpenCL device through pyopencl, with no code of the backend in between.

    Args:
        device: the device of the backend; the same one is looked up by its name.

    Attributes:
        cache_bytes: the size of the device's largest cache.
    """

    def __init__(self, device: torch.device) -> None:
        properties = torch.opencl.get_device_properties(device)
        found = _find(properties.platform, properties.name)
        self._context = pyopencl.Context([found])
        self._queue = pyopencl.CommandQueue(self._context)
        with warnings.catch_warnings():
            # pyopencl warns of whatever a compiler says, even if that is nothing of interest.
            warnings.simplefilter("ignore")
            program = pyopencl.Program(self._context, SOURCE.read_text()).build()
        self._kernels = {kernel.function_name: kernel for kernel in program.all_kernels()}
        groups, size = GROUPS["cpu" if properties.type == "cpu" else "gpu"]
        self._items, self._size = groups * size * found.max_compute_units, size
        self._result = pyopencl.Buffer(self._context, pyopencl.mem_flags.READ_WRITE, 8 * self._items)
        self._operands: dict[int, pyopencl.Buffer] = {}
        self.cache_bytes = found.global_mem_cache_size

    def memory_seconds(self, read: int, written: int) -> float:
        """Measure how long moving so many bytes takes once, from and to places that are as large.

        What fits into a cache is so compared with a kernel whose data fit as well.

        Args:
            read: bytes read.
            written: bytes written.

        Returns:
            Seconds that a kernel which only reads, copies, or adds two vectors takes, whichever is most alike.
        """
        if written * 8 < read:
            name, buffers = "sum", 1
        elif written * 3 < read * 2:
            name, buffers = "triad", 3
        else:
            name, buffers = "copy", 2
        total = min(max(read + written, SMALLEST_BYTES), LARGEST_BYTES)
        count = max(total // buffers // VECTOR_BYTES // 4 * 4, 4)
        operands = [self._buffer(index, count) for index in range(buffers)]
        if name == "sum":
            operands.append(self._result)
        seconds = self._run(name, *operands, numpy.uint64(count))
        return seconds * (read + written) / (count * VECTOR_BYTES * buffers)

    def flops(self, dtype: torch.dtype = torch.float32) -> float:
        """Measure the operations a second of a kernel that only multiplies and adds.

        Args:
            dtype: ``torch.float64``, or any other, which is computed in float32.

        Returns:
            Multiplications and additions a second.
        """
        name, scalar = ("fma_double", numpy.float64) if dtype == torch.float64 else ("fma_float", numpy.float32)
        lanes = VECTOR_BYTES // scalar().itemsize
        seconds = self._run(name, self._result, scalar(0.5), scalar(0.25), numpy.uint32(ARITHMETIC_ROUNDS))
        return 2 * CHAINS * lanes * ARITHMETIC_ROUNDS * self._items / seconds

    def _run(self, name: str, *arguments: object) -> float:
        """Return the mean time of launches, after one that fills the caches."""
        kernel = self._kernels[name]
        kernel.set_args(*arguments)
        self._launch(kernel, 1)
        seconds, launches = 0.0, 0
        while seconds < LEAST_SECONDS:
            seconds, launches = seconds + self._launch(kernel, LAUNCHES), launches + LAUNCHES
        return seconds / launches

    def _launch(self, kernel: pyopencl.Kernel, times: int) -> float:
        start = time.perf_counter()
        for _ in range(times):
            pyopencl.enqueue_nd_range_kernel(self._queue, kernel, (self._items,), (self._size,))
        self._queue.finish()
        return time.perf_counter() - start

    def _buffer(self, index: int, count: int) -> pyopencl.Buffer:
        """Return the operand of that index, with room for so many vectors of random numbers."""
        size = count * VECTOR_BYTES
        if index not in self._operands or self._operands[index].size < size:
            numbers = numpy.random.default_rng(index).random(size // 4, dtype=numpy.float32)
            flags = pyopencl.mem_flags.READ_WRITE | pyopencl.mem_flags.COPY_HOST_PTR
            self._operands[index] = pyopencl.Buffer(self._context, flags, hostbuf=numbers)
        return self._operands[index]


def _find(platform: str, name: str) -> pyopencl.Device:
    for candidate in pyopencl.get_platforms():
        for device in candidate.get_devices():
            if (candidate.name.strip(), device.name.strip()) == (platform, name):
                return device
    raise LookupError(f"pyopencl does not find {name} of {platform}: is its OpenCL loader another one?")
