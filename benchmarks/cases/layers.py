"""Layers and losses that are in no other file."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial

import torch
from torch.nn import functional

from benchmarks.case import Case, Work
from benchmarks.inputs import backward, forward, indices, random


@dataclass(frozen=True)
class Layer:
    """A function of float32 tensors, the first of which may get a gradient.

    Attributes:
        function: the function to measure.
        shapes: of its inputs.
        has_backward: its backward pass has a row as well.
    """

    function: Callable[..., torch.Tensor]
    shapes: tuple[tuple[int, ...], ...]
    has_backward: bool = False


def _sample(x: torch.Tensor, grid: torch.Tensor) -> torch.Tensor:
    return functional.grid_sample(x, grid, align_corners=False)


def _ctc_loss(x: torch.Tensor) -> torch.Tensor:
    targets = indices(x.device, x.size(2) - 1, x.size(1), 60) + 1
    return functional.ctc_loss(x, targets, [x.size(0)] * x.size(1), [60] * x.size(1))


def _segments(x: torch.Tensor) -> torch.Tensor:
    return torch.segment_reduce(x, "sum", lengths=torch.full((x.size(0) // 64,), 64, device=x.device))


def _complex(function: Callable[..., torch.Tensor]) -> Layer:
    """A function of 2^18 complex values, which returns the real and imaginary parts of its result."""
    return Layer(lambda x: torch.view_as_real(function(torch.view_as_complex(x))), ((1 << 18, 2),))


LAYERS = {
    "adaptive_avg_pool3d": Layer(lambda x: functional.adaptive_avg_pool3d(x, 8), ((2, 8, 32, 32, 32),), True),
    "avg_pool1d": Layer(lambda x: functional.avg_pool1d(x, 3, 2), ((16, 64, 4096),), True),
    "cdist p=1": Layer(partial(torch.cdist, p=1.0), ((1024, 64), (1024, 64))),
    "complex exp": _complex(torch.exp),
    "complex reciprocal": _complex(torch.reciprocal),
    "complex tanh": _complex(torch.tanh),
    "ctc_loss": Layer(_ctc_loss, ((256, 32, 64),), True),
    "fractional_max_pool2d": Layer(
        lambda x, s: functional.fractional_max_pool2d(x, 3, output_size=64, _random_samples=s.sigmoid()),
        ((8, 16, 128, 128), (8, 16, 2)),
    ),
    "grid_sample": Layer(_sample, ((4, 16, 128, 128), (4, 128, 128, 2)), True),
    "interpolate linear": Layer(
        lambda x: functional.interpolate(x, scale_factor=2, mode="linear"), ((8, 16, 8192),), True
    ),
    "local_response_norm": Layer(lambda x: functional.local_response_norm(x, 3), ((4, 16, 128, 128),)),
    "max_pool1d": Layer(lambda x: functional.max_pool1d(x, 3, 2), ((16, 64, 4096),), True),
    "max_pool3d": Layer(lambda x: functional.max_pool3d(x, 2), ((2, 16, 32, 64, 64),), True),
    "pdist": Layer(functional.pdist, ((1024, 64),)),
    "reflection_pad1d": Layer(lambda x: functional.pad(x, (200, 200), mode="reflect"), ((4, 8, 32000),), True),
    "reflection_pad2d": Layer(lambda x: functional.pad(x, (3,) * 4, mode="reflect"), ((4, 16, 128, 128),), True),
    "replication_pad1d": Layer(lambda x: functional.pad(x, (200, 200), mode="replicate"), ((4, 8, 32000),), True),
    "replication_pad3d": Layer(lambda x: functional.pad(x, (2,) * 6, mode="replicate"), ((2, 8, 32, 32, 32),), True),
    "segment_reduce": Layer(_segments, ((1 << 20,),)),
}


QUICK = {"grid_sample", "reflection_pad2d"}


def cases() -> Iterator[Case]:
    """Yield each layer, and the backward passes of some."""
    for name, layer in LAYERS.items():
        build = partial(_build, layer, forward)
        yield Case(group="layer", name=f"{name} f32", build=build, quick=name in QUICK)
        if layer.has_backward:
            yield Case(group="layer", name=f"{name} backward f32", build=partial(_build, layer, _backward))


def _backward(function: Callable[..., torch.Tensor], operands: list[torch.Tensor]) -> Work:
    return backward(function, operands, wanted=[0])


def _build(layer: Layer, direction: Callable[..., Work], device: torch.device) -> Work:
    return direction(layer.function, [random(device, *shape, index=i) for i, shape in enumerate(layer.shapes)])
