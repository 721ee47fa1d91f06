"""Random inputs, the same on every device."""

from collections.abc import Callable, Sequence
from functools import lru_cache

import torch

from benchmarks.case import Work

DTYPES = {
    "f32": torch.float32,
    "bf16": torch.bfloat16,
    "f16": torch.float16,
    "f64": torch.float64,
    "i64": torch.int64,
    "bool": torch.bool,
}


@lru_cache(maxsize=12)
def _numbers(kind: str, dtype: torch.dtype, index: int, shape: tuple[int, ...]) -> torch.Tensor:
    generator = torch.Generator().manual_seed(index)
    if kind == "mask" or dtype == torch.bool:
        return torch.rand(shape, generator=generator) < 0.5
    if not dtype.is_floating_point:
        # Neither 0, for divisions, nor so large that products wrap.
        return torch.randint(1, 100, shape, generator=generator).to(dtype)
    if kind == "normal":
        return torch.randn(shape, generator=generator).to(dtype)
    return torch.rand(shape, generator=generator).add_(0.5).to(dtype)


def random(
    device: torch.device, *shape: int, dtype: torch.dtype = torch.float32, kind: str = "normal", index: int = 0
) -> torch.Tensor:
    """Return random values, which the caller may overwrite.

    Args:
        device: of the tensor.
        shape: of the tensor.
        dtype: of the tensor. Integers are from 1 to 99.
        kind: "normal", "positive" (from 0.5 to 1.5) or "mask" (bool for any dtype).
        index: the index of the sequence of such values; operands of the same work use different ones.

    Returns:
        A dense tensor.
    """
    return _numbers(kind, dtype, index, shape).to(device, copy=True)


def indices(device: torch.device, bound: int, *shape: int, index: int = 0) -> torch.Tensor:
    """Return random indices below a bound, int64."""
    return torch.randint(bound, shape, generator=torch.Generator().manual_seed(index)).to(device)


def forward(function: Callable[..., torch.Tensor], operands: Sequence[torch.Tensor]) -> Work:
    """Return the work of applying a function to tensors, all of which it reads."""
    return Work(run=lambda: function(*operands), reads=operands)


def backward(
    function: Callable[..., torch.Tensor], operands: Sequence[torch.Tensor], wanted: Sequence[int] | None = None
) -> Work:
    """Return the work of a function's backward pass alone.

    Args:
        function: the function.
        operands: its arguments.
        wanted: the operands whose gradients are computed, all by default.
    """
    wanted = range(len(operands)) if wanted is None else wanted
    inputs = [operands[index].requires_grad_() for index in wanted]
    output = function(*operands)
    gradient = random(output.device, *output.shape, dtype=output.dtype, index=99)
    if output.is_contiguous(memory_format=torch.channels_last) and output.dim() == 4:
        gradient = gradient.to(memory_format=torch.channels_last)

    def run() -> Sequence[torch.Tensor]:
        return torch.autograd.grad(output, inputs, gradient, retain_graph=True)

    return Work(run=run, reads=(gradient, *operands))
