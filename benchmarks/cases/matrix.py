"""Matmuls."""

from collections.abc import Iterator
from functools import partial

import torch
from torch.nn import functional

from benchmarks.case import Case, Work
from benchmarks.inputs import DTYPES, forward, random

GROUPS = {"f32": "gemm", "bf16": "gemm-16", "f16": "gemm-16", "f64": "gemm-f64"}
# Parts of the largest value in the result: sums of that length, in another order.
TOLERANCES = {"f32": 1e-5, "bf16": 1.6e-2, "f16": 2e-3, "f64": 1e-12}
EVERY_DTYPE = tuple(GROUPS)
QUICK = ("square 512", "square 1024", "square 2048", "batch 96x256x64x256", "linear 512x768x3072")

# name: (rows, k, columns) of the operands, and the dtypes
SHAPES: dict[str, tuple[tuple[int, int, int], tuple[str, ...]]] = {
    "square 512": ((512, 512, 512), EVERY_DTYPE),
    "square 1024": ((1024, 1024, 1024), EVERY_DTYPE),
    "square 2048": ((2048, 2048, 2048), EVERY_DTYPE),
    "square 4096": ((4096, 4096, 4096), ("f32",)),
    "odd 511": ((511, 511, 511), ("f32", "bf16")),
    "odd 1023": ((1023, 1023, 1023), EVERY_DTYPE),
    "odd 777x1333x1001": ((777, 1333, 1001), ("f32", "bf16")),
    "tall 32768x512x64": ((32768, 512, 64), ("f32", "bf16")),
    "wide 64x512x32768": ((64, 512, 32768), ("f32", "bf16")),
    "deep 64x32768x64": ((64, 32768, 64), ("f32", "bf16")),
    "outer 2048x16x2048": ((2048, 16, 2048), ("f32",)),
    "few rows 8x4096x4096": ((8, 4096, 4096), ("f32", "bf16")),
    "row 1x4096x4096": ((1, 4096, 4096), ("f32", "bf16")),
    "column 4096x4096x1": ((4096, 4096, 1), ("f32",)),
}
# name: whether each operand is transposed in memory
TRANSPOSED = {"transposed a": (True, False), "transposed b": (False, True), "transposed both": (True, True)}
# name: (batch, rows, k, columns)
BATCHES = {
    "batch 96x256x64x256": (96, 256, 64, 256),
    "batch 96x256x256x64": (96, 256, 256, 64),
    "batch 512x64x64x64": (512, 64, 64, 64),
    "batch 4096x16x16x16": (4096, 16, 16, 16),
}
# name: (rows, inputs, outputs), with a bias
LINEARS = {
    "linear 512x768x3072": (512, 768, 3072),
    "linear 512x3072x768": (512, 3072, 768),
    "linear 64x1024x10": (64, 1024, 10),
}


def cases() -> Iterator[Case]:
    """Yield matmuls of two matrices, of transposed ones, of batches, and linear layers."""
    for name, (shape, dtypes) in SHAPES.items():
        for dtype in dtypes:
            yield _case(name, dtype, partial(_matmul, shape, (False, False)), _share(shape) if dtype == "f32" else None)
    for name, transposed in TRANSPOSED.items():
        for dtype in ("f32", "bf16"):
            yield _case(f"{name} 1024", dtype, partial(_matmul, (1024, 1024, 1024), transposed))
    for name, shape in BATCHES.items():
        for dtype in ("f32", "bf16"):
            yield _case(name, dtype, partial(_batch, shape))
    for name, shape in LINEARS.items():
        for dtype in ("f32", "bf16"):
            yield _case(name, dtype, partial(_linear, shape))


def _share(shape: tuple[int, int, int]) -> float | None:
    """Return the share of the arithmetic limit that a matmul of such matrices has to reach."""
    if min(shape) >= 1000:
        return 0.85
    return 0.60 if min(shape) >= 500 else None


def _case(name: str, dtype: str, build: partial, share: float | None = None) -> Case:
    return Case(
        group=GROUPS[dtype],
        name=f"{name} {dtype}",
        build=partial(build, DTYPES[dtype]),
        tolerance=TOLERANCES[dtype],
        share=share,
        quick=name in QUICK and (dtype == "f32" or name == "square 1024"),
    )


def _matmul(
    shape: tuple[int, int, int], transposed: tuple[bool, bool], dtype: torch.dtype, device: torch.device
) -> Work:
    rows, k, columns = shape
    a = random(device, *((k, rows) if transposed[0] else (rows, k)), dtype=dtype)
    b = random(device, *((columns, k) if transposed[1] else (k, columns)), dtype=dtype, index=1)
    return forward(torch.matmul, (a.t() if transposed[0] else a, b.t() if transposed[1] else b))


def _batch(shape: tuple[int, int, int, int], dtype: torch.dtype, device: torch.device) -> Work:
    batch, rows, k, columns = shape
    a, b = random(device, batch, rows, k, dtype=dtype), random(device, batch, k, columns, dtype=dtype, index=1)
    return forward(torch.bmm, (a, b))


def _linear(shape: tuple[int, int, int], dtype: torch.dtype, device: torch.device) -> Work:
    rows, inputs, outputs = shape
    x, weight = random(device, rows, inputs, dtype=dtype), random(device, outputs, inputs, dtype=dtype, index=1)
    return forward(functional.linear, (x, weight, random(device, outputs, dtype=dtype, index=2)))
