"""Shapes, layouts, dtypes and values to choose from."""

import math
from random import Random

import torch
from op_table import COMPLEX, DTYPES, FLOATING, INTEGRAL

from fuzz.case import Operand

ALL = DTYPES["all"]
REAL = (torch.bool, *INTEGRAL, *FLOATING)
SIZES = (0, 1, 1, 2, 3, 4, 5, 7, 8, 9, 16, 17, 33)
# From this many elements, most kernels have a variant for large tensors.
LARGE = 1 << 16


def shape(rng: Random, most_dims: int = 4, least_dims: int = 0) -> tuple[int, ...]:
    """Choose a shape.

    Args:
        rng: where choices come from.
        most_dims: how many dimensions there may be.
        least_dims: how many there must be.

    Returns:
        Few elements; seldom more than LARGE.
    """
    dims = rng.randint(least_dims, most_dims)
    if dims and rng.random() < 0.01:
        last = LARGE // 8 + rng.randint(0, 9)
        return (9, last) if dims > 1 else (9 * last,)
    sizes = [rng.choice(SIZES[1:] if rng.random() < 0.9 else SIZES) for _ in range(dims)]
    while math.prod(sizes) > 4000:
        sizes[sizes.index(max(sizes))] = 2
    return tuple(sizes)


def broadcastable(rng: Random, full: tuple[int, ...]) -> tuple[int, ...]:
    """Choose a shape that broadcasts to another.

    Args:
        rng: where choices come from.
        full: the other shape.

    Returns:
        The shape itself, or one with dimensions of size 1 or without leading dimensions.
    """
    if rng.random() < 0.6:
        return full
    kept = full[rng.randint(0, len(full)) :]
    return tuple(1 if rng.random() < 0.3 else size for size in kept)


