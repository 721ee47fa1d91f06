"""Measures rows for GPUs: compared with the device's limits, and with the vendor's backend on the same GPU.

PyTorch's CPU backend computes each row once, to check the result, and is not timed.
"""

import statistics
from collections.abc import Callable, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

import torch
from torch.utils._pytree import tree_leaves

from benchmarks.case import Case, Result
from benchmarks.cases import gpu
from benchmarks.clock import CPU, mean_seconds, share_threads, warm_up
from benchmarks.eager import VendorProcess
from benchmarks.limits import Limits
from benchmarks.measure import ROUNDS, WrongResult, build, check, limit_of, moved, operations_of
from benchmarks.report import append, describe, seconds_text
from benchmarks.run import first_line

# Libraries that compute matmuls besides this backend's kernels, by the vendor's device.
LIBRARIES = {"cuda": "cublas"}


def run(device_name: str, against: str | None, lines: Path | None = None, cases: Sequence[Case] | None = None) -> int:
    """Measure the rows of :mod:`benchmarks.cases.gpu`, and print them.

    Args:
        device_name: the device.
        against: the vendor's device, such as "cuda", which must be the same GPU; None to measure without.
        lines: a file that gets each row as a line of JSON as soon as it is measured.
        cases: other rows.

    Returns:
        The exit code: 1 if a result differs from the CPU's or an operator failed.
    """
    device = torch.device(device_name)
    share_threads(device)
    limits = Limits(device)
    print(f"{describe(device)}{f' against {against}' if against else ''}")
    failed = False
    with ExitStack() as stack:
        peer = VendorProcess(against) if against else None
        if peer:
            stack.callback(peer.close)
        for case in gpu.cases() if cases is None else cases:
            names = {"": torch.backends.opencl.preferred_blas_library()}
            if case.group == "gemm" and against in LIBRARIES:
                names[f", {LIBRARIES[against]}"] = LIBRARIES[against]
            for suffix, library in names.items():
                row = {"group": case.group, "name": case.name + suffix}
                try:
                    with _matmuls_by(library):
                        row |= measure(case, device, limits, peer)
                except torch.OutOfMemoryError as error:
                    # A limit of the device, not an error.
                    row["unable"] = first_line(error)
                except (WrongResult, RuntimeError, ImportError, MemoryError) as error:
                    row["error"] = first_line(error)
                    failed = True
                append(lines, row)
                print(_text(row), flush=True)
    return int(failed)


def measure(case: Case, device: torch.device, limits: Limits, peer: VendorProcess | None = None) -> dict[str, object]:
    """Measure a case.

    Args:
        case: the case.
        device: the device.
        limits: measures the device's limits.
        peer: measures the vendor's device.

    Returns:
        ``seconds``, the median; ``device``, ``limit`` and ``vendor``, the seconds in each round; ``bound`` and
        ``limit_share`` as in :class:`benchmarks.measure.Row`; ``rate`` as text; ``peer``, the vendor's seconds, and
        ``peer_ratio``, these divided by the device's; or ``peer_error``; ``fallbacks``.

    Raises:
        WrongResult: if the results differ by more than the case allows.
    """
    before = set(torch.opencl.fallbacks())
    work = build(case, device)
    result = work.run()
    check_on_cpu(case, result)
    limit, bound = limit_of(work, result, limits)
    amount = sum(moved(work, result)), operations_of(work)
    del result
    repeats = warm_up(work, device, case.asynchronous)
    beside = peer if peer and peer.prepare(case) else None
    rounds: dict[str, list[float]] = {"device": [], "limit": [], "vendor": []}
    for _ in range(ROUNDS):
        rounds["device"].append(mean_seconds(work, device, repeats, case.asynchronous))
        if limit:
            rounds["limit"].append(limit() / work.calls)
        if beside:
            rounds["vendor"].append(beside.seconds())
    row: dict[str, object] = {**rounds, "bound": bound, "seconds": statistics.median(rounds["device"])}
    row["rate"] = _rate(*amount, row["seconds"])
    row["limit_share"] = _ratio(rounds["limit"], rounds["device"])
    row["peer"] = statistics.median(rounds["vendor"]) if beside else None
    row["peer_ratio"] = _ratio(rounds["vendor"], rounds["device"])
    if peer and not beside:
        row["peer_error"] = "failed on the vendor's device"
    row["fallbacks"] = sorted(set(torch.opencl.fallbacks()) - before)
    return row


def check_on_cpu(case: Case, result: Result) -> None:
    """Compare a case's result with the CPU's, which may be in a wider dtype.

    Args:
        case: the case.
        result: of the device.

    Raises:
        WrongResult: if they differ by more than the case allows.
    """
    pairs = zip(tree_leaves(result), tree_leaves(build(case, CPU).run()), strict=True)
    check(tree_leaves(result), [expected.to(ours.dtype) for ours, expected in pairs], case.tolerance)


@contextmanager
def _matmuls_by(library: str):
    """Make a library compute matmuls in the context."""
    prefer: Callable = torch.backends.opencl.preferred_blas_library
    before = prefer()
    prefer(library)
    try:
        yield
    finally:
        prefer(before)


def _ratio(numerators: Sequence[float], denominators: Sequence[float]) -> float | None:
    """Return the median of the rounds' ratios, or None without numerators."""
    pairs = zip(numerators, denominators, strict=False)
    return statistics.median([above / below for above, below in pairs]) if numerators else None


def _rate(size: int, operations: float, seconds: float) -> str:
    amount, unit = (size, "GB/s") if size else (operations, "GFLOP/s")
    rate = amount / seconds / 1e9
    return f"{rate:{'.0f' if rate >= 100 else '.3g'}} {unit}" if amount else ""


def _text(row: dict[str, object]) -> str:
    if "seconds" not in row:
        return f"{row['name']:<44} {row.get('error') or row['unable']}"
    share, ratio = row["limit_share"], row["peer_ratio"]
    limit = f"{share:4.0%} {row['bound']}" if share is not None else ""
    fallbacks = f"  on the CPU: {' '.join(row['fallbacks'])}" if row["fallbacks"] else ""
    peer = f"vendor {seconds_text(row['peer'])}, {ratio:.2f} times its speed" if ratio else row.get("peer_error", "")
    return f"{row['name']:<44} {seconds_text(row['seconds'])} {row['rate']:>13} {limit:<16} {peer}{fallbacks}"
