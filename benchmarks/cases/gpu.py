"""Cases for GPUs: work that is large for them, and small operations, which they start slowly."""

from collections.abc import Callable, Iterator
from functools import partial

import torch

from benchmarks import models
from benchmarks.case import Case, Work
from benchmarks.cases.latency import chain
from benchmarks.cases.networks import Network, image, text, training
from benchmarks.inputs import DTYPES, backward, forward, random

SIDE = 8192  # 64 M elements
# name: the function, its number of operands, the dtypes
MOVING: dict[str, tuple[Callable[..., torch.Tensor], int, tuple[str, ...]]] = {
    "add": (torch.add, 2, ("f32", "f16")),
    "gelu": (torch.nn.functional.gelu, 1, ("f32",)),
    "clone": (torch.clone, 1, ("f32", "f16")),
    "transpose": (lambda x: x.t().contiguous(), 1, ("f32", "f16")),
    "sum": (torch.sum, 1, ("f32", "f16")),
    "sum of rows": (lambda x: x.sum(1), 1, ("f32",)),
    "sum of columns": (lambda x: x.sum(0), 1, ("f32",)),
    "softmax": (lambda x: x.softmax(1), 1, ("f32",)),
    "cast to f16": (torch.Tensor.half, 1, ("f32",)),
}
MATMULS = {"f32": (1024, 4096), "f16": (4096,), "bf16": (4096,)}
NETWORKS = (
    Network("ResNet-50 32x3x224x224", models.resnet50, image(32, 3, 224, 224), 32, 1000),
    Network("GPT-2 4x512", models.Decoder, text(50257, 4, 512), 4 * 512, 50257),
)


def cases() -> Iterator[Case]:
    """Yield small operations, then memory-bound operations, matmuls, a convolution and training steps."""
    add = partial(chain, lambda total, b: total + b)
    yield Case(group="enqueue", name="add of 4, enqueued", build=add, asynchronous=True)
    yield Case(group="round-trip", name="add of 4, a chain to its end", build=add)
    for name, (function, operands, dtypes) in MOVING.items():
        for dtype in dtypes:
            build = partial(_moving, function, operands, DTYPES[dtype])
            # Sums of this many elements in another order have other rounding errors.
            yield Case(group="pointwise", name=f"{name} {dtype} of 64 M", build=build, tolerance=1e-2)
    for dtype, sides in MATMULS.items():
        for side in sides:
            build = partial(_matmul, side, DTYPES[dtype])
            yield Case(group="gemm", name=f"matmul {dtype} {side}", build=build, tolerance=1e-2)
    yield Case(group="conv", name="conv 3x3 f32 32x128x56x56, forward", build=partial(_conv, forward), tolerance=1e-3)
    yield Case(
        group="conv", name="conv 3x3 f32 32x128x56x56, gradients", build=partial(_conv, backward), tolerance=1e-3
    )
    for network in NETWORKS:
        build = partial(training, network)
        yield Case(group="model", name=f"{network.name} training step", build=build, tolerance=1e-2)


def _moving(function: Callable, operands: int, dtype: torch.dtype, device: torch.device) -> Work:
    return forward(function, [random(device, SIDE, SIDE, dtype=dtype, index=index) for index in range(operands)])


def _matmul(side: int, dtype: torch.dtype, device: torch.device) -> Work:
    a, b = (random(device, side, side, dtype=dtype, index=index) for index in range(2))
    return Work(run=lambda: a @ b)


def _conv(direction: Callable[..., Work], device: torch.device) -> Work:
    operands = random(device, 32, 128, 56, 56), random(device, 128, 128, 3, 3, index=1)
    return Work(run=direction(partial(torch.nn.functional.conv2d, padding=1), operands).run)
