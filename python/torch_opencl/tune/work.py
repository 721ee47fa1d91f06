"""The work that is measured, and the checks of its results."""

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.nn.functional as F

from torch_opencl.device import get_device_properties, synchronize

# Minimum seconds of a timing: shorter work is repeated.
_LEAST_SECONDS = 0.01
# A ratio is measured until its uncertainty is this low, but at most _MOST_ROUNDS times: if other programs run, times
# differ by half.
_PRECISION = 0.01
_MOST_ROUNDS = 40
# Sums in another order differ by less, in units of the largest value, the resolution of the dtype in which they are
# computed, and the root of the number of their terms; a wrong element differs by thousands.
_TOLERANCE = 2
# Kernel size of the convolutions: 3 would be Winograd on CPUs, on which the parameters have little effect.
_KERNEL_SIZE = 5


@dataclass(frozen=True)
class Work:
    """A computation.

    Attributes:
        name: used in tables.
        terms: K, the number of products in the sum of each element of the result.
        run: computes it.
        inputs: of `run`, on the host.
        expected: the CPU's result.
    """

    name: str
    terms: int
    run: Callable[..., torch.Tensor]
    inputs: tuple[torch.Tensor, ...]
    expected: torch.Tensor

    def tolerance(self) -> float:
        """Return how much a correct result may differ from the CPU's.

        Returns:
            An absolute tolerance for all elements; 0 for integers.
        """
        dtype = self.expected.dtype
        if not (dtype.is_floating_point or dtype.is_complex):
            return 0
        stored = torch.finfo(dtype).eps
        computed = min(stored, torch.finfo(torch.float32).eps)
        return self.expected.abs().max().item() * (stored + _TOLERANCE * computed * self.terms**0.5)


class WrongResultError(RuntimeError):
    """A result on the device differs from the CPU's."""


class Bench:
    """Work on a device.

    Args:
        device: the device.
        work: the computation.
    """

    def __init__(self, device: torch.device, work: Work):
        self.work = work
        self._device = device
        self._inputs = [tensor.to(device) for tensor in work.inputs]

    def check(self) -> None:
        """Compare the result with the CPU's.

        Raises:
            WrongResultError: they differ by more than sums in another order do.
        """
        result, expected = self.work.run(*self._inputs).cpu(), self.work.expected
        error, limit = (result - expected).abs().max().item(), self.work.tolerance()
        if not error <= limit:
            raise WrongResultError(f"{self.work.name}: a result is wrong by {error:.2g}, more than {limit:.2g}")

    def compare(self, use_candidate: Callable[[], None], use_other: Callable[[], None], rounds: int) -> float:
        """Time the work with two sets of parameters, in turns.

        Args:
            use_candidate: sets the candidate's parameters.
            use_other: sets the parameters to compare with.
            rounds: the least number of timings of each; there are more if the times differ much.

        Returns:
            The candidate's speedup: the median of the ratios of neighbouring times.

        Raises:
            WrongResultError: the candidate's result is wrong.
            RuntimeError: its kernels cannot be built or launched.
        """
        use_other()
        self._seconds(1)
        use_candidate()
        self.check()
        repeats = max(1, round(_LEAST_SECONDS / max(self._seconds(1), 1e-6)))
        ratios: list[float] = []
        while len(ratios) < rounds or (len(ratios) < _MOST_ROUNDS and _uncertainty(ratios) > _PRECISION):
            seconds = {}
            # The order alternates: the inputs of the last run are in the caches.
            for use in (use_candidate, use_other) if len(ratios) % 2 else (use_other, use_candidate):
                use()
                seconds[use] = self._seconds(repeats)
            ratios.append(seconds[use_other] / seconds[use_candidate])
        return statistics.median(ratios)

    def _seconds(self, repeats: int) -> float:
        """Time the work, from an idle device to an idle device."""
        synchronize(self._device)
        start = time.perf_counter()
        for _ in range(repeats):
            self.work.run(*self._inputs)
        synchronize(self._device)
        return time.perf_counter() - start


def _uncertainty(ratios: list[float]) -> float:
    """Return the likely relative error of the median of these ratios, compared with many more."""
    lower, middle, upper = statistics.quantiles(ratios, n=4)
    return (upper - lower) / middle / len(ratios) ** 0.5


