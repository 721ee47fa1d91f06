"""Measures the table."""

from collections.abc import Sequence
from pathlib import Path

import torch

from benchmarks.case import Case
from benchmarks.clock import share_threads
from benchmarks.eager import EagerProcess
from benchmarks.limits import Limits
from benchmarks.measure import Row, WrongResult, measure
from benchmarks.report import append, describe, print_header, print_row, print_summary, record_of, save

GIBI = 1 << 30


def run(cases: Sequence[Case], device_name: str, lines: Path | None = None) -> int:
    """Measure cases on a device and on the CPU, print them, and save the figures and a plot.

    The CPU backend gets as many threads as the device if that is a CPU.

    Specialised programs are built as ``TORCH_OPENCL_SPECIALIZE`` of this process says. Unless that is "eager", a second
    process measures the rows in eager mode, in turns.

    Args:
        cases: the cases.
        device_name: the device to compare with the CPU.
        lines: a file that gets each row as soon as it is measured, instead of saving all at the end.

    Returns:
        The exit code: 1 if a result differs from the CPU's or an operator failed.
    """
    device = torch.device(device_name)
    share_threads(device)
    limits = Limits(device)
    print(f"{describe(device)} against PyTorch {torch.__version__} on the CPU, {torch.get_num_threads()} threads")
    print(
        f"The device now moves {GIBI / limits.memory_seconds(GIBI // 2, GIBI // 2) / 1e9:.1f} GB/s, and computes"
        f" {limits.flops() / 1e9:.0f} GFLOP/s. Each row is compared with the limits at its time."
    )
    mode = torch.opencl.kernel_cache_info()["specialize"]
    eager = EagerProcess(device_name) if mode != "eager" else None
    print(f"Specialised kernels: {mode}{' and eager, which goes first in a separate process' if eager else ''}.")
    rows, failed, group = [], [], ""
    try:
        for case in cases:
            if case.group != group:
                group = case.group
                print_header(group)
            try:
                rows.append(measure(case, device, limits, eager))
            except (WrongResult, RuntimeError, ImportError) as error:
                # A lack of device memory or of a Python module is not an error.
                is_mistake = not isinstance(error, torch.OutOfMemoryError | ImportError)
                failed += [case] if is_mistake else []
                message = first_line(error)
                print(f"{case.name:<44} {message}")
                append(lines, {"group": case.group, "name": case.name, "error" if is_mistake else "unable": message})
            else:
                print_row(rows[-1])
                append(lines, record_of(rows[-1]))
    finally:
        if eager:
            eager.close()
        # Also after an interrupt.
        if rows:
            print_summary(rows)
        if rows and not lines:
            _keep(rows, device)
    return int(bool(failed))


def first_line(error: Exception) -> str:
    """Return an error's type and the first line of its message."""
    text = str(error).splitlines() or [""]
    return f"{type(error).__name__}: {text[0][:200]}"


def _keep(rows: Sequence[Row], device: torch.device) -> None:
    from benchmarks.plot import plot_ratios  # noqa: PLC0415 - matplotlib is only needed for plots

    path = save(rows, device)
    plot_ratios(rows, path.with_suffix(".png"))
    print(f"\nFigures: {path}\nPlot:    {path.with_suffix('.png')}")
