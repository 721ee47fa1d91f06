"""Cases of ``torch.compile``: eager mode on the device, compiled for the device, and Inductor's C++."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

import torch
from torch import nn
from torch.nn import functional

from benchmarks import models, recent_models
from benchmarks.case import Work
from benchmarks.inputs import indices, random

# Takes a function and returns the one to measure in its place: torch.compile, or the identity.
Compile = Callable[[Callable], Callable]


@dataclass(frozen=True, kw_only=True)
class CompiledCase:
    """One row.

    Attributes:
        group: the rows with the same targets; see :data:`benchmarks.targets.COMPILED`.
        name: its name, which selects it on the command line.
        build: prepares the work on a device, with the function that compiles it.
        tolerance: the allowed difference from the CPU's result, as a part of the largest value in it.
        eager: the least ratio to eager mode, if it differs from the group's.
        quick: whether ``--quick`` measures it.
    """

    group: str
    name: str
    build: Callable[[torch.device, Compile], Work]
    tolerance: float = 1e-4
    eager: float | None = None
    quick: bool = False


SQUARE = (2048, 2048)
# name: the function, and its number of matrices of 4 M elements
CHAINS: dict[str, tuple[Callable[..., torch.Tensor], int]] = {
    "gelu(x * w + b) + r": (lambda x, w, b, r: functional.gelu(x * w + b) + r, 4),
    "tanh(x * w + b) * sigmoid(r)": (lambda x, w, b, r: torch.tanh(x * w + b) * torch.sigmoid(r), 4),
    "silu(x) * y + r": (lambda x, y, r: functional.silu(x) * y + r, 3),
    "relu(x + y) * w": (lambda x, y, w: torch.relu(x + y) * w, 3),
    "sqrt(x * x + y * y + 1)": (lambda x, y: torch.sqrt(x * x + y * y + 1), 2),
    "where(x > 0, x, exp(x) - 1) * y": (lambda x, y: torch.where(x > 0, x, torch.exp(x) - 1) * y, 2),
    "lerp, then x / (sqrt + eps)": (
        lambda x, g, v: x - 0.1 * g / (torch.sqrt(torch.lerp(v * v, g * g, 0.1)) + 1e-8),
        3,
    ),
    "clamp, scale, round": (lambda x: torch.round(x.clamp(-2, 2) * 63.5) / 63.5, 1),
}
ROWS = (4096, 1024)
# name: the function, and its number of additional vectors of a row's length
NORMS: dict[str, tuple[Callable[..., torch.Tensor], int]] = {
    "softmax": (lambda x: x.softmax(-1), 0),
    "layer_norm": (lambda x, w, b: functional.layer_norm(x, x.shape[-1:], w, b), 2),
    "rms_norm": (lambda x, w: functional.rms_norm(x, x.shape[-1:], w), 1),
}
SUMS: dict[str, tuple[Callable[..., torch.Tensor], int]] = {
    "sum of columns": (lambda x: x.sum(0), 1),
    "sum of rows": (lambda x: x.sum(1), 1),
    "sum of squares": (lambda x: (x * x).sum(), 1),
    "transposed add": (lambda x, y: x + y.t(), 2),
}
QUICK = {"gelu(x * w + b) + r", "tanh(x * w + b) * sigmoid(r)", "softmax", "layer_norm", "sum of columns"}


def cases() -> Iterator[CompiledCase]:
    """Yield every row, group by group."""
    for name, (function, count) in CHAINS.items():
        shapes = [SQUARE] * count
        yield _function("compiled-chain", f"{name} f32", function, shapes, quick=name in QUICK)
    function, count = CHAINS["silu(x) * y + r"]
    yield _function("compiled-chain", "silu(x) * y + r bf16", function, [SQUARE] * count, dtype=torch.bfloat16)
    for name, (function, count) in NORMS.items():
        shapes = [ROWS] + [ROWS[1:]] * count
        for suffix, build in (("", _forward), (", forward and backward", _forward_and_backward)):
            yield _function("compiled-norm", f"{name}{suffix} f32", function, shapes, quick=name in QUICK, build=build)
    for name, (function, count) in SUMS.items():
        yield _function("compiled-sum", f"{name} f32", function, [SQUARE] * count, quick=name in QUICK)
    for name, build, eager in NETWORKS:
        quick = name.startswith("GPT")
        yield CompiledCase(group="compiled-model", name=name, build=build, tolerance=2e-3, eager=eager, quick=quick)


def select(words: Sequence[str], quick: bool = False) -> list[CompiledCase]:
    """Return the rows whose group or name is, or begins with, one of the words; none for all rows."""
    return [
        case
        for case in cases()
        if (case.quick or not quick)
        and (not words or any(case.name.startswith(word) or case.group == word for word in words))
    ]


def _function(
    group: str,
    name: str,
    function: Callable[..., torch.Tensor],
    shapes: Sequence[tuple[int, ...]],
    *,
    dtype: torch.dtype = torch.float32,
    quick: bool = False,
    build: Callable[..., Work] | None = None,
) -> CompiledCase:
    return CompiledCase(
        group=group,
        name=name,
        build=partial(build or _forward, function, shapes, dtype),
        tolerance=1e-4 if dtype == torch.float32 else 3e-2,
        quick=quick,
    )


def _forward(
    function: Callable, shapes: Sequence[tuple[int, ...]], dtype: torch.dtype, device: torch.device, compiled: Compile
) -> Work:
    operands = [random(device, *shape, dtype=dtype, index=index) for index, shape in enumerate(shapes)]
    call = compiled(function)
    return Work(run=lambda: call(*operands))


def _forward_and_backward(
    function: Callable, shapes: Sequence[tuple[int, ...]], dtype: torch.dtype, device: torch.device, compiled: Compile
) -> Work:
    operands = [random(device, *shape, dtype=dtype, index=i).requires_grad_() for i, shape in enumerate(shapes)]
    gradient = random(device, *shapes[0], dtype=dtype, index=99)
    call = compiled(function)
    return Work(run=lambda: torch.autograd.grad(call(*operands), operands, gradient))


# --- networks


def _inference(make: Callable[[], nn.Module], shape: tuple[int, ...], device: torch.device, compiled: Compile) -> Work:
    model, x = make().eval().to(device), random(device, *shape)
    call = compiled(model)

    def run() -> torch.Tensor:
        with torch.no_grad():
            return call(x)

    return Work(run=run)


def _text(vocabulary: int, *shape: int) -> Callable[[torch.device], tuple[torch.Tensor, torch.Tensor]]:
    return lambda device: (indices(device, vocabulary, *shape), indices(device, vocabulary, *shape, index=1).view(-1))


def _images(classes: int, *shape: int) -> Callable[[torch.device], tuple[torch.Tensor, torch.Tensor]]:
    return lambda device: (random(device, *shape), indices(device, classes, shape[0], index=1))


def _training(
    make: Callable[[], nn.Module],
    batch: Callable[[torch.device], tuple[torch.Tensor, torch.Tensor]],
    device: torch.device,
    compiled: Compile,
) -> Work:
    model = make().to(device)
    x, labels = batch(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)

    def loss_of(x: torch.Tensor) -> torch.Tensor:
        # A language model has an output for every token.
        return functional.cross_entropy(model(x).view(len(labels), -1), labels)

    call = compiled(loss_of)

    def run() -> torch.Tensor:
        optimizer.zero_grad()
        loss = call(x)
        loss.backward()
        optimizer.step()
        return loss.detach()

    return Work(run=run)


VOCABULARY = 2048


def gpt(layers: int = 4) -> nn.Module:
    """Return a language model with the layers of GPT-2, 256 wide."""
    return models.Decoder(vocabulary=VOCABULARY, tokens=128, width=256, layers=layers, heads=4)


# name, the function that builds it, the least ratio to eager mode
NETWORKS: tuple[tuple[str, Callable[[torch.device, Compile], Work], float], ...] = (
    ("GPT-like 4x128 training step", partial(_training, gpt, _text(VOCABULARY, 4, 128)), 1.05),
    (
        "RMS norm, rotary, SwiGLU 4x128 training step",
        partial(_training, partial(recent_models.RotaryDecoder, VOCABULARY), _text(VOCABULARY, 4, 128)),
        1.3,
    ),
    ("ResNet-18 8x3x64x64 training step", partial(_training, models.resnet18, _images(1000, 8, 3, 64, 64)), 1.1),
    ("ConvNeXt 2x3x128x128 inference", partial(_inference, recent_models.convnext, (2, 3, 128, 128)), 1.1),
    ("ViT 2x3x224x224 inference", partial(_inference, recent_models.VisionTransformer, (2, 3, 224, 224)), 1.1),
    ("gated convolutions of audio 2x16000 inference", partial(_inference, recent_models.AudioNet, (2, 1, 16000)), 1.1),
)