def timed_work(quick: bool) -> list[Work]:
    """Return the work that candidates are timed with: square, tall, wide and batched matmuls, and convolutions.

    Args:
        quick: return only a few of them.

    Returns:
        The work, each with separate inputs.
    """
    make = [
        lambda: _matmul("512 x 512 x 512", 512, 512, 512),
        lambda: _matmul("1024 x 1024 x 1024", 1024, 1024, 1024),
        lambda: _convolution("5x5 convolution, 64 of 32x32", 2, 64, 64, 32),
    ]
    if not quick:
        make += [
            lambda: _matmul("2048 x 2048 x 2048", 2048, 2048, 2048),
            lambda: _matmul("4096 x 64 x 1024", 4096, 64, 1024),
            lambda: _matmul("64 x 4096 x 1024", 64, 4096, 1024),
            lambda: _matmul("32 of 256 x 256 x 64", 256, 256, 64, batches=32),
            lambda: _weight_gradient("its weight's gradient", 2, 64, 64, 32),
        ]
    return [function() for function in make]


def checked_work(device: torch.device) -> list[Work]:
    """Return the work that the winner of a group must compute correctly, besides the work that it was timed with.

    Args:
        device: the device.

    Returns:
        Small work of odd sizes, in every dtype that kernels have variants for.
    """
    dtypes = [torch.float32, torch.bfloat16, torch.int64, torch.complex64]
    if get_device_properties(device).fp64:
        dtypes += [torch.float64, torch.complex128]
    return [
        *(_matmul(f"67 x 131 x 301 of {dtype}", 67, 131, 301, dtype=dtype) for dtype in dtypes),
        _matmul("3 of 70 x 97 x 1030", 70, 97, 1030, batches=3),
        _matmul("1030 x 97 x 70, transposed", 97, 1030, 70, transposed=True),
        _convolution("5x5 convolution, 13 of 11x11", 2, 13, 19, 11),
        _weight_gradient("its weight's gradient", 2, 13, 19, 11),
    ]


def _random(*sizes: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    generator = torch.Generator().manual_seed(sum(sizes))
    if dtype == torch.int64:
        return torch.randint(-1000, 1000, sizes, generator=generator)
    wide = torch.float32 if dtype == torch.bfloat16 else dtype
    return torch.randn(sizes, generator=generator, dtype=wide).to(dtype)


def _work(name: str, terms: int, run: Callable[..., torch.Tensor], *inputs: torch.Tensor) -> Work:
    return Work(name, terms, run, inputs, run(*inputs))


def _matmul(
    name: str,
    rows: int,
    columns: int,
    k: int,
    *,
    batches: int = 1,
    dtype: torch.dtype = torch.float32,
    transposed: bool = False,
) -> Work:
    a, b = _random(batches, rows, k, dtype=dtype), _random(batches, k, columns, dtype=dtype)
    a, b = (a, b) if batches > 1 else (a[0], b[0])
    if transposed:
        return _work(name, k, lambda a, b: b.mT @ a.mT, a, b)
    return _work(name, k, torch.matmul, a, b)


def _convolution(name: str, images: int, channels: int, out: int, size: int) -> Work:
    inputs = _random(images, channels, size, size), _random(out, channels, _KERNEL_SIZE, _KERNEL_SIZE)
    return _work(
        name, channels * _KERNEL_SIZE**2, lambda x, weight: F.conv2d(x, weight, padding=_KERNEL_SIZE // 2), *inputs
    )


def _weight_gradient(name: str, images: int, channels: int, out: int, size: int) -> Work:
    def run(x: torch.Tensor, weight: torch.Tensor, grad: torch.Tensor) -> torch.Tensor:
        geometry = ([1, 1], [_KERNEL_SIZE // 2] * 2, [1, 1], False, [0, 0], 1)
        return torch.ops.aten.convolution_backward(grad, x, weight, None, *geometry, [False, True, False])[1]

    x, weight = _random(images, channels, size, size), _random(out, channels, _KERNEL_SIZE, _KERNEL_SIZE)
    inputs = (x, weight, _random(images, out, size, size))
    return _work(name, images * size * size, run, *inputs)
