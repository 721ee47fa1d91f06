"""Time by size: if a unit of work costs much more than at the next smaller size, a kernel may be at fault."""

import json
import statistics
from collections.abc import Callable, Sequence
from datetime import datetime, timezone
from itertools import pairwise

import torch

from benchmarks.case import Work
from benchmarks.clock import CPU, mean_seconds, warm_up
from benchmarks.inputs import random
from benchmarks.report import RESULTS, describe, seconds_text

ROUNDS = 5
CLIFF = 2.0
ROW = 1024
# Odd sizes as well, which have remainders.
SIZES = [size + odd for size in (1 << power for power in range(0, 27, 2)) for odd in (0, 1)]
ORDERS = [order + odd for order in (16, 32, 64, 128, 256, 512, 1024, 2048) for odd in (-1, 0, 1)] + [4096]

FUNCTIONS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "add": lambda x: x + x,
    "exp": torch.exp,
    "sum": torch.sum,
    "softmax": lambda x: x.softmax(0) if len(x) < ROW else x[: len(x) // ROW * ROW].view(-1, ROW).softmax(1),
}
# Sizes, and seconds per unit of work.
Curve = list[tuple[int, float]]


def run(device_name: str) -> int:
    """Measure pointwise operators, reductions and softmax by elements, and matmuls by order.

    Args:
        device_name: the device to compare with the CPU.

    Returns:
        The exit code, always 0: every backend has a cliff at the size of the machine's caches.
    """
    device = torch.device(device_name)
    torch.set_num_threads(torch.opencl.get_device_properties(device).compute_units)
    print(describe(device))
    numbers = {where: random(where, SIZES[-1]) for where in (CPU, device)}
    elements = {
        name: _both(name, device, SIZES, 1, _on_elements(function, numbers)) for name, function in FUNCTIONS.items()
    }
    del numbers
    matmuls = {"matmul": _both("matmul", device, ORDERS, 3, _matmul)}
    for axis, curves in (("elements", elements), ("order", matmuls)):
        _save(axis, curves, device)
    found = [line for name, curves in (elements | matmuls).items() for line in _describe_cliffs(name, *curves)]
    print("\n".join(["", *found]) if found else f"\nNo unit costs {CLIFF:g} times as much as at the next smaller size.")
    return 0


def cliffs(curve: Sequence[tuple[int, float]]) -> list[tuple[int, int, float]]:
    """Return adjacent sizes of which the larger takes more than twice as long per unit of work.

    Args:
        curve: sizes in ascending order, and seconds per unit.

    Returns:
        The smaller size, the larger one, and the ratio of their times per unit.
    """
    return [
        (small, large, after / before) for (small, before), (large, after) in pairwise(curve) if after > CLIFF * before
    ]


def _describe_cliffs(name: str, cpu: Curve, device: Curve) -> list[str]:
    on_cpu = dict(cpu)
    return [
        f"CLIFF: {name} of {large} takes {times:.1f} times as long a unit as of {small}"
        f" (on the CPU {on_cpu[large] / on_cpu[small]:.1f} times)"
        for small, large, times in cliffs(device)
    ]


def _on_elements(
    function: Callable[[torch.Tensor], torch.Tensor], numbers: dict[torch.device, torch.Tensor]
) -> Callable[[int, torch.device], Work]:
    def build(size: int, device: torch.device) -> Work:
        x = numbers[device][:size]
        return Work(run=lambda: function(x))

    return build


def _matmul(order: int, device: torch.device) -> Work:
    a, b = (random(device, order, order, index=index) for index in range(2))
    return Work(run=lambda: a @ b)


def _both(
    name: str, device: torch.device, sizes: Sequence[int], power: int, build: Callable[[int, torch.device], Work]
) -> tuple[Curve, Curve]:
    """Return the curves of the CPU and of the device; there are size ** power units of work."""
    print(f"\n{name:<10} {'CPU':>9} {'device':>9} {'ratio':>6}")
    curves: tuple[Curve, Curve] = ([], [])
    for size in sizes:
        sides = [(build(size, where), where) for where in (CPU, device)]
        repeats = [warm_up(*side) for side in sides]
        rounds = [
            [mean_seconds(*side, times) for side, times in zip(sides, repeats, strict=True)] for _ in range(ROUNDS)
        ]
        seconds = [statistics.median(column) for column in zip(*rounds, strict=True)]
        for curve, time in zip(curves, seconds, strict=True):
            curve.append((size, time / size**power))
        print(f"{size:<10} {' '.join(map(seconds_text, seconds))} {seconds[0] / seconds[1]:6.2f}", flush=True)
    return curves


def _save(axis: str, curves: dict[str, tuple[Curve, Curve]], device: torch.device) -> None:
    RESULTS.mkdir(exist_ok=True)
    path = RESULTS / f"growth-{axis}-{datetime.now(timezone.utc):%Y%m%d-%H%M%S}.json"
    path.write_text(json.dumps({"device": describe(device), "curves": curves}) + "\n")
    sides = {f"{name}{side}": curve for name in curves for side, curve in zip((", CPU", ""), curves[name], strict=True)}
    from benchmarks.plot import plot_growth  # noqa: PLC0415 - matplotlib is only needed for plots

    plot_growth(sides, axis, path.with_suffix(".png"))
    print(f"\nFigures: {path}\nPlot:    {path.with_suffix('.png')}")
