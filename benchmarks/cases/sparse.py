"""Matmuls with sparse matrices."""

from collections.abc import Callable, Iterator
from functools import partial

import torch

from benchmarks.case import Case, Work
from benchmarks.inputs import indices, random

# name: layout, rows and columns, elements of a row, columns of the dense matrix.
MATMULS: dict[str, tuple[torch.layout, int, int, int]] = {
    "csr 4096 @ 64": (torch.sparse_csr, 4096, 16, 64),
    "csr 16384 @ 16": (torch.sparse_csr, 16384, 16, 16),
    "csr 2048 @ 256": (torch.sparse_csr, 2048, 32, 256),
    "csr 65536 @ vector": (torch.sparse_csr, 65536, 16, 1),
    "coo 4096 @ 64": (torch.sparse_coo, 4096, 16, 64),
}
# name: a function of a matrix in COO.
CONVERSIONS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "coo to_dense": lambda matrix: matrix.to_dense(),
}


def cases() -> Iterator[Case]:
    """Yield each matmul, and conversions."""
    for name, (layout, side, per_row, columns) in MATMULS.items():
        yield Case(
            group="sparse", name=name, build=partial(_matmul, layout, side, per_row, columns), quick=side == 4096
        )
    for name, function in CONVERSIONS.items():
        yield Case(group="sparse", name=name, build=partial(_converted, function))


def _sparse(device: torch.device, layout: torch.layout, side: int, per_row: int) -> torch.Tensor:
    cpu = torch.device("cpu")
    rows, columns = torch.arange(side).repeat_interleave(per_row), indices(cpu, side, side * per_row)
    matrix = torch.sparse_coo_tensor(torch.stack([rows, columns]), random(cpu, side * per_row), (side, side)).coalesce()
    return (matrix if layout == torch.sparse_coo else matrix.to_sparse_csr()).to(device)


def _matmul(layout: torch.layout, side: int, per_row: int, columns: int, device: torch.device) -> Work:
    matrix, dense = _sparse(device, layout, side, per_row), random(device, side, columns, index=1)
    return Work(run=lambda: matrix @ dense, flops=2 * side * per_row * columns)


def _converted(function: Callable[[torch.Tensor], torch.Tensor], device: torch.device) -> Work:
    matrix = _sparse(device, torch.sparse_coo, 4096, 16)
    return Work(run=lambda: function(matrix))
