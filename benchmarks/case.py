"""Rows of the table: work that any device can do, with its least cost."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch

Result = torch.Tensor | Sequence[torch.Tensor]


@dataclass(frozen=True, kw_only=True)
class Work:
    """Something prepared on a device, to be run again and again.

    Attributes:
        run: does it once, and returns what it has computed.
        reads: the tensors that have to be read, None if nobody has counted. What has to be written is the result.
        calls: how many operations a run is, where the time of one is asked for.
        flops: its additions and multiplications. Those of matmuls, convolutions and attention are counted
            by PyTorch where this is 0.
    """

    run: Callable[[], Result]
    reads: Sequence[torch.Tensor] | None = None
    calls: int = 1
    flops: float = 0


@dataclass(frozen=True, kw_only=True)
class Case:
    """One row of the table.

    Attributes:
        group: the rows that it is judged with; see :data:`benchmarks.targets.TARGETS`.
        name: what it is, in words that select it on the command line.
        build: prepares the work on a device, from the same random numbers on each.
        tolerance: how far the result may be from the CPU's, as a part of the largest number in it; None for what
            ``torch.testing`` allows an element of that dtype.
        share: the least share of the device's limit, if it is not the group's.
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
