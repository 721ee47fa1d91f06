"""Measures the table."""

from collections.abc import Sequence

import torch

from benchmarks.case import Case
from benchmarks.eager import EagerProcess
from benchmarks.limits import Limits
from benchmarks.measure import WrongResult, measure
from benchmarks.plot import plot_ratios
from benchmarks.report import describe, print_header, print_row, print_summary, save

GIBI = 1 << 30


def run(cases: Sequence[Case], device_name: str) -> int:
    """Measure cases on a device and on the CPU with as many threads, print them, and keep the figures and a plot.

    Specialised programs come when they do with this process's ``TORCH_OPENCL_SPECIALIZE``. Unless that is "eager",
    a second process measures the same rows in eager mode, in turns.

    Args:
        cases: what to measure.
        device_name: the device to compare with the CPU.

    Returns:
        The exit code: 1 where a result differs from the CPU's, or an operator failed.
    """
    device = torch.device(device_name)
    torch.set_num_threads(torch.opencl.get_device_properties(device).compute_units)
    limits = Limits(device)
    print(f"{describe(device)} against PyTorch {torch.__version__} on the CPU, {torch.get_num_threads()} threads")
    print(
        f"The device now moves {GIBI / limits.memory_seconds(GIBI // 2, GIBI // 2) / 1e9:.1f} GB/s, and computes"
        f" {limits.flops() / 1e9:.0f} GFLOP/s. Each row is compared with what it does at the time of the row."
    )
    mode = torch.opencl.kernel_cache_info()["specialize"]
    eager = EagerProcess(device_name) if mode != "eager" else None
    print(f"Specialised kernels: {mode}{' and eager, which goes first in a process of its own' if eager else ''}.")
    rows, failed, group = [], [], ""
    try:
        for case in cases:
            if case.group != group:
                group = case.group
                print_header(group)
            try:
                rows.append(measure(case, device, limits, eager))
            except (WrongResult, RuntimeError) as error:
                failed.append(case)
                print(f"{case.name:<44} {type(error).__name__}: {str(error).splitlines()[0][:200]}")
            else:
                print_row(rows[-1])
    finally:
        if eager:
            eager.close()
        # Also of a run that was interrupted.
        if rows:
            print_summary(rows)
            path = save(rows, device)
            plot_ratios(rows, path.with_suffix(".png"))
            print(f"\nFigures: {path}\nPlot:    {path.with_suffix('.png')}")
    return int(bool(failed))
