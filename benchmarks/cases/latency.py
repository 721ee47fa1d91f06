"""Costs of a small operation: to enqueue it, and to wait for it."""

from collections.abc import Callable, Iterator
from functools import partial

import torch
from torch import nn

from benchmarks.case import Case, Work
from benchmarks.inputs import random

CHAIN = 1000
# name: one operation of a chain
STEPS: dict[str, Callable[[torch.Tensor, torch.Tensor], torch.Tensor]] = {
    "add of 4": lambda total, b: total + b,
    "add_ of 4": lambda total, b: total.add_(b),
    "view": lambda total, b: total.view(2, 2).view(4),
    "relu of 4": lambda total, b: total.relu(),
}


def cases() -> Iterator[Case]:
    """Yield chains of small operations, with and without a wait at the end, and single ones with a wait each."""
    for name, step in STEPS.items():
        build = partial(chain, step)
        quick = name == "add of 4"
        yield Case(group="enqueue", name=name, build=build, asynchronous=True, quick=quick)
        yield Case(group="round-trip", name=f"chain of {name}, to its end", build=build, quick=quick)
    yield Case(group="round-trip", name="add of 4, each waited for", build=_waited_for, quick=True)
    yield Case(group="round-trip", name="item", build=_item, quick=True)
    yield Case(group="round-trip", name="matmul of 64, each waited for", build=_small_matmul, tolerance=1e-5)
    yield Case(group="round-trip", name="linear layer and gradient of 16x64", build=_small_layer, tolerance=1e-4)


def chain(step: Callable[[torch.Tensor, torch.Tensor], torch.Tensor], device: torch.device) -> Work:
    """Return the work of a chain of small operations, each on the result of the one before."""
    a, b = random(device, 4, kind="positive"), random(device, 4, kind="positive", index=1)

    def run() -> torch.Tensor:
        total = a.clone()
        for _ in range(CHAIN):
            total = step(total, b)
        return total

    return Work(run=run, calls=CHAIN)


def _waited_for(device: torch.device) -> Work:
    a, b = random(device, 4), random(device, 4, index=1)

    def run() -> torch.Tensor:
        for _ in range(CHAIN):
            total = a + b
            _wait(device)
        return total

    return Work(run=run, calls=CHAIN)


def _item(device: torch.device) -> Work:
    a = random(device, 1)

    def run() -> torch.Tensor:
        return torch.tensor([(a + step).item() for step in range(CHAIN)])

    return Work(run=run, calls=CHAIN)


def _small_matmul(device: torch.device) -> Work:
    a, b = random(device, 64, 64), random(device, 64, 64, index=1)

    def run() -> torch.Tensor:
        result = a @ b
        _wait(device)
        return result

    return Work(run=run)


def _small_layer(device: torch.device) -> Work:
    layer, x = nn.Linear(64, 64).to(device), random(device, 16, 64)
    parameters = list(layer.parameters())
    return Work(run=lambda: torch.autograd.grad(layer(x).relu().sum(), parameters))


def _wait(device: torch.device) -> None:
    if device.type != "cpu":
        torch.accelerator.synchronize(device)
