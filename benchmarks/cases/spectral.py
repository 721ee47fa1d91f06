"""Fourier transforms of a million elements, and some whose length is not a power of two."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial

import torch

from benchmarks.case import Case, Work
from benchmarks.inputs import forward, random


@dataclass(frozen=True)
class Transform:
    """A transform and its input.

    Attributes:
        name: of the row.
        shape: of the input.
        function: the transform.
        is_complex: whether the input is complex64; otherwise it is float32.
        quick: ``--quick`` measures it.
    """

    name: str
    shape: tuple[int, ...]
    function: Callable[[torch.Tensor], torch.Tensor]
    is_complex: bool = True
    quick: bool = False


def _ortho(x: torch.Tensor) -> torch.Tensor:
    return torch.fft.fft(x, norm="ortho")


def _stft(x: torch.Tensor) -> torch.Tensor:
    return torch.stft(x, 400, 160, window=torch.ones(400, device=x.device), return_complex=True)


TRANSFORMS = (
    Transform("fft short rows c64", (16384, 64), _ortho),
    Transform("fft rows c64", (1024, 1024), _ortho, quick=True),
    Transform("fft columns c64", (1024, 1024), lambda x: torch.fft.fft(x, dim=0)),
    Transform("fft all c64", (1, 1 << 20), _ortho, quick=True),
    Transform("fft2 c64", (1024, 1024), torch.fft.fft2),
    Transform("fft rows of 1000 c64", (1024, 1000), _ortho),
    Transform("fft rows of 1021 c64", (1024, 1021), _ortho),
    Transform("rfft rows f32", (1024, 1024), torch.fft.rfft, is_complex=False),
    Transform("rfft all f32", (1, 1 << 20), torch.fft.rfft, is_complex=False),
    Transform("irfft rows c64", (1024, 513), torch.fft.irfft),
    Transform("irfft all c64", (1, (1 << 19) + 1), torch.fft.irfft),
    Transform("stft f32", (8, 160000), _stft, is_complex=False),
)


def cases() -> Iterator[Case]:
    """Yield each transform."""
    for row in TRANSFORMS:
        yield Case(group="fft", name=row.name, build=partial(_build, row), tolerance=1e-4, quick=row.quick)


def _build(row: Transform, device: torch.device) -> Work:
    if not row.is_complex:
        return forward(row.function, [random(device, *row.shape)])
    return forward(row.function, [torch.view_as_complex(random(device, *row.shape, 2))])
