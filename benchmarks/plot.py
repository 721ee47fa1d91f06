"""Plots of measurements."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import matplotlib as mpl

# Works without a display.
mpl.use("agg")
from matplotlib import pyplot

from benchmarks.measure import Row
from benchmarks.summary import groups, shortfall

GOOD, SHORT = "tab:blue", "tab:red"


def plot_ratios(rows: Sequence[Row], path: Path) -> None:
    """Draw every row's ratio as a dot in the line of its group, and the groups' means.

    Args:
        rows: the measurements.
        path: the image to write; its suffix selects the format.
    """
    found = groups(rows)[::-1]
    figure, axes = pyplot.subplots(figsize=(9, 1 + 0.4 * len(found)), layout="constrained")
    for line, group in enumerate(found):
        colors = [SHORT if shortfall(row) else GOOD for row in group.rows]
        axes.scatter([row.ratio for row in group.rows], [line] * len(colors), c=colors, s=14, alpha=0.6)
        axes.plot(group.mean, line, "k|", markersize=16, markeredgewidth=2)
        if group.target.mean:
            axes.plot(group.target.mean, line, "g|", markersize=16)
    axes.axvline(1, color="gray", linewidth=0.8)
    axes.set_xscale("log")
    axes.set_yticks(range(len(found)), [group.name for group in found])
    axes.set_xlabel("times the CPU backend's speed; red is below target, | the mean (black) and its target (green)")
    figure.savefig(path, dpi=120)
    pyplot.close(figure)


def plot_growth(curves: Mapping[str, Sequence[tuple[int, float]]], axis: str, path: Path) -> None:
    """Draw the time of a unit of work against the size.

    Args:
        curves: for each name, sizes and seconds per unit.
        axis: the label of the sizes.
        path: the image to write.
    """
    figure, axes = pyplot.subplots(figsize=(9, 6), layout="constrained")
    for name, points in curves.items():
        axes.plot(*zip(*points, strict=True), "--" if name.endswith("CPU") else "-", marker=".", label=name)
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    axes.set_xlabel(axis)
    axes.set_ylabel("seconds per unit")
    axes.legend()
    figure.savefig(path, dpi=120)
    pyplot.close(figure)
