"""Embeddings and other operators that read or write by index."""

from collections.abc import Callable, Iterator
from functools import partial

import torch
from torch.nn import functional

from benchmarks.case import Case, Work
from benchmarks.inputs import DTYPES, backward, forward, indices, random

ROWS, WIDTH, PICKED = 50257, 768, 4096
SIDE = 2048
BuildWork = Callable[[torch.dtype, torch.device], Work]


def _embedding(direction: Callable[..., Work], dtype: torch.dtype, device: torch.device) -> Work:
    weight, picked = random(device, ROWS, WIDTH, dtype=dtype), indices(device, ROWS, PICKED)
    work = direction(lambda w: functional.embedding(picked, w), [weight])
    # The backward pass does not read the table, and writes all of its gradient.
    return Work(run=work.run, reads=[random(device, PICKED, WIDTH, dtype=dtype)])


def _picks_rows(function: Callable, dtype: torch.dtype, device: torch.device) -> Work:
    table, picked = random(device, ROWS, WIDTH, dtype=dtype), indices(device, ROWS, PICKED)
    return Work(run=lambda: function(table, picked), reads=[random(device, PICKED, WIDTH, dtype=dtype)])


def _by_element(function: Callable, dtype: torch.dtype, device: torch.device) -> Work:
    return forward(function, (random(device, SIDE, SIDE, dtype=dtype), indices(device, SIDE, SIDE, SIDE)))


def _adds_rows(function: Callable, dtype: torch.dtype, device: torch.device) -> Work:
    # Each row gets 16 additions on average, so that they collide.
    source, index = random(device, 65536, 64, dtype=dtype), indices(device, 4096, 65536)
    return forward(lambda x, i: function(torch.zeros(4096, 64, dtype=dtype, device=device), i, x), (source, index))


def _masked(function: Callable, dtype: torch.dtype, device: torch.device) -> Work:
    x, mask = random(device, SIDE, SIDE, dtype=dtype), random(device, SIDE, SIDE, kind="mask", index=1)
    return forward(function, (x, mask))


ROWS_OF_TABLE: dict[str, BuildWork] = {
    "embedding": partial(_embedding, forward),
    "embedding backward": partial(_embedding, backward),
    "index_select rows": partial(_picks_rows, lambda x, i: x.index_select(0, i)),
    "index rows": partial(_picks_rows, lambda x, i: x[i]),
    "index columns": partial(_by_element, lambda x, i: x[:, i[0]]),
    "index pairs": partial(_by_element, lambda x, i: x[i, i.t()]),
    "gather rows": partial(_by_element, lambda x, i: x.gather(1, i)),
    "gather columns": partial(_by_element, lambda x, i: x.gather(0, i)),
    "take": partial(_by_element, torch.take),
    "scatter_add rows": partial(_by_element, lambda x, i: torch.zeros_like(x).scatter_add_(1, i, x)),
    "scatter_add columns": partial(_by_element, lambda x, i: torch.zeros_like(x).scatter_add_(0, i, x)),
    "scatter_add all": partial(_by_element, lambda x, i: x.new_zeros(SIDE).scatter_add_(0, i.flatten(), x.flatten())),
    "index_add rows": partial(_adds_rows, lambda x, i, y: x.index_add_(0, i, y)),
    "index_put accumulate": partial(_adds_rows, lambda x, i, y: x.index_put_((i,), y, accumulate=True)),
    "masked_select": partial(_masked, torch.masked_select),
    "nonzero": partial(_masked, lambda x, m: m.nonzero()),
    "one_hot": lambda dtype, device: forward(functional.one_hot, [indices(device, 1000, 4096)]),
}
# Cases that do not depend on the dtype.
ONLY_F32 = ("nonzero", "one_hot")


def cases() -> Iterator[Case]:
    """Yield each row in f32, and in bf16 if it depends on the dtype."""
    for name, build in ROWS_OF_TABLE.items():
        for dtype in ("f32",) if name in ONLY_F32 else ("f32", "bf16"):
            yield Case(
                group="indexing",
                name=f"{name} {dtype}",
                build=partial(build, DTYPES[dtype]),
                tolerance={"f32": 1e-5, "bf16": 3e-2}[dtype],
                quick=dtype == "f32",
            )
