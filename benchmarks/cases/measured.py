"""Rows that show the effect of constants, besides the rows of the table."""

from collections.abc import Callable, Iterator
from functools import partial

import torch
from torch.nn import functional

from benchmarks.case import Case, Work
from benchmarks.inputs import forward, indices, random

GROUP = "constants"
MIB = 1 << 20
# name: the shape, the function
FUNCTIONS: dict[str, tuple[tuple[int, ...], Callable[[torch.Tensor], torch.Tensor]]] = {
    "copy of 4 MiB": ((MIB,), torch.clone),
    "copy of 32 MiB and a sum": ((8 * MIB,), lambda x: x.clone().sum()),
    "exp of 16 K": ((16 << 10,), torch.exp),
    "exp of 64 K": ((64 << 10,), torch.exp),
    "exp of 256 K": ((256 << 10,), torch.exp),
    "topk 100 of 1024x1024": ((1024, 1024), lambda x: x.topk(100).values),
    "sort rows 16384x64": ((16384, 64), lambda x: x.sort(1, stable=True).values),
    "sort rows 8192x128": ((8192, 128), lambda x: x.sort(1, stable=True).values),
    "sort rows 4096x256": ((4096, 256), lambda x: x.sort(1, stable=True).values),
}
# name: queries, keys, whether each query sees only the keys before it
ATTENTION = {
    "1 query of 1024 keys": (1, 1024, False),
    "2 queries of 1024 keys": (2, 1024, False),
    "4 queries of 1024 keys": (4, 1024, False),
    "512 queries": (512, 512, False),
    "512 queries, causal": (512, 512, True),
    "2048 queries": (2048, 2048, False),
}


def cases() -> Iterator[Case]:
    """Yield the rows."""
    for name, (shape, function) in FUNCTIONS.items():
        yield Case(group=GROUP, name=name, build=partial(_function, shape, function), tolerance=1e-4)
    yield Case(group=GROUP, name="zeros of 16 MiB and a scatter_add_", build=_scatter, tolerance=1e-4)
    for name, (queries, keys, causal) in ATTENTION.items():
        yield Case(group=GROUP, name=name, build=partial(_attention, queries, keys, causal), tolerance=1e-4)


def _function(shape: tuple[int, ...], function: Callable, device: torch.device) -> Work:
    return forward(function, [random(device, *shape)])


def _scatter(device: torch.device) -> Work:
    index, values = indices(device, 4 * MIB, MIB), random(device, MIB)
    return Work(run=lambda: torch.zeros(4 * MIB, device=device).scatter_add_(0, index, values))


def _attention(queries: int, keys: int, causal: bool, device: torch.device) -> Work:
    operands = [random(device, 1, 12, count, 64, index=index) for index, count in enumerate((queries, keys, keys))]
    return forward(partial(functional.scaled_dot_product_attention, is_causal=causal), operands)