def extremes(dtype: torch.dtype) -> list:
    """List values at which functions fail most often.

    Args:
        dtype: the dtype that must represent them.

    Returns:
        Real values, also used as parts of complex ones.
    """
    if dtype == torch.bool:
        return [True, False]
    if not (dtype.is_floating_point or dtype.is_complex):
        info = torch.iinfo(dtype)
        return [info.min, info.min + 1, info.max, info.max - 1, 0, 1, info.max // 2]
    info = torch.finfo(dtype)
    odd = [math.nan, math.inf, -math.inf, 0.0, -0.0, 1.0, -1.0, 0.5, 2.5, math.pi]
    return [*odd, info.max, -info.max, info.tiny, info.tiny / 4, info.eps, math.sqrt(info.max), 88.0, -104.0, 1e4]


def elements(rng: Random, sizes: tuple[int, ...], dtype: torch.dtype, special: float = 0.0) -> torch.Tensor:
    """Choose the elements of a tensor.

    Args:
        rng: where choices come from.
        sizes: its shape.
        dtype: its dtype.
        special: the probability of each element to be one of `extremes`.

    Returns:
        A contiguous tensor.
    """
    generator = torch.Generator().manual_seed(rng.getrandbits(48))
    if dtype == torch.bool:
        return torch.rand(sizes, generator=generator) < 0.5
    if dtype.is_floating_point or dtype.is_complex:
        wide = torch.complex128 if dtype.is_complex else torch.float64
        tensor = torch.randn(sizes, dtype=wide, generator=generator) * rng.choice((1, 1, 1, 5, 0.01))
        if rng.random() < 0.2:
            tensor = torch.view_as_real(tensor).round() if dtype.is_complex else tensor.round()
            tensor = torch.view_as_complex(tensor) if dtype.is_complex else tensor
        tensor = tensor.to(dtype)
    else:
        low = 0 if dtype == torch.uint8 else -rng.choice((3, 9, 100))
        tensor = torch.randint(low, rng.choice((4, 10, 100)), sizes, generator=generator).to(dtype)
    return sprinkled(rng, tensor, special)


def sprinkled(rng: Random, tensor: torch.Tensor, special: float) -> torch.Tensor:
    """Replace some elements by extreme values.

    Args:
        rng: where choices come from.
        tensor: a contiguous tensor.
        special: the probability of each element.

    Returns:
        The same tensor if the probability is 0, else a copy.
    """
    if special == 0 or tensor.numel() == 0 or tensor.numel() > LARGE // 4:
        return tensor
    tensor = tensor.clone()
    flat, choices = tensor.view(-1), extremes(tensor.dtype)
    # A few kinds at a time, so that one does not always hide another.
    choices = rng.sample(choices, rng.randint(1, min(4, len(choices))))
    for place in range(flat.numel()):
        if rng.random() < special:
            value = rng.choice(choices)
            if tensor.dtype.is_complex:
                value = complex(value, rng.choice([*choices, flat[place].imag.item()]))
            flat[place] = value
    return tensor


def laid_out(rng: Random, tensor: torch.Tensor, writable: bool = False) -> torch.Tensor:
    """Give a tensor another layout.

    Args:
        rng: where choices come from.
        tensor: a CPU tensor.
        writable: whether all elements must have separate memory.

    Returns:
        The same elements, except that an expanded tensor repeats its first ones: contiguous, permuted, sliced, with an
        offset, channels_last or expanded.
    """
    kind = rng.choice(("contiguous", "contiguous", "permuted", "sliced", "offset", "expanded", "channels_last"))
    if kind == "contiguous" or (tensor.numel() > LARGE // 4 and kind == "sliced"):
        return tensor.clone(memory_format=torch.contiguous_format)
    if kind == "permuted" and tensor.dim() > 1:
        order = rng.sample(range(tensor.dim()), tensor.dim())
        back = [order.index(dim) for dim in range(tensor.dim())]
        return tensor.permute(order).clone(memory_format=torch.contiguous_format).permute(back)
    if kind == "sliced" and tensor.dim():
        dim, step, first = rng.randrange(tensor.dim()), rng.randint(1, 3), rng.randint(0, 2)
        sizes = list(tensor.shape)
        sizes[dim] = first + sizes[dim] * step + rng.randint(0, 1)
        room = torch.ones(sizes, dtype=tensor.dtype)
        part = room[(slice(None),) * dim + (slice(first, first + tensor.shape[dim] * step, step),)]
        return part.copy_(tensor)
    if kind == "expanded" and tensor.dim() and not writable and tensor.numel():
        dims = [dim for dim in range(tensor.dim()) if rng.random() < 0.6]
        first = tensor
        for dim in dims:
            first = first.narrow(dim, 0, 1)
        return first.clone(memory_format=torch.contiguous_format).expand(tensor.shape)
    if kind == "channels_last" and tensor.dim() in (4, 5) and tensor.numel():
        form = torch.channels_last if tensor.dim() == 4 else torch.channels_last_3d
        return tensor.clone(memory_format=form)
    offset = rng.choice((1, 2, 3, 5, 8))
    room = torch.ones(tensor.numel() + offset, dtype=tensor.dtype)
    return room[offset:].view(tensor.shape).copy_(tensor)


def operand(
    rng: Random, sizes: tuple[int, ...], dtype: torch.dtype, special: float = 0.0, writable: bool = False
) -> Operand:
    """Make an operand.

    Args:
        rng: where choices come from.
        sizes: its shape.
        dtype: its dtype.
        special: the probability of each element to be extreme.
        writable: whether an operator may write to it.

    Returns:
        An operand with one of the layouts; if 0-d, it may stay on the CPU.
    """
    tensor = laid_out(rng, elements(rng, sizes, dtype, special), writable)
    view = "conj" if dtype.is_complex and rng.random() < 0.1 and not writable else ""
    return Operand(tensor, on_cpu=not sizes and not writable and rng.random() < 0.4, view=view)


def kind(rng: Random) -> tuple[torch.dtype, ...]:
    """Choose a group of dtypes.

    Args:
        rng: where choices come from.

    Returns:
        All dtypes, or the dtypes of one kind.
    """
    return rng.choice((ALL, REAL, FLOATING, FLOATING, INTEGRAL, COMPLEX))
