"""Convolutions: forward, and the gradients of the input and of the weight."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial

import torch
from torch.nn import functional
from torch.utils.flop_counter import FlopCounterMode

from benchmarks.case import Case, Work
from benchmarks.inputs import DTYPES, backward, forward, random

BATCH = 8
TOLERANCES = {"f32": 1e-4, "bf16": 3e-2}


@dataclass(frozen=True)
class Shape:
    """A convolution of square images; padded so that a stride of 1 keeps their size."""

    inputs: int
    outputs: int
    kernel: int
    stride: int
    side: int
    groups: int = 1
    batch: int = BATCH

    def __str__(self) -> str:
        groups = f" groups {self.groups}" if self.groups > 1 else ""
        batch = f" batch {self.batch}" if self.batch != BATCH else ""
        return f"{self.kernel}x{self.kernel}/{self.stride} {self.inputs}-{self.outputs} {self.side}{groups}{batch}"


RESNET50 = (
    Shape(3, 64, 7, 2, 224),
    Shape(64, 64, 1, 1, 56),
    Shape(64, 64, 3, 1, 56),
    Shape(64, 256, 1, 1, 56),
    Shape(256, 64, 1, 1, 56),
    Shape(256, 128, 1, 1, 56),
    Shape(128, 128, 3, 2, 56),
    Shape(128, 512, 1, 1, 28),
    Shape(256, 512, 1, 2, 56),
    Shape(512, 128, 1, 1, 28),
    Shape(128, 128, 3, 1, 28),
    Shape(512, 256, 1, 1, 28),
    Shape(256, 256, 3, 2, 28),
    Shape(256, 1024, 1, 1, 14),
    Shape(512, 1024, 1, 2, 28),
    Shape(1024, 256, 1, 1, 14),
    Shape(256, 256, 3, 1, 14),
    Shape(1024, 512, 1, 1, 14),
    Shape(512, 512, 3, 2, 14),
    Shape(512, 2048, 1, 1, 7),
    Shape(1024, 2048, 1, 2, 14),
    Shape(2048, 512, 1, 1, 7),
    Shape(512, 512, 3, 1, 7),
)
OTHERS = (
    Shape(64, 64, 3, 1, 56, groups=64),
    Shape(96, 96, 3, 2, 112, groups=96),
    Shape(960, 960, 3, 1, 7, groups=960),
    Shape(128, 128, 3, 1, 28, groups=32),
    Shape(64, 64, 5, 1, 28),
    Shape(1, 32, 3, 1, 28, batch=64),
    Shape(64, 64, 3, 1, 56, batch=1),
)
QUICK = (RESNET50[0], RESNET50[2], RESNET50[6], RESNET50[17], OTHERS[0])
# name: the operands whose gradients are computed
GRADIENTS = {"input": (0,), "weight": (1,)}
# Other kinds of convolutions. name: the function, the shapes of input and weight
MORE: dict[str, tuple[Callable[..., torch.Tensor], tuple[int, ...], tuple[int, ...]]] = {
    "1d 256-256 k3 1024": (partial(functional.conv1d, padding=1), (BATCH, 256, 1024), (256, 256, 3)),
    "3d 32-32 k3 16": (partial(functional.conv3d, padding=1), (BATCH, 32, 16, 16, 16), (32, 32, 3, 3, 3)),
    "dilated 64-64 k3 56": (partial(functional.conv2d, padding=2, dilation=2), (BATCH, 64, 56, 56), (64, 64, 3, 3)),
    "transposed 128-64 k4/2 28": (
        partial(functional.conv_transpose2d, stride=2, padding=1),
        (BATCH, 128, 28, 28),
        (128, 64, 4, 4),
    ),
}


def cases() -> Iterator[Case]:
    """Yield ResNet-50's layers and others, contiguous and channels-last, in all three directions."""
    for shape in RESNET50 + OTHERS:
        for format_name, memory_format in (("", torch.contiguous_format), (" nhwc", torch.channels_last)):
            yield from _directions(
                f"{shape}{format_name}", partial(_operands, shape, memory_format), _conv(shape), "f32"
            )
    for shape in QUICK:
        yield from _directions(f"{shape}", partial(_operands, shape, torch.contiguous_format), _conv(shape), "bf16")
    for name, (function, x, weight) in MORE.items():
        yield from _directions(name, partial(_random, x, weight, torch.contiguous_format), function, "f32")


def _directions(name: str, operands: partial, function: Callable, dtype: str) -> Iterator[Case]:
    quick = dtype == "f32" and name in map(str, QUICK)
    operands, tolerance = partial(operands, DTYPES[dtype]), TOLERANCES[dtype]
    build = partial(_forward, function, operands)
    yield Case(group="conv", name=f"{name} {dtype}", build=build, tolerance=tolerance, quick=quick)
    for gradient, wanted in GRADIENTS.items():
        build, row = partial(_backward, function, operands, wanted), f"{name} {dtype} {gradient}"
        yield Case(group="conv-backward", name=row, build=build, tolerance=tolerance, quick=quick)


def _conv(shape: Shape) -> Callable[..., torch.Tensor]:
    return partial(functional.conv2d, stride=shape.stride, padding=shape.kernel // 2, groups=shape.groups)


def _forward(function: Callable, operands: Callable, device: torch.device) -> Work:
    return forward(function, operands(device))


def _backward(function: Callable, operands: Callable, wanted: tuple[int, ...], device: torch.device) -> Work:
    operands = operands(device)
    with FlopCounterMode(display=False) as counter:
        function(*operands)
    # A gradient takes as many operations as the result. PyTorch's count for gradients ignores groups.
    return replace(backward(function, operands, wanted), flops=counter.get_total_flops())


def _operands(
    shape: Shape, memory_format: torch.memory_format, dtype: torch.dtype, device: torch.device
) -> list[torch.Tensor]:
    x = (shape.batch, shape.inputs, shape.side, shape.side)
    weight = (shape.outputs, shape.inputs // shape.groups, shape.kernel, shape.kernel)
    return _random(x, weight, memory_format, dtype, device)


def _random(
    x: tuple[int, ...],
    weight: tuple[int, ...],
    memory_format: torch.memory_format,
    dtype: torch.dtype,
    device: torch.device,
) -> list[torch.Tensor]:
    both = (random(device, *shape, dtype=dtype, index=index) for index, shape in enumerate((x, weight)))
    return [tensor.contiguous(memory_format=memory_format) for tensor in both]
