"""The table of results, worst first, and the same as JSON."""

import json
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from pathlib import Path

from gpu_compile.build import Result
from gpu_compile.limits import Use

HEAD = ("kernel", "target", "programs", "registers", "spills", "scratch", "local", "group", "occupancy", "vector loads")


def rows(found: Iterable[Use]) -> list[tuple[str, ...]]:
    """Make a row for each kernel on each target.

    Args:
        found: the kernels of all programs.

    Returns:
        The columns of HEAD, each with the worst of all programs, worst kernels first.
    """
    grouped = defaultdict(list)
    for use in found:
        grouped[use.kernel, use.target].append(use)
    return [_row(*key, grouped[key]) for key in sorted(grouped, key=lambda key: badness(grouped[key]), reverse=True)]


def badness(found: Sequence[Use]) -> tuple[float, ...]:
    """Return the sort key of rows: spills, scratch memory, and missing occupancy."""
    return (
        max(use.figures.spills for use in found),
        max(use.figures.scratch for use in found),
        -min(use.occupancy for use in found),
        max(use.figures.registers for use in found),
    )


def _row(kernel: str, target: str, found: Sequence[Use]) -> tuple[str, ...]:
    worst = [max(getattr(use.figures, name) for use in found) for name in ("registers", "spills", "scratch")]
    # The program with the smallest fraction of vector loads.
    loads = min((use.figures.vector_loads / max(use.figures.loads, 1), use.figures.loads) for use in found)
    return (
        kernel,
        target,
        str(len(found)),
        *map(str, worst),
        str(max(use.local for use in found)),
        str(max(use.launch.group for use in found)),
        f"{min(use.occupancy for use in found):.0%}",
        f"{round(loads[0] * loads[1])} of {loads[1]}",
    )


def text(table: Sequence[Sequence[str]]) -> str:
    """Format rows for a terminal."""
    widths = [max(map(len, column)) for column in zip(HEAD, *table, strict=True)]
    return "\n".join("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
                     for row in (HEAD, *table))  # fmt: skip


def markdown(table: Sequence[Sequence[str]]) -> str:
    """Format rows for a page."""
    return "\n".join(f"| {' | '.join(row)} |" for row in (HEAD, ("---",) * len(HEAD), *table))


def write(path: Path, results: Iterable[Result], version: str) -> None:
    """Write everything as JSON.

    Args:
        path: the file.
        results: the compiled programs.
        version: of the compilers.
    """
    entries = [
        {
            "program": result.program.name,
            "options": result.program.options,
            "target": result.target,
            "error": result.error,
            "launches": {kernel: asdict(launch) for kernel, launch in result.program.launches.items()},
            "kernels": {kernel: asdict(figures) for kernel, figures in result.kernels.items()},
        }
        for result in results
    ]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({"compilers": version, "programs": entries}, indent=1))
