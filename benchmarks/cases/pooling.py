"""Pooling and interpolation of images."""

from collections.abc import Callable, Iterator
from functools import partial

import torch
from torch.nn import functional

from benchmarks.case import Case, Work
from benchmarks.inputs import DTYPES, backward, forward, random

SHAPE = (16, 64, 112, 112)
FUNCTIONS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "max_pool2d 3x3/2": lambda x: functional.max_pool2d(x, 3, 2, 1),
    "max_pool2d 2x2/2": lambda x: functional.max_pool2d(x, 2),
    "avg_pool2d 3x3/2": lambda x: functional.avg_pool2d(x, 3, 2, 1),
    "avg_pool2d 2x2/2": lambda x: functional.avg_pool2d(x, 2),
    "adaptive_avg_pool2d 1": lambda x: functional.adaptive_avg_pool2d(x, 1),
    "adaptive_avg_pool2d 7": lambda x: functional.adaptive_avg_pool2d(x, 7),
    "adaptive_max_pool2d 7": lambda x: functional.adaptive_max_pool2d(x, 7),
    "interpolate nearest x2": lambda x: functional.interpolate(x, scale_factor=2),
    "interpolate bilinear x2": lambda x: functional.interpolate(x, scale_factor=2, mode="bilinear"),
}
# (dtype, channels last)
KINDS = (("f32", False), ("f32", True), ("bf16", False))


def cases() -> Iterator[Case]:
    """Yield each function forward and backward, contiguous and channels-last."""
    for name, function in FUNCTIONS.items():
        for dtype, channels_last in KINDS:
            row = f"{name} {dtype}{' nhwc' if channels_last else ''}"
            for suffix, direction in (("", forward), (" backward", backward)):
                yield Case(
                    group="pooling",
                    name=row + suffix,
                    build=partial(_build, direction, function, DTYPES[dtype], channels_last),
                    tolerance={"f32": 1e-5, "bf16": 1.6e-2}[dtype],
                    quick=dtype == "f32" and not channels_last,
                )


def _build(
    direction: Callable[..., Work],
    function: Callable[[torch.Tensor], torch.Tensor],
    dtype: torch.dtype,
    channels_last: bool,
    device: torch.device,
) -> Work:
    x = random(device, *SHAPE, dtype=dtype)
    return direction(function, [x.to(memory_format=torch.channels_last) if channels_last else x])
