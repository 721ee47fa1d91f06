"""Timing of work."""

import os
import time

import torch

from benchmarks.case import Work

CPU = torch.device("cpu")
# Quick work is repeated for about this long, to hide the effects of clock and scheduler.
LEAST_SECONDS = 0.02
LEAST_WARM_UP_SECONDS = 0.01
LEAST_WARM_UP_RUNS = 2


def share_threads(device: torch.device) -> None:
    """Give PyTorch's CPU backend as many threads as the device if that is a CPU, otherwise all cores."""
    properties = torch.opencl.get_device_properties(device)
    torch.set_num_threads(properties.compute_units if properties.type == "cpu" else os.cpu_count() or 1)


def warm_up(work: Work, device: torch.device, asynchronous: bool = False) -> int:
    """Run work until caches and kernels are warm.

    Args:
        work: the work.
        device: the device that runs it.
        asynchronous: whether only its submission will be timed.

    Returns:
        The number of repeats for a measurement.
    """
    total, runs = 0.0, 0
    while runs < LEAST_WARM_UP_RUNS or total < LEAST_WARM_UP_SECONDS:
        last = _seconds(work, device, 1, asynchronous)
        total, runs = total + last, runs + 1
    return max(1, round(LEAST_SECONDS / max(last, 1e-7)))


def mean_seconds(work: Work, device: torch.device, repeats: int, asynchronous: bool = False) -> float:
    """Return the mean time of a call.

    Args:
        work: the work; each run of it may be several calls.
        device: the device that runs it.
        repeats: the number of runs; one more run comes first, because the caches are full of other work's data.
        asynchronous: whether the clock stops as soon as the work is submitted. Otherwise it stops at the end of the
            last run.
    """
    if repeats > 1:
        _seconds(work, device, 1, asynchronous)
    if asynchronous:
        # The queue is empty at the start of each run.
        total = sum(_seconds(work, device, 1, asynchronous) for _ in range(repeats))
    else:
        total = _seconds(work, device, repeats, asynchronous)
    return total / repeats / work.calls


def wall_and_processor_seconds(work: Work, device: torch.device, repeats: int) -> tuple[float, float]:
    """Return the mean wall time of a call to its end, and the mean processor time of all threads of this process.

    Other programs on the machine distort processor time less. It does not include work on devices other than the CPU.

    Args:
        work: the work.
        device: the device that runs it.
        repeats: the number of runs; one more run comes first, as in :func:`mean_seconds`.
    """
    _seconds(work, device, 1, asynchronous=False)
    before = time.process_time()
    wall = _seconds(work, device, repeats, asynchronous=False)
    return wall / repeats / work.calls, (time.process_time() - before) / repeats / work.calls


def _seconds(work: Work, device: torch.device, repeats: int, asynchronous: bool) -> float:
    start = time.perf_counter()
    for _ in range(repeats):
        work.run()
    submitted = time.perf_counter()
    if device != CPU:
        torch.accelerator.synchronize(device)
    return (submitted if asynchronous else time.perf_counter()) - start
