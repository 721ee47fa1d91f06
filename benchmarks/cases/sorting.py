"""Sorting, selection, and operators built on them."""

from collections.abc import Callable, Iterator
from functools import partial

import torch

from benchmarks.case import Case, Work
from benchmarks.inputs import DTYPES, forward, random

# name: the shape, the function, and the dtypes. Only values are returned, because equal ones may be in any order.
FUNCTIONS: dict[str, tuple[tuple[int, ...], Callable[[torch.Tensor], torch.Tensor], tuple[str, ...]]] = {
    "sort 1M": ((1 << 20,), lambda x: x.sort().values, ("f32", "i64")),
    "sort 1M stable": ((1 << 20,), lambda x: x.sort(stable=True).values, ("f32",)),
    "sort rows 1024x1024": ((1024, 1024), lambda x: x.sort(1).values, ("f32", "bf16", "i64")),
    "sort columns 1024x1024": ((1024, 1024), lambda x: x.sort(0).values, ("f32",)),
    "sort short rows 65536x16": ((65536, 16), lambda x: x.sort(1).values, ("f32",)),
    "topk 50 of 64x50257": ((64, 50257), lambda x: x.topk(50).values, ("f32", "bf16")),
    "topk 5 of 128x1000": ((128, 1000), lambda x: x.topk(5).values, ("f32",)),
    "topk 1000 of 1M": ((1 << 20,), lambda x: x.topk(1000).values, ("f32",)),
    "median of 1M": ((1 << 20,), torch.median, ("f32",)),
    "kthvalue of 1024x1024": ((1024, 1024), lambda x: x.kthvalue(100, 1).values, ("f32",)),
    "unique of 1M": ((1 << 20,), torch.unique, ("i64",)),
    "unique_consecutive of 1M": ((1 << 20,), torch.unique_consecutive, ("i64",)),
    "bincount of 1M": ((1 << 20,), torch.bincount, ("i64",)),
    "histogram of 1M": ((1 << 20,), lambda x: torch.histogram(x, 100, range=(-3.0, 3.0)).hist, ("f32",)),
    "bucketize 1M in 100": ((1 << 20,), lambda x: torch.bucketize(x, x[:100].sort().values), ("f32",)),
    "searchsorted 1M in 1000": ((1 << 20,), lambda x: torch.searchsorted(x[:1000].sort().values, x), ("f32",)),
}


def cases() -> Iterator[Case]:
    """Yield each function in its dtypes."""
    for name, (shape, function, dtypes) in FUNCTIONS.items():
        for dtype in dtypes:
            build = partial(_build, shape, function, DTYPES[dtype])
            yield Case(group="sorting", name=f"{name} {dtype}", build=build, quick=dtype == dtypes[0])


def _build(
    shape: tuple[int, ...], function: Callable[[torch.Tensor], torch.Tensor], dtype: torch.dtype, device: torch.device
) -> Work:
    return forward(function, [random(device, *shape, dtype=dtype)])
