"""Summaries of rows by group, compared with the targets."""

import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from benchmarks.measure import Row
from benchmarks.targets import TARGETS, Target


@dataclass(frozen=True, kw_only=True)
class Group:
    """The rows of a group and their means.

    Attributes:
        name: the group's name.
        rows: its rows, the slowest first.
        target: the group's target.
    """

    name: str
    rows: list[Row]
    target: Target

    @property
    def mean(self) -> float:
        """The geometric mean of the ratios."""
        return statistics.geometric_mean(row.ratio for row in self.rows)

    @property
    def eager_mean(self) -> float | None:
        """The geometric mean of the ratios in eager mode, or None if that was not measured for all rows."""
        ratios = [row.eager_ratio for row in self.rows]
        return None if None in ratios else statistics.geometric_mean(ratios)

    @property
    def passes(self) -> bool:
        """True if the mean and every row reach their targets."""
        enough = self.target.mean is None or self.mean >= self.target.mean
        return enough and not any(map(shortfall, self.rows))


def groups(rows: Sequence[Row]) -> list[Group]:
    """Sort rows into groups, in the order of the targets."""
    found = []
    for name, target in TARGETS.items():
        members = sorted((row for row in rows if row.group == name), key=lambda row: row.ratio)
        if members:
            found.append(Group(name=name, rows=members, target=target))
    return found


def shortfall(row: Row) -> str:
    """Return the targets that a row misses.

    Args:
        row: the row.

    Returns:
        Text such as ``"ratio, share"``; empty if the row reaches all.
    """
    target = TARGETS[row.group]
    share = row.share or target.share
    lacks = {
        "ratio": target.row is not None and row.ratio < target.row,
        "share": share is not None and row.limit_share is not None and row.limit_share < share,
        "time": target.seconds is not None and min(row.device) > target.seconds,
    }
    return ", ".join(name for name, is_short in lacks.items() if is_short)
