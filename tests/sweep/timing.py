"""Times of an operator on both devices."""

import time
from collections.abc import Callable

import torch
from op_checks import CPU
from torch.testing._internal.opinfo.core import BinaryUfuncInfo, OpInfo, ReductionOpInfo, SampleInput, UnaryUfuncInfo

from sweep.judge import DEVICE
from sweep.subjects import Subject, elements, sample_to_time

# From this many elements, the time is not dominated by the launch.
LARGE = 1 << 16
SHAPE = (512, 1024)
# The best of this many calls counts, as other processes take cores; of fewer calls if they are slow.
REPEATS = 12
SECONDS = 0.5


def measure(subject: Subject) -> dict[str, float] | None:
    """Time a call of an operator.

    Args:
        subject: the operator.

    Returns:
        `elements`, and seconds on the `device` and the `cpu`; None if no call has LARGE elements.
    """
    if subject.info is None or subject.dtype != torch.float32:
        return None
    sample = _large(subject.info) or sample_to_time(subject)
    if sample is None or elements(sample) < LARGE:
        return None
    moved = sample.transform(lambda value: value.to(DEVICE) if isinstance(value, torch.Tensor) else value)
    try:
        seconds = {"cpu": _best(subject.info.op, sample, CPU), "device": _best(subject.info.op, moved, DEVICE)}
    except Exception:
        return None
    return {"elements": elements(sample), **seconds}


def _large(info: OpInfo) -> SampleInput | None:
    """A large sample for operators that accept any shape."""
    torch.manual_seed(0)
    if isinstance(info, UnaryUfuncInfo | ReductionOpInfo | BinaryUfuncInfo):
        count = 2 if isinstance(info, BinaryUfuncInfo) else 1
        given = [torch.rand(SHAPE) + 1 for _ in range(count)]
        try:
            info.op(*given)
        except Exception:
            return None
        return SampleInput(given[0], args=tuple(given[1:]))
    return None


def _best(function: Callable, sample: SampleInput, device: torch.device) -> float:
    best, until = float("inf"), time.perf_counter() + SECONDS
    for number in range(REPEATS):
        start = time.perf_counter()
        function(sample.input, *sample.args, **sample.kwargs)
        if device.type != "cpu":
            torch.opencl.synchronize()
        end = time.perf_counter()
        # The first call compiles kernels.
        best = min(best, end - start)
        if number > 1 and end > until:
            break
    return best
