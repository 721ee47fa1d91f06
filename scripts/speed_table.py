"""Writes docs/performance.md's table of groups from a run of the benchmarks and one of the models: `make speed`."""

import argparse
import json
import os
import re
import statistics
import subprocess
import sys
from datetime import date
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from benchmarks.targets import TARGETS  # noqa: E402

PAGE = ROOT / "docs/performance.md"
BEGIN, END = "<!-- written by make speed -->\n", "<!-- end -->\n"


def lines_of(path: Path) -> list[dict]:
    """Read a file with a JSON object on each line."""
    return [json.loads(line) for line in path.read_text().splitlines()]


def line(label: str, ratios: dict[str, float], eager: str, mean: float) -> str:
    """Return a line of the table.

    Args:
        label: the group's name.
        ratios: the CPU's time divided by the device's, by row.
        eager: the mean with eager specialisation, as text.
        mean: the mean, or median, of the ratios.
    """
    slowest = min(ratios, key=ratios.get)
    return f"| {label} | {len(ratios)} | {mean:.2f} | {eager} | {ratios[slowest]:.2f} {slowest} |"


def groups(rows: list[dict]) -> list[str]:
    """Return the lines of the groups of operators: geometric means of the rows' ratios."""
    found = []
    for name, target in TARGETS.items():
        measured = [row for row in rows if row["group"] == name and "ratio" in row]
        if not target.label or not measured:
            continue
        eager = [row["eager_ratio"] for row in measured if row["eager_ratio"]]
        eager_mean = f"{statistics.geometric_mean(eager):.2f}" if eager else ""
        ratios = {row["name"]: row["ratio"] for row in measured}
        found.append(line(target.label, ratios, eager_mean, statistics.geometric_mean(ratios.values())))
    return found


def libraries(models: list[dict]) -> list[str]:
    """Return the lines of the models, by library and for all: medians of the models' ratios."""
    timed = {model["name"]: model["ratio"] for model in models if "ratio" in model}
    if not timed:
        raise SystemExit("no model was timed")
    by_library: dict[str, dict[str, float]] = {}
    for name, ratio in timed.items():
        by_library.setdefault(name.partition("/")[0], {})[name.partition("/")[2]] = ratio
    by_library["all libraries"] = timed
    return [
        line(f"models of {name}", found, "", statistics.median(found.values())) for name, found in by_library.items()
    ]


def processor() -> str:
    """Return the processor's name and the number of its cores that this process may use."""
    info = Path("/proc/cpuinfo").read_text()
    name = re.search(r"^model name\s*: (.*)$", info, re.M)
    return f"{name[1] if name else 'an unknown processor'}, {len(os.sched_getaffinity(0))} cores"


def main() -> None:
    """Replace the table between the two comments in docs/performance.md."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("rows", type=Path, help="the file of `python -m benchmarks --rows`")
    parser.add_argument("models", type=Path, help="the file of `python tests/models --results`")
    asked = parser.parse_args()
    page = PAGE.read_text()
    before, _, rest = page.partition(BEGIN)
    _, found, after = rest.partition(END)
    if not found:
        raise SystemExit(f"{PAGE} has no lines {BEGIN.strip()} and {END.strip()}")
    # With "-dirty" if files are changed.
    describe = ["git", "describe", "--always", "--dirty", "--exclude=*"]
    commit = subprocess.run(describe, cwd=ROOT, capture_output=True, text=True, check=True).stdout.strip()
    table = "\n".join(
        [
            f"Commit {commit}, {date.today():%d %B %Y}; {processor()}.\n",
            "| group | rows | default | eager | slowest row in default mode |",
            "| --- | --- | --- | --- | --- |",
            *groups(lines_of(asked.rows)),
            *libraries(lines_of(asked.models)),
        ]
    )
    PAGE.write_text(f"{before}{BEGIN}\n{table}\n\n{END}{after}")


if __name__ == "__main__":
    main()
