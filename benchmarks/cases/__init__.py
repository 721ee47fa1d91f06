"""The rows of the table, with a file for each kind. A row is a line in one of the tables in these files."""

from collections.abc import Sequence
from fnmatch import fnmatchcase

from benchmarks.case import Case
from benchmarks.cases import (
    attention,
    convolution,
    copies,
    host,
    indexing,
    latency,
    layers,
    matrix,
    networks,
    normalization,
    pointwise,
    pooling,
    reductions,
    sorting,
    sparse,
    spectral,
)
from benchmarks.targets import TARGETS

_FILES = (
    pointwise,
    copies,
    reductions,
    spectral,
    normalization,
    matrix,
    sparse,
    convolution,
    pooling,
    layers,
    indexing,
    sorting,
    attention,
    latency,
    host,
    networks,
)


def all_cases() -> list[Case]:
    """Return every row, group by group."""
    order = list(TARGETS)
    return sorted((case for file in _FILES for case in file.cases()), key=lambda case: order.index(case.group))


def select(words: Sequence[str], quick: bool = False) -> list[Case]:
    """Return the selected rows.

    Args:
        words: groups, names and patterns for names; none for all rows.
        quick: whether to select only rows that ``--quick`` measures.

    Returns:
        The rows, group by group.
    """
    return [
        case
        for case in all_cases()
        if (case.quick or not quick)
        and (not words or any(word == case.group or fnmatchcase(case.name, word) for word in words))
    ]
