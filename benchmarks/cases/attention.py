"""Scaled dot product attention, and multi-head layers."""

from collections.abc import Callable, Iterator
from functools import partial

import torch
from torch import nn
from torch.nn import functional

from benchmarks.case import Case, Work
from benchmarks.inputs import DTYPES, backward, forward, random

# name: (batch, heads, tokens, width of a head), causal
SHAPES: dict[str, tuple[tuple[int, int, int, int], bool]] = {
    "8x12x128x64": ((8, 12, 128, 64), False),
    "8x12x128x64 causal": ((8, 12, 128, 64), True),
    "1x12x1024x64": ((1, 12, 1024, 64), False),
    "1x12x1024x64 causal": ((1, 12, 1024, 64), True),
    "1x8x2048x128 causal": ((1, 8, 2048, 128), True),
}
TOLERANCES = {"f32": 1e-4, "bf16": 3e-2}


def cases() -> Iterator[Case]:
    """Yield the operator forward and backward, with a mask, with one query, and in a layer."""
    for name, (shape, causal) in SHAPES.items():
        function = partial(functional.scaled_dot_product_attention, is_causal=causal)
        for dtype in TOLERANCES:
            yield _case(f"{name} {dtype}", partial(attend, forward, shape, function, DTYPES[dtype]), dtype)
            build = partial(attend, backward, shape, function, DTYPES[dtype])
            yield _case(f"{name} {dtype} backward", build, dtype)
    yield _case("8x12x128x64 mask f32", _masked, "f32")
    yield _case("1x12x1x64 of 1024 f32", _one_query, "f32")
    yield _case("multihead layer 8x128x768 f32", _layer, "f32")


def _case(name: str, build: Callable[[torch.device], Work], dtype: str) -> Case:
    quick = dtype == "f32" and "2048" not in name
    return Case(group="attention", name=name, build=build, tolerance=TOLERANCES[dtype], quick=quick)


def attend(
    direction: Callable[..., Work],
    shape: tuple[int, int, int, int],
    function: partial,
    dtype: torch.dtype,
    device: torch.device,
) -> Work:
    """Return the work of attention with as many queries as keys.

    Args:
        direction: ``forward`` or ``backward`` of :mod:`benchmarks.inputs`.
        shape: batch, heads, tokens, width of a head.
        function: ``scaled_dot_product_attention`` with ``is_causal``.
        dtype: of queries, keys and values.
        device: where they are.
    """
    work = direction(function, [random(device, *shape, dtype=dtype, index=index) for index in range(3)])
    batch, heads, tokens, width = shape
    # Two matmuls forward; five backward, which recomputes the scores. Half as many operations if causal.
    matmuls = 2 if direction is forward else 5
    flops = matmuls * 2 * batch * heads * tokens * tokens * width / (2 if function.keywords["is_causal"] else 1)
    return Work(run=work.run, reads=work.reads, flops=flops)


def _masked(device: torch.device) -> Work:
    query, key, value = (random(device, 8, 12, 128, 64, index=index) for index in range(3))
    mask = random(device, 8, 1, 128, 128, index=3)
    return forward(functional.scaled_dot_product_attention, (query, key, value, mask))


def _one_query(device: torch.device) -> Work:
    query, *others = random(device, 1, 12, 1, 64), *(random(device, 1, 12, 1024, 64, index=index) for index in (1, 2))
    return forward(functional.scaled_dot_product_attention, (query, *others))


def _layer(device: torch.device) -> Work:
    layer = nn.MultiheadAttention(768, 12, batch_first=True).to(device)
    return forward(lambda x: layer(x, x, x, need_weights=False)[0], [random(device, 8, 128, 768)])
