"""Runs the search on a device."""

import contextlib
import json
from collections.abc import Iterator

import torch

from torch_opencl._lazy import _lazy_init
from torch_opencl._load import native
from torch_opencl._progress import progress_bar
from torch_opencl._utils import DeviceLike, _check_index
from torch_opencl.tune.record import Record, Values, alone, recorded, store
from torch_opencl.tune.search import Search
from torch_opencl.tune.space import groups_of
from torch_opencl.tune.work import Bench, checked_work, timed_work

# Minimum number of times that each of two candidates is timed, after a warm-up.
_ROUNDS = 7
_QUICK_ROUNDS = 5


class DeviceRig:
    """Measures on a device.

    Args:
        device: the device.
        quick: measure less work, and fewer times.
    """

    def __init__(self, device: torch.device, quick: bool):
        self._device, self._rounds = device, _QUICK_ROUNDS if quick else _ROUNDS
        self._benches = {work.name: Bench(device, work) for work in timed_work(quick)}
        self._checks: list[Bench] | None = None
        self.names = list(self._benches)

    def compare(self, name: str, candidate: Values, other: Values) -> float:
        """Time work with two sets of parameters, in turns; see :meth:`Bench.compare`."""
        return self._benches[name].compare(lambda: self._use(candidate), lambda: self._use(other), self._rounds)

    def verify(self, candidate: Values) -> None:
        """Compare results of odd sizes and of all dtypes with the CPU's; see :meth:`Bench.check`."""
        self._checks = self._checks or [Bench(self._device, work) for work in checked_work(self._device)]
        self._use(candidate)
        for check in self._checks:
            check.check()

    def _use(self, values: Values) -> None:
        native().set_tuning(self._device.index, json.dumps(values))


def tune(device: DeviceLike = None, quick: bool = False, progress: bool = True) -> Record:
    """Find the parameters with which matmuls and convolutions are fastest on a device, and keep them.

    Each candidate's results are compared with the CPU's before it is timed, in turns with the parameters that it has to
    beat. Every measurement is written at once and not repeated: an interrupted call, or even a driver that crashes on a
    candidate, costs one comparison, and the next call continues from there.

    Args:
        device: the device; the current one by default.
        quick: try few candidates, for half a minute; otherwise it takes some minutes.
        progress: whether to show the progress on standard error.

    Returns:
        The measurements. This process uses the parameters from now on, and so do processes that start later.

    Raises:
        RuntimeError: there is no such device, no folder to keep the result in, or another process is tuning, or the
            result cannot be written.
    """
    _lazy_init()
    index = _check_index(device)
    with alone(index):
        state = json.loads(native().tuning(index))
        record = recorded(index)
        if record is None:
            record = Record(values=state["defaults"], defaults=state["defaults"])
        elif record.finished in ("full", _thoroughness(quick)):
            native().set_tuning(index, "")
            return record
        groups = groups_of(state["header"]["device"]["class"], quick)
        left = sum(map(len, groups))
        show = progress_bar(left, "OpenCL tuning", "candidates") if progress else lambda left: None
        with _own_matmuls(index):
            rig = DeviceRig(torch.device("opencl", index), quick)
            for _ in Search(rig, record, lambda: store(index, record)).run(groups):
                left -= 1
                show(left)
        record.finished = _thoroughness(quick)
        store(index, record)
    native().set_tuning(index, "")
    return record


def _thoroughness(quick: bool) -> str:
    return "quick" if quick else "full"


@contextlib.contextmanager
def _own_matmuls(device: int) -> Iterator[None]:
    """Make our kernels compute matmuls; restore parameters and library at the end, also after an exception."""
    before, values = native().preferred_blas_library(), json.loads(native().tuning(device))["values"]
    native().set_preferred_blas_library("opencl")
    try:
        yield
    finally:
        native().set_preferred_blas_library(before)
        native().set_tuning(device, json.dumps(values))
