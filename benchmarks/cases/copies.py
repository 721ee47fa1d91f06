"""Copies and casts of at most sixteen million elements, which allocate their result or write into a tensor."""

from collections.abc import Callable, Iterator
from functools import partial

import torch

from benchmarks.case import Case, Work
from benchmarks.inputs import DTYPES, forward, random

# name: the shape of the input, the function
COPIES: dict[str, tuple[tuple[int, ...], Callable[[torch.Tensor], torch.Tensor]]] = {
    "clone": ((4096, 4096), torch.clone),
    "transpose": ((4096, 4096), lambda x: x.t().contiguous()),
    "rows of a slice": ((4096, 4096), lambda x: x[:, 64:-64].contiguous()),
    "every other row": ((4096, 4096), lambda x: x[::2].contiguous()),
    "every other column": ((4096, 4096), lambda x: x[:, ::2].contiguous()),
    "expand a row": ((1, 4096), lambda x: x.expand(4096, -1).contiguous()),
    "expand a column": ((4096, 1), lambda x: x.expand(-1, 4096).contiguous()),
    "to channels_last": ((32, 64, 56, 56), lambda x: x.contiguous(memory_format=torch.channels_last)),
    "heads to the front": ((8, 512, 12, 64), lambda x: x.transpose(1, 2).contiguous()),
    "cat rows": ((2048, 2048), lambda x: torch.cat((x, x))),
    "cat columns": ((2048, 2048), lambda x: torch.cat((x, x), 1)),
    "stack": ((2048, 2048), lambda x: torch.stack((x, x), 2)),
    "repeat": ((1024, 1024), lambda x: x.repeat(2, 2)),
    "flip": ((2048, 2048), lambda x: x.flip(1)),
    "roll": ((2048, 2048), lambda x: x.roll(7, 1)),
    "pad": ((32, 64, 56, 56), lambda x: torch.nn.functional.pad(x, (1, 1, 1, 1))),
    "tril": ((2048, 2048), torch.tril),
}
CASTS = ("f32 bf16", "bf16 f32", "f32 f16", "f16 f32", "f32 f64", "f64 f32", "f32 i64", "i64 f32", "bool f32")
COPY_DTYPES = ("f32", "bf16", "i64")
# Side of the matrices in casts and in copies into a tensor.
SIDE = 4096


def cases() -> Iterator[Case]:
    """Yield copies in other layouts, casts, and copies into a tensor."""
    for name, (shape, function) in COPIES.items():
        for dtype in COPY_DTYPES:
            build = partial(_copy, shape, function, DTYPES[dtype])
            yield Case(group="copy", name=f"{name} {dtype}", build=build, quick=dtype == "f32")
    for cast in CASTS:
        source, target = (DTYPES[name] for name in cast.split())
        name = f"cast {cast.replace(' ', ' to ')}"
        yield Case(group="copy", name=name, build=partial(_cast, source, target), quick=cast == "f32 bf16")
        yield Case(group="copy-out", name=name, build=partial(_copy_into, source, target, False))
    for dtype in COPY_DTYPES:
        for name, transposed in (("copy_", False), ("copy_ transposed", True)):
            build = partial(_copy_into, DTYPES[dtype], DTYPES[dtype], transposed)
            yield Case(group="copy-out", name=f"{name} {dtype}", build=build, quick=dtype == "f32")
        yield Case(group="copy-out", name=f"fill_ {dtype}", build=partial(_fill, DTYPES[dtype]), quick=dtype == "f32")


def _copy(shape: tuple[int, ...], function: Callable, dtype: torch.dtype, device: torch.device) -> Work:
    return forward(function, [random(device, *shape, dtype=dtype)])


def _cast(source: torch.dtype, target: torch.dtype, device: torch.device) -> Work:
    return forward(lambda x: x.to(target), [random(device, SIDE, SIDE, dtype=source)])


def _copy_into(source: torch.dtype, target: torch.dtype, transposed: bool, device: torch.device) -> Work:
    x = random(device, SIDE, SIDE, dtype=source)
    out = torch.empty(SIDE, SIDE, dtype=target, device=device)
    return forward(out.copy_, [x.t() if transposed else x])


def _fill(dtype: torch.dtype, device: torch.device) -> Work:
    out = torch.empty(SIDE, SIDE, dtype=dtype, device=device)
    return Work(run=lambda: out.fill_(3), reads=())
