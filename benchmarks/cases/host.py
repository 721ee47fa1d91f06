"""Copies between the host and the device; on the CPU, such a row is a copy of the same size."""

from collections.abc import Callable, Iterator
from functools import partial

import torch

from benchmarks.case import Case, Work
from benchmarks.inputs import random

SIZES = {"4 KiB": 1 << 10, "64 MiB": 1 << 24}
CPU = torch.device("cpu")


def cases() -> Iterator[Case]:
    """Yield copies in both directions, small and large."""
    for size, count in SIZES.items():
        for name, build in (("to the device", _to_device), ("to the host", _to_host), ("pinned", _pinned)):
            yield Case(group="host", name=f"{name}, {size}", build=partial(build, count), quick=count > 1 << 20)


def _copy(source: torch.Tensor, target: torch.Tensor, non_blocking: bool = False) -> Work:
    run: Callable[[], torch.Tensor] = partial(target.copy_, source, non_blocking=non_blocking)
    return Work(run=run, reads=[source])


def _to_device(count: int, device: torch.device) -> Work:
    return _copy(random(CPU, count), torch.empty(count, device=device))


def _to_host(count: int, device: torch.device) -> Work:
    return _copy(random(device, count), torch.empty(count))


def _pinned(count: int, device: torch.device) -> Work:
    source = random(CPU, count)
    return _copy(source if device == CPU else source.pin_memory(), torch.empty(count, device=device), True)
