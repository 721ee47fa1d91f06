"""Checks and measures cases, prints the table and keeps the figures."""

import json
import os
import platform
import statistics
import time
from collections.abc import Sequence
from datetime import datetime, timezone
from pathlib import Path

import torch

from benchmarks.cases import Case, Work

RESULTS = Path(__file__).parent / "results"
WARM_UP = 2
# A measurement repeats quick work until it takes about this long, or the clock and the scheduler show.
MINIMUM_SECONDS = 0.05


def run(cases: Sequence[Case], device_name: str, rounds: int) -> int:
    """Measure cases on a device and on the CPU, taking turns.

    Args:
        cases: what to measure.
        device_name: the device to compare with the CPU.
        rounds: how many measurements each side gets; the table shows their medians.

    Returns:
        The exit code: 1 where a result differs from the CPU's.
    """
    device = torch.device(device_name)
    print(f"{_describe(device)} against torch {torch.__version__} on the CPU, {torch.get_num_threads()} threads")
    print(f"{'case':<14} {'CPU':>12} {'device':>12} {'ratio':>7}   spread (CPU, device)")
    rows, failed = [], False
    for case in cases:
        cpu_work, device_work = _build(case, torch.device("cpu")), _build(case, device)
        try:
            torch.testing.assert_close(device_work().cpu(), cpu_work(), rtol=case.tolerance, atol=case.tolerance * 10)
        except AssertionError as difference:
            failed = True
            print(f"{case.name:<14} WRONG: {str(difference).splitlines()[-1]}")
            continue
        row = _measure(case, cpu_work, device_work, device, rounds)
        rows.append(row)
        print(
            f"{case.name:<14} {_time(row['cpu_s'])} {_time(row['device_s'])} {row['ratio']:7.2f}"
            f"   {_spread(row['cpu_all_s'])}, {_spread(row['device_all_s'])}",
            flush=True,
        )
    _save(rows, device)
    return int(failed)


def _build(case: Case, device: torch.device) -> Work:
    torch.manual_seed(0)
    return case.build(device)


def _measure(case: Case, cpu_work: Work, device_work: Work, device: torch.device, rounds: int) -> dict:
    sides = ((cpu_work, torch.device("cpu")), (device_work, device))
    repeats = []
    for work, where in sides:
        for _ in range(WARM_UP):
            estimate = _seconds(work, where, 1, case.asynchronous)
        repeats.append(max(1, round(MINIMUM_SECONDS / estimate)))
    seconds: tuple[list[float], list[float]] = ([], [])
    for _ in range(rounds):
        for side, (work, where) in enumerate(sides):
            total = _seconds(work, where, repeats[side], case.asynchronous)
            seconds[side].append(total / repeats[side] / case.calls)
    cpu, ours = map(statistics.median, seconds)
    return {
        "case": case.name,
        "cpu_s": cpu,
        "device_s": ours,
        "ratio": cpu / ours,
        "cpu_all_s": seconds[0],
        "device_all_s": seconds[1],
    }


def _seconds(work: Work, device: torch.device, repeats: int, asynchronous: bool) -> float:
    """Return how long the work takes; without the wait for its end where that is not asked for."""
    elapsed = 0.0
    for _ in range(repeats):
        start = time.perf_counter()
        work()
        if asynchronous:
            elapsed += time.perf_counter() - start
            _synchronize(device)
        else:
            _synchronize(device)
            elapsed += time.perf_counter() - start
    return elapsed


def _synchronize(device: torch.device) -> None:
    if device.type != "cpu":
        torch.accelerator.synchronize(device)


def _describe(device: torch.device) -> str:
    return torch.opencl.get_device_name(device) if device.type == "opencl" else str(device)


def _time(seconds: float) -> str:
    for unit, factor in (("s ", 1), ("ms", 1e3), ("us", 1e6)):
        if seconds * factor >= 1:
            return f"{seconds * factor:9.2f} {unit}"
    return f"{seconds * 1e9:9.0f} ns"


def _spread(seconds: list[float]) -> str:
    return f"{(max(seconds) - min(seconds)) / statistics.median(seconds):4.0%}"


def _save(rows: list[dict], device: torch.device) -> None:
    now = datetime.now(timezone.utc)
    record = {
        "when": now.isoformat(timespec="seconds"),
        "device": _describe(device),
        "machine": platform.processor() or platform.machine(),
        "cores": os.cpu_count(),
        "torch": torch.__version__,
        "omp_wait_policy": os.environ.get("OMP_WAIT_POLICY"),
        "rows": rows,
    }
    RESULTS.mkdir(exist_ok=True)
    path = RESULTS / f"{now:%Y%m%d-%H%M%S}.json"
    path.write_text(json.dumps(record, indent=2) + "\n")
    print(f"Figures: {path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path}")
