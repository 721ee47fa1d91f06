"""Checks and measures one row: the CPU, the device and the device's limit in turns."""

import statistics
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

import torch
from torch.utils.flop_counter import FlopCounterMode

from benchmarks.case import Case, Result, Work
from benchmarks.clock import CPU, mean_seconds, warm_up
from benchmarks.eager import EagerProcess
from benchmarks.limits import Limits

ROUNDS = 5
# Elements per comparison, which makes several temporaries: this many stay in a cache and cost no page faults.
CHECKED_AT_ONCE = 1 << 18


class WrongResult(Exception):
    """The device's result differs from the CPU's."""


@dataclass(frozen=True, kw_only=True)
class Row:
    """The measurement of a case.

    Attributes:
        group: the case's group.
        name: the case's name.
        cpu: seconds of a call on the CPU, in each round.
        device: seconds of a call on the device, in each round.
        limit: the least seconds that the device needs, in each round: the longer of moving the bytes and of doing the
            operations; empty if neither is known.
        bound: "memory", "cache" (memory, but all of it fits into a cache) or "arithmetic"; empty without a limit.
        share: the required share of the limit, None for the group's.
        eager: seconds on the device in each round in a process that waits for every specialised program; empty if
            this process does so.
        fallbacks: operators that ran on the CPU because they lack a kernel.
    """

    group: str
    name: str
    cpu: list[float]
    device: list[float]
    limit: list[float] = field(default_factory=list)
    bound: str = ""
    share: float | None = None
    eager: list[float] = field(default_factory=list)
    fallbacks: list[str] = field(default_factory=list)

    @property
    def ratio(self) -> float:
        """The speedup over the CPU: the median of the rounds, in each of which both ran under the same conditions."""
        return statistics.median(cpu / device for cpu, device in zip(self.cpu, self.device, strict=True))

    @property
    def eager_ratio(self) -> float | None:
        """The speedup over the CPU in eager mode, or None if that was not measured."""
        pairs = zip(self.cpu, self.eager, strict=False)
        return statistics.median([cpu / eager for cpu, eager in pairs]) if self.eager else None

    @property
    def over_eager(self) -> float | None:
        """The time divided by the time in eager mode, or None if eager mode was not measured."""
        pairs = zip(self.device, self.eager, strict=False)
        return statistics.median([device / eager for device, eager in pairs]) if self.eager else None

    @property
    def limit_share(self) -> float | None:
        """The share of the device's limit that is reached, or None without a limit."""
        pairs = zip(self.limit, self.device, strict=False)
        return statistics.median([limit / device for limit, device in pairs]) if self.limit else None


def measure(case: Case, device: torch.device, limits: Limits, eager: EagerProcess | None = None) -> Row:
    """Measure a case.

    Args:
        case: the case.
        device: the device to compare with the CPU.
        limits: measures the device's limits.
        eager: measures the row in eager mode. It goes first, so that this process finds its programs on disk.

    Returns:
        The measurements.

    Raises:
        WrongResult: if the results differ by more than the case allows.
    """
    fallbacks = set(torch.opencl.fallbacks())
    if eager and not eager.prepare(case):
        eager = None
    works = {where: build(case, where) for where in (CPU, device)}
    expected, actual = works[CPU].run(), works[device].run()
    check(actual, expected, case.tolerance)
    limit, bound = limit_of(works[CPU], expected, limits)
    del expected, actual

    repeats = {where: warm_up(work, where, case.asynchronous) for where, work in works.items()}
    seconds: dict[torch.device, list[float]] = {where: [] for where in works}
    limit_seconds, eager_seconds = [], []

    def measure_round(where: torch.device) -> float:
        return mean_seconds(works[where], where, repeats[where], case.asynchronous)

    modes = [(seconds[device], partial(measure_round, device))] + ([(eager_seconds, eager.seconds)] if eager else [])
    for _ in range(ROUNDS):
        seconds[CPU].append(measure_round(CPU))
        for figures, measure_mode in modes:
            figures.append(measure_mode())
        # The order alternates, because the first mode wakes the cores for the second.
        modes.reverse()
        if limit:
            limit_seconds.append(limit() / works[device].calls)
    return Row(
        group=case.group,
        name=case.name,
        cpu=seconds[CPU],
        device=seconds[device],
        limit=limit_seconds,
        bound=bound,
        share=case.share,
        eager=eager_seconds,
        fallbacks=sorted(set(torch.opencl.fallbacks()) - fallbacks),
    )


def build(case: Case, device: torch.device) -> Work:
    """Prepare a case's work on a device, with the same random inputs as on any other."""
    torch.manual_seed(0)
    return case.build(device)


def check(actual: Result, expected: Result, tolerance: float | None) -> None:
    """Compare results; raise WrongResult if they differ by more than a case's tolerance."""
    actual, expected = ([value] if isinstance(value, torch.Tensor) else list(value) for value in (actual, expected))
    for ours, theirs in zip(actual, expected, strict=True):
        keywords = {}
        if tolerance is not None and theirs.is_floating_point():
            keywords = {"rtol": 0, "atol": tolerance * theirs.abs().max().item()}
        if ours.shape != theirs.shape:
            raise WrongResult(f"The shape is {tuple(ours.shape)}, but {tuple(theirs.shape)} on the CPU")
        for pair in zip(*(result.cpu().flatten().split(CHECKED_AT_ONCE) for result in (ours, theirs)), strict=True):
            try:
                torch.testing.assert_close(*pair, **keywords)
            except AssertionError as difference:
                raise WrongResult(" ".join(str(difference).split())) from difference


def moved(work: Work, result: Result) -> tuple[int, int]:
    """Return how many bytes work reads and writes, 0 and 0 if they are not counted."""
    results = [result] if isinstance(result, torch.Tensor) else list(result)
    return (0, 0) if work.reads is None else tuple(sum(map(_bytes, part)) for part in (work.reads, results))


def operations_of(work: Work) -> float:
    """Return the additions and multiplications of work."""
    return work.flops or _count_flops(work)


def limit_of(work: Work, result: Result, limits: Limits) -> tuple[Callable[[], float] | None, str]:
    """Return a function that measures the least seconds for the work, and the name of the limit."""
    read, written = moved(work, result)
    operations = operations_of(work)
    dtype = (result if isinstance(result, torch.Tensor) else next(iter(result))).dtype

    def memory() -> float:
        return limits.memory_seconds(read, written)

    def arithmetic() -> float:
        return operations / limits.flops(dtype)

    if operations and (not written or arithmetic() > memory()):
        return arithmetic, "arithmetic"
    if written:
        return memory, "cache" if read + written < limits.cache_bytes else "memory"
    return None, ""


def _count_flops(work: Work) -> int:
    # A separate run: counting decomposes some operators, which then round in between.
    with FlopCounterMode(display=False) as counter:
        work.run()
    return counter.get_total_flops()


def _bytes(tensor: torch.Tensor) -> int:
    """Return how many bytes a tensor has in memory; expanded dimensions take none."""
    elements = 1
    for size, stride in zip(tensor.shape, tensor.stride(), strict=True):
        elements *= size if stride else 1
    return elements * tensor.element_size()
