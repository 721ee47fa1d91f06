"""Cases for GPUs: work that is large for them, and small operations, which they start slowly."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from math import prod

import torch
from torch.nn import functional

from benchmarks import models
from benchmarks.case import Case, Work
from benchmarks.cases.attention import attend
from benchmarks.cases.latency import chain
from benchmarks.cases.networks import Network, image, text, training
from benchmarks.inputs import DTYPES, backward, forward, indices, random


@dataclass(frozen=True)
class Sizes:
    """Sizes of the rows.

    Attributes:
        side: rows and columns of the matrices of memory-bound operations.
        matmuls: the orders of the matrices multiplied, by dtype.
        images: of the convolutions: images, channels, height, width.
        heads: of attention: batch, heads, tokens, width of a head.
        parameters: that an optimizer updates.
        layer: inputs and outputs of a linear layer with one row of inputs.
        networks: trained for a step.
    """

    side: int
    matmuls: dict[str, tuple[int, ...]]
    images: tuple[int, int, int, int]
    heads: tuple[int, int, int, int]
    parameters: int
    layer: tuple[int, int]
    networks: tuple[Network, ...]


LARGE = Sizes(
    side=8192,
    matmuls={"f32": (1024, 4096), "f16": (4096,), "bf16": (4096,)},
    images=(32, 128, 56, 56),
    heads=(4, 16, 2048, 128),
    parameters=1 << 26,
    layer=(4096, 14336),
    networks=(
        Network("ResNet-50 32x3x224x224", models.resnet50, image(32, 3, 224, 224), 32, 1000),
        Network("GPT-2 4x512", models.Decoder, text(50257, 4, 512), 4 * 512, 50257),
    ),
)
# name: the function, its number of operands, the dtypes
MOVING: dict[str, tuple[Callable[..., torch.Tensor], int, tuple[str, ...]]] = {
    "add": (torch.add, 2, ("f32", "f16")),
    "gelu": (functional.gelu, 1, ("f32",)),
    "clone": (torch.clone, 1, ("f32", "f16")),
    "transpose": (lambda x: x.t().contiguous(), 1, ("f32", "f16")),
    "sum": (torch.sum, 1, ("f32", "f16")),
    "sum of rows": (lambda x: x.sum(1), 1, ("f32",)),
    "sum of columns": (lambda x: x.sum(0), 1, ("f32", "f16")),
    "softmax": (lambda x: x.softmax(1), 1, ("f32", "f16")),
    "layer norm": (lambda x: functional.layer_norm(x, x.shape[1:]), 1, ("f32", "f16")),
    "cast to f16": (torch.Tensor.half, 1, ("f32",)),
}
# Columns of a quantised weight with the same scale.
GROUP = 64
# Attention of one query: how many heads share the keys of one, and how many times as many keys there are.
SHARING, KEYS = 4, 16
DIRECTIONS = {"forward": forward, "gradients": backward}
# name: whether each channel is a group, the order of dimensions in memory, the dtypes
CONVOLUTIONS = {
    "conv 3x3": (False, torch.contiguous_format, ("f32", "f16")),
    "conv 3x3 channels-last": (False, torch.channels_last, ("f16",)),
    "depthwise conv 3x3": (True, torch.contiguous_format, ("f16",)),
}


def cases(sizes: Sizes = LARGE) -> Iterator[Case]:
    """Yield small operations, memory-bound operations, matmuls, convolutions, attention, layers and training steps.

    Args:
        sizes: of the rows.
    """
    add = partial(chain, lambda total, b: total + b)
    yield Case(group="enqueue", name="add of 4, enqueued", build=add, asynchronous=True)
    yield Case(group="round-trip", name="add of 4, a chain to its end", build=add)
    count = _count(sizes.side**2)
    for name, (function, operands, dtypes) in MOVING.items():
        for dtype in dtypes:
            build = partial(_moving, forward, function, operands, sizes.side, DTYPES[dtype])
            # Sums of this many elements in another order have other rounding errors.
            yield Case(group="pointwise", name=f"{name} {dtype} of {count}", build=build, tolerance=1e-2)
    for name in ("softmax", "layer norm"):
        function, operands, _ = MOVING[name]
        gradients = partial(_moving, backward, function, operands, sizes.side, torch.float16)
        row = f"{name} f16 of {count}, gradients"
        yield Case(group="pointwise", name=row, build=gradients, tolerance=1e-2)
    for dtype, orders in sizes.matmuls.items():
        for order in orders:
            build = partial(_matmul, order, DTYPES[dtype])
            yield Case(group="gemm", name=f"matmul {dtype} {order}", build=build, tolerance=1e-2)
    yield from _convolutions(sizes)
    yield from _attention(sizes)
    build = partial(_adam, sizes.parameters)
    yield Case(group="layer", name=f"Adam step f32 of {_count(sizes.parameters)}", build=build, tolerance=1e-5)
    shape = "x".join(map(str, sizes.layer))
    for dtype in ("f16", "bf16"):
        build = partial(_one_row, sizes.layer, DTYPES[dtype])
        yield Case(group="gemm", name=f"linear {dtype} {shape}, 1 row", build=build, tolerance=2e-2)
    for bits in (8, 4):
        build = partial(_one_row_quantized, sizes.layer, bits)
        yield Case(group="layer", name=f"linear int{bits} {shape}, 1 row of f16", build=build, tolerance=2e-2)
    for network in sizes.networks:
        for suffix, dtype in (("", None), (", autocast to f16", torch.float16)):
            build = partial(_training, network, dtype)
            yield Case(group="model", name=f"{network.name} training step{suffix}", build=build, tolerance=1e-2)


def _count(elements: int) -> str:
    return f"{elements >> 20} M" if elements >> 20 else str(elements)


def _moving(
    direction: Callable[..., Work],
    function: Callable,
    operands: int,
    side: int,
    dtype: torch.dtype,
    device: torch.device,
) -> Work:
    return direction(function, [random(device, side, side, dtype=dtype, index=index) for index in range(operands)])


def _matmul(order: int, dtype: torch.dtype, device: torch.device) -> Work:
    a, b = (random(device, order, order, dtype=dtype, index=index) for index in range(2))
    return Work(run=lambda: a @ b)


def _convolutions(sizes: Sizes) -> Iterator[Case]:
    shape = "x".join(map(str, sizes.images))
    for name, (is_depthwise, layout, dtypes) in CONVOLUTIONS.items():
        groups = sizes.images[1] if is_depthwise else 1
        for dtype in dtypes:
            for word, direction in DIRECTIONS.items():
                build = partial(_convolution, direction, sizes.images, groups, layout, DTYPES[dtype])
                # Float16 rounds each result, and gradients of weights are sums over all positions.
                tolerance = 1e-3 if dtype == "f32" else 1e-2
                yield Case(group="conv", name=f"{name} {dtype} {shape}, {word}", build=build, tolerance=tolerance)


def _convolution(
    direction: Callable[..., Work],
    images: tuple[int, int, int, int],
    groups: int,
    layout: torch.memory_format,
    dtype: torch.dtype,
    device: torch.device,
) -> Work:
    channels, dtype = images[1], _computed(dtype, device)
    shapes = images, (channels, channels // groups, 3, 3)
    operands = [
        random(device, *shape, dtype=dtype, index=index).to(memory_format=layout) for index, shape in enumerate(shapes)
    ]
    work = direction(partial(functional.conv2d, padding=1, groups=groups), operands)
    # Each of two gradients takes as many operations as the result. PyTorch's count for gradients ignores groups.
    flops = 2 * 9 * prod(images) * channels // groups * (1 if direction is forward else 2)
    return Work(run=work.run, reads=work.reads, flops=flops)


def _attention(sizes: Sizes) -> Iterator[Case]:
    shape = "x".join(map(str, sizes.heads))
    for dtype in ("f32", "f16"):
        for word, direction in DIRECTIONS.items():
            build = partial(_attend, direction, sizes.heads, DTYPES[dtype])
            tolerance = 1e-3 if dtype == "f32" else 2e-2
            yield Case(group="attention", name=f"causal {dtype} {shape}, {word}", build=build, tolerance=tolerance)
    build = partial(_one_query, sizes.heads)
    name = f"f16 {shape}, 1 query of {KEYS} times as many keys"
    yield Case(group="attention", name=name, build=build, tolerance=2e-2)


def _attend(
    direction: Callable[..., Work], shape: tuple[int, int, int, int], dtype: torch.dtype, device: torch.device
) -> Work:
    function = partial(functional.scaled_dot_product_attention, is_causal=True)
    return attend(direction, shape, function, _computed(dtype, device), device)


def _one_query(shape: tuple[int, int, int, int], device: torch.device) -> Work:
    batch, heads, tokens, width = shape
    key_heads = max(heads // SHARING, 1)
    dtype = _computed(torch.float16, device)
    query = random(device, batch, heads, 1, width, dtype=dtype)
    key, value = (random(device, batch, key_heads, KEYS * tokens, width, dtype=dtype, index=index) for index in (1, 2))
    return forward(partial(functional.scaled_dot_product_attention, enable_gqa=True), (query, key, value))


def _training(network: Network, autocast: torch.dtype | None, device: torch.device) -> Work:
    return training(replace(network, autocast=None if device.type == "cpu" else autocast), device)


def _computed(dtype: torch.dtype, device: torch.device) -> torch.dtype:
    """Return the dtype in which a device computes a row. The CPU, which checks results, is slow in float16."""
    return torch.float32 if device.type == "cpu" else dtype


def _adam(parameters: int, device: torch.device) -> Work:
    weight = random(device, parameters).requires_grad_()
    weight.grad = random(device, parameters, index=1)
    optimizer = torch.optim.Adam([weight], lr=1e-3, fused=True)

    def run() -> tuple[torch.Tensor, ...]:
        optimizer.step()
        return weight.detach(), *(optimizer.state[weight][name] for name in ("exp_avg", "exp_avg_sq"))

    # It reads the gradient, and what it writes.
    return Work(run=run, reads=(weight.grad, *(weight.detach(),) * 3))


def _one_row(layer: tuple[int, int], dtype: torch.dtype, device: torch.device) -> Work:
    inputs, outputs = layer
    operands = random(device, 1, inputs, dtype=dtype), random(device, outputs, inputs, dtype=dtype, index=1)
    return forward(functional.linear, operands)


def _one_row_quantized(layer: tuple[int, int], bits: int, device: torch.device) -> Work:
    """Return the work of one row with codes; on another backend's device, of the same weight in float16."""
    inputs, outputs = layer
    x = random(device, 1, inputs, dtype=torch.float16)
    scales = random(device, outputs, inputs // GROUP, dtype=torch.float16, kind="positive", index=1)
    if bits == 8:
        codes = indices(device, 255, outputs, inputs).sub_(127).to(torch.int8)
    else:
        codes = indices(device, 256, outputs, inputs // 2).to(torch.uint8)
    if device.type != "opencl":
        values = codes if bits == 8 else torch.stack([codes & 15, codes >> 4], -1).to(torch.int8) - 8
        weight = (values.view(outputs, -1, GROUP) * scales.unsqueeze(-1)).view(outputs, inputs)
        return forward(functional.linear, (x, weight))
    from torch_opencl.quantized import QuantizedWeight  # noqa: PLC0415 - the other backend's process does without it

    bias = 0 if bits == 8 else 8
    packed = QuantizedWeight(codes, f"affine{bits}", (outputs, inputs), scales, group_size=GROUP, bias=bias)
    return Work(run=lambda: packed.linear(x), reads=(x, codes, scales))
