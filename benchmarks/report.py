"""Prints rows and their summary, and saves them."""

import json
import os
import platform
import statistics
from collections.abc import Sequence
from dataclasses import asdict
from datetime import datetime, timezone
from pathlib import Path

import torch

from benchmarks.measure import Row
from benchmarks.summary import groups, shortfall

RESULTS = Path(__file__).parent / "results"
HEADER = f"{'row':<44} {'CPU':>9} {'device':>9} {'ratio':>6} {'eager':>6} {'limit':>13}  {'spread':>9}"
# Properties that are saved together with the measurements.
DERIVED = ("ratio", "eager_ratio", "over_eager", "limit_share")
# Rows that take more than this many times as long as in eager mode are listed.
MOST_OVER_EAGER = 1.05


def print_header(group: str) -> None:
    """Print the header of a group's rows."""
    print(f"\n{group}\n{HEADER}")


def print_row(row: Row) -> None:
    """Print a row: medians, the ratio, eager mode's, the limit's share, the spread of both sides, missed targets."""
    limit = f"{row.limit_share:4.0%} {row.bound:<8}" if row.limit_share is not None else " " * 13
    short, fallbacks = shortfall(row), " ".join(row.fallbacks)
    notes = f"{f'  SHORT: {short}' if short else ''}{f'  on the CPU: {fallbacks}' if fallbacks else ''}"
    print(
        f"{row.name:<44} {seconds_text(statistics.median(row.cpu))} {seconds_text(statistics.median(row.device))}"
        f" {row.ratio:6.2f} {_figure(row.eager_ratio)} {limit:>13}  {_spread(row.cpu)} {_spread(row.device)}"
        f"{notes}",
        flush=True,
    )


def print_summary(rows: Sequence[Row]) -> None:
    """Print each group with its target, then the rows below their targets, the slowest first."""
    print(f"\n{'group':<14} {'rows':>4} {'mean':>6} {'eager':>6} {'asked':>6}  {'worst':>6} {'asked':>6}  {'short':>5}")
    for group in groups(rows):
        target, short = group.target, sum(bool(shortfall(row)) for row in group.rows)
        print(
            f"{group.name:<14} {len(group.rows):4} {group.mean:6.2f} {_figure(group.eager_mean)}"
            f" {_figure(target.mean)}  {group.rows[0].ratio:6.2f}"
            f" {_figure(target.row)}  {short:5}  {'pass' if group.passes else 'SHORT':<5} {group.rows[0].name}"
        )
    below = [row for group in groups(rows) for row in group.rows if shortfall(row)]
    print(f"\nBelow target: {len(below)} of {len(rows)}{', the slowest of each group first' if below else ''}")
    for row in below:
        share = f"{row.limit_share:4.0%} of {row.bound}" if row.limit_share is not None else ""
        print(f"  {row.group:<14} {row.name:<44} {row.ratio:6.2f} {share:<18} {shortfall(row)}")
    _print_over_eager(rows)


def _print_over_eager(rows: Sequence[Row]) -> None:
    """Print the comparison with eager mode, if that was measured, and the rows that are slower."""
    both = sorted((row for row in rows if row.eager), key=lambda row: row.over_eager, reverse=True)
    if not both:
        return
    mean = statistics.geometric_mean(row.over_eager for row in both)
    slower = [row for row in both if row.over_eager > MOST_OVER_EAGER]
    print(f"\nThe time over eager mode's: mean {mean:.3f}, above {MOST_OVER_EAGER:g} in {len(slower)} of {len(both)}")
    for row in slower:
        print(f"  {row.group:<14} {row.name:<44} {row.over_eager:6.2f}  {_spread(row.device)} {_spread(row.eager)}")


def save(rows: Sequence[Row], device: torch.device) -> Path:
    """Write rows and a description of the device to benchmarks/results.

    Args:
        rows: the measurements.
        device: the measured device.

    Returns:
        The file.
    """
    now = datetime.now(timezone.utc)
    record = {
        "when": now.isoformat(timespec="seconds"),
        "device": describe(device),
        "machine": platform.processor() or platform.machine(),
        "threads": torch.get_num_threads(),
        "torch": torch.__version__,
        "specialize": torch.opencl.kernel_cache_info()["specialize"],
        "omp_wait_policy": os.environ.get("OMP_WAIT_POLICY"),
        "rows": [record_of(row) for row in rows],
    }
    RESULTS.mkdir(exist_ok=True)
    path = RESULTS / f"{now:%Y%m%d-%H%M%S}.json"
    path.write_text(json.dumps(record, indent=1) + "\n")
    return path


def record_of(row: Row) -> dict[str, object]:
    """Return a row as plain values, with the derived ones."""
    return asdict(row) | {name: getattr(row, name) for name in DERIVED}


def append(path: Path | None, record: dict[str, object]) -> None:
    """Append a record to a file of JSON lines, if a path is given."""
    if path:
        with path.open("a") as file:
            file.write(json.dumps(record) + "\n")


def load(paths: Sequence[Path]) -> list[Row]:
    """Read the rows of files that :func:`save` has written; of duplicate rows the last is returned."""
    rows: dict[tuple[str, str], Row] = {}
    for path in paths:
        for record in json.loads(path.read_text())["rows"]:
            # Older files may lack newer fields.
            fields = {name: record[name] for name in Row.__dataclass_fields__ if name in record}
            rows[record["group"], record["name"]] = Row(**fields)
    return list(rows.values())


def describe(device: torch.device) -> str:
    """Return the names of the device and of its driver."""
    properties = torch.opencl.get_device_properties(device)
    return f"{properties.name} ({properties.platform} {properties.driver_version})"


def seconds_text(seconds: float) -> str:
    """Return a time with its unit, nine characters wide."""
    for unit, factor in (("s ", 1), ("ms", 1e3), ("us", 1e6)):
        if seconds * factor >= 1:
            return f"{seconds * factor:6.2f} {unit}"
    return f"{seconds * 1e9:6.0f} ns"


def _spread(seconds: Sequence[float]) -> str:
    return f"{(max(seconds) - min(seconds)) / statistics.median(seconds):4.0%}"


def _figure(figure: float | None) -> str:
    return f"{figure:6.2f}" if figure is not None else "     -"
