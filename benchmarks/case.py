"""Rows of the table: work for any device, with its least reads, writes and operations."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch

Result = torch.Tensor | Sequence[torch.Tensor]


@dataclass(frozen=True, kw_only=True)
class Work:
    """Work prepared on a device, to be run repeatedly.

    Attributes:
        run: does it once, and returns the result.
        reads: the tensors that must be read, None if they are not counted. The result must be written.
        calls: the number of operations in a run, if the time of one is measured.
        flops: its additions and multiplications. If 0, PyTorch counts them for matmuls, convolutions
            and attention.
    """

    run: Callable[[], Result]
    reads: Sequence[torch.Tensor] | None = None
    calls: int = 1
    flops: float = 0


@dataclass(frozen=True, kw_only=True)
class Case:
    """One row of the table.

    Attributes:
        group: the rows with the same targets; see :data:`benchmarks.targets.TARGETS`.
        name: its name, which selects it on the command line.
        build: prepares the work on a device, with the same random inputs on each.
        tolerance: the allowed difference from the CPU's result, as a part of the largest value in it; None for the
            tolerance of ``torch.testing`` for elements of that dtype.
        share: the least share of the device's limit, if it differs from the group's.
        asynchronous: whether the clock stops as soon as the work is submitted.
        quick: whether ``--quick`` measures it.
    """

    group: str
    name: str
    build: Callable[[torch.device], Work]
    tolerance: float | None = None
    share: float | None = None
    asynchronous: bool = False
    quick: bool = False
