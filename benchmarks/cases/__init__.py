"""The rows of the table, a file for each kind. A row is a line in one of the small tables there."""

from benchmarks.case import Case
from benchmarks.cases import (
    attention,
    convolution,
    copies,
    host,
    indexing,
    latency,
    matrix,
    networks,
    normalization,
    pointwise,
    pooling,
    reductions,
    sorting,
)
from benchmarks.targets import TARGETS

_FILES = (
    pointwise,
    copies,
    reductions,
    normalization,
    matrix,
    convolution,
    pooling,
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
