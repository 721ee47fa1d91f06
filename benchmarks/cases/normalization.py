"""Softmax and the normalizations, forward and backward."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial

import torch
from torch.nn import functional

from benchmarks.case import Case, Work
from benchmarks.inputs import DTYPES, backward, forward, indices, random


@dataclass(frozen=True)
class Layer:
    """A normalization and its input.

    Attributes:
        name: the row's name.
        shape: of the input.
        function: of the input and, if there are parameters, of a weight and a bias.
        parameters: the length of weight and bias; 0 without them.
        channels_last: whether the input is channels-last.
        dtypes: the dtypes to measure.
        tolerances: for each dtype, as a part of the largest value in a result; gradients are sums of many values.
    """

    name: str
    shape: tuple[int, ...]
    function: Callable[..., torch.Tensor]
    parameters: int = 0
    channels_last: bool = False
    dtypes: tuple[str, ...] = ("f32", "bf16")
    tolerances: tuple[float, ...] = (1e-4, 3e-2)


def _softmax(dim: int) -> Callable[..., torch.Tensor]:
    return partial(functional.softmax, dim=dim)


def _layer_norm(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
    return functional.layer_norm(x, weight.shape, weight, bias)


def _batch_norm(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
    return functional.batch_norm(x, None, None, weight, bias, training=True)


def _batch_norm_eval(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
    return functional.batch_norm(x, bias.detach(), weight.detach(), weight, bias)


FEATURES = (8192, 768)
# The CPU sums the gradients of layer_norm's parameters in bf16, with an error of a seventh.
ROUGH = (1e-4, 0.2)
IMAGES = (32, 64, 56, 56)
SOFTMAX = (
    Layer("softmax rows 4096x1024", (4096, 1024), _softmax(1)),
    Layer("softmax columns 1024x4096", (1024, 4096), _softmax(0)),
    Layer("softmax attention 8x12x256x256", (8, 12, 256, 256), _softmax(3)),
    Layer("softmax short rows 65536x64", (65536, 64), _softmax(1)),
    Layer("softmax classes 65536x10", (65536, 10), _softmax(1)),
    Layer("softmax vocabulary 64x50257", (64, 50257), _softmax(1)),
    Layer("softmax pixels 8x21x256x256", (8, 21, 256, 256), _softmax(1)),
    Layer("log_softmax rows 4096x1024", (4096, 1024), partial(functional.log_softmax, dim=1)),
)
NORMS = (
    Layer("layer_norm", FEATURES, _layer_norm, 768, tolerances=ROUGH),
    Layer("layer_norm short", (65536, 64), _layer_norm, 64, tolerances=ROUGH),
    Layer("rms_norm", FEATURES, lambda x, w, b: functional.rms_norm(x, w.shape, w) + b, 768),
    Layer("group_norm", IMAGES, lambda x, w, b: functional.group_norm(x, 32, w, b), 64),
    Layer("batch_norm", IMAGES, _batch_norm, 64),
    Layer("batch_norm nhwc", IMAGES, _batch_norm, 64, channels_last=True, dtypes=("f32",)),
    Layer("batch_norm small", (32, 512, 7, 7), _batch_norm, 512),
    Layer("batch_norm 1d", (8192, 512), _batch_norm, 512),
    Layer("batch_norm eval", IMAGES, _batch_norm_eval, 64),
)
DIRECTIONS = {"": forward, " backward": backward}
VOCABULARY, TEXT = 50257, 128


def cases() -> Iterator[Case]:
    """Yield every layer, forward and backward, and cross entropy."""
    for group, layers in (("softmax", SOFTMAX), ("norm", NORMS)):
        for layer in layers:
            for dtype, tolerance in zip(layer.dtypes, layer.tolerances, strict=False):
                for suffix, direction in DIRECTIONS.items():
                    yield Case(
                        group=group,
                        name=f"{layer.name} {dtype}{suffix}",
                        build=partial(_build, layer, direction, DTYPES[dtype]),
                        tolerance=tolerance,
                        quick=dtype == "f32",
                    )
    yield Case(group="softmax", name="cross_entropy f32", build=_cross_entropy, tolerance=1e-5)
    yield Case(group="softmax", name="cross_entropy f32 backward", build=_cross_entropy_backward)


def _build(layer: Layer, direction: Callable[..., Work], dtype: torch.dtype, device: torch.device) -> Work:
    x = random(device, *layer.shape, dtype=dtype)
    if layer.channels_last:
        x = x.to(memory_format=torch.channels_last)
    if not layer.parameters:
        return direction(layer.function, [x])
    both = (random(device, layer.parameters, dtype=dtype, kind="positive", index=index) for index in (1, 2))
    return direction(layer.function, (x, *both))


def _cross_entropy(device: torch.device) -> Work:
    return forward(functional.cross_entropy, (random(device, TEXT, VOCABULARY), indices(device, VOCABULARY, TEXT)))


def _cross_entropy_backward(device: torch.device) -> Work:
    operands = random(device, TEXT, VOCABULARY), indices(device, VOCABULARY, TEXT)
    return backward(functional.cross_entropy, operands, wanted=(0,))
