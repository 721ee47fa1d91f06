"""Reductions and scans of sixteen million elements."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial

import torch

from benchmarks.case import Case, Work
from benchmarks.inputs import DTYPES, forward, random


@dataclass(frozen=True)
class Fold:
    """A reduction's input.

    Attributes:
        name: in the row's name.
        shape: of the input.
        dims: the reduced dimensions.
    """

    name: str
    shape: tuple[int, ...]
    dims: tuple[int, ...]


# Arguments are x and the dimensions to reduce; argmax takes one or all.
Reduction = Callable[[torch.Tensor, tuple[int, ...]], torch.Tensor]
REDUCTIONS: dict[str, tuple[Reduction, tuple[str, ...]]] = {
    "sum": (torch.sum, ("f32", "bf16", "f64", "i64")),
    "mean": (torch.mean, ("f32", "bf16")),
    "max": (torch.amax, ("f32", "bf16", "i64")),
    "var": (torch.var, ("f32", "bf16")),
    "norm": (lambda x, dims: torch.linalg.vector_norm(x, dim=dims), ("f32", "bf16")),
    "argmax": (lambda x, dims: x.argmax(dims[0] if len(dims) == 1 else None), ("f32", "i64")),
    "any": (torch.any, ("bool",)),
}
FOLDS = (
    Fold("all", (4096, 4096), (0, 1)),
    Fold("rows", (4096, 4096), (1,)),
    Fold("columns", (4096, 4096), (0,)),
)
# Shapes that need other work-groups; only sums of f32.
MORE_FOLDS = (
    Fold("short rows", (262144, 64), (1,)),
    Fold("rows of 10", (1048576, 10), (1,)),
    Fold("long rows", (16, 1048576), (1,)),
    Fold("short columns", (64, 262144), (0,)),
    Fold("long columns", (1048576, 16), (0,)),
    Fold("middle", (64, 512, 512), (1,)),
    Fold("channels", (32, 64, 112, 64), (0, 2, 3)),
)
SCANS = {"cumsum rows": 1, "cumsum columns": 0}


def cases() -> Iterator[Case]:
    """Yield each reduction over everything, rows and columns, sums of other shapes, and scans."""
    for name, (function, dtypes) in REDUCTIONS.items():
        for dtype in dtypes:
            for fold in FOLDS:
                yield _case(name, function, fold, dtype)
    for fold in MORE_FOLDS:
        yield _case("sum", torch.sum, fold, "f32", quick=False)
    for name, dim in SCANS.items():
        yield Case(group="reduction", name=f"{name} f32", build=partial(_scan, dim), tolerance=1e-5)


def _case(name: str, function: Reduction, fold: Fold, dtype: str, quick: bool = True) -> Case:
    return Case(
        group="reduction",
        name=f"{name} {dtype} {fold.name}",
        build=partial(_build, fold, function, DTYPES[dtype]),
        # The order of additions depends on the device; the CPU's norm of this many values has an error of 2e-4.
        tolerance={"f32": 1e-3 if name == "norm" else 1e-5, "bf16": 1.6e-2}.get(dtype),
        quick=quick and dtype == "f32",
    )


def _build(fold: Fold, function: Reduction, dtype: torch.dtype, device: torch.device) -> Work:
    # Positive values: a sum of mixed signs is mostly rounding errors. False, because `any` could stop at a True.
    if dtype == torch.bool:
        x = torch.zeros(fold.shape, dtype=dtype, device=device)
    else:
        x = random(device, *fold.shape, dtype=dtype, kind="positive")
    return forward(lambda x: function(x, fold.dims), [x])


def _scan(dim: int, device: torch.device) -> Work:
    return forward(lambda x: x.cumsum(dim), [random(device, 4096, 4096, kind="positive")])
