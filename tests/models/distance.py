"""The difference between tensors of two devices."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch


class WrongError(Exception):
    """A result that differs from the CPU's."""


def moved(value: Any, change: Callable[[torch.Tensor], torch.Tensor], but: Sequence[str] = ()) -> Any:
    """Copy inputs to a device or to another dtype.

    Args:
        value: tensors, and lists and mappings with tensors.
        change: makes the copy of a tensor.
        but: names in mappings that are not copied.

    Returns:
        The value with copies.
    """
    if isinstance(value, torch.Tensor):
        return change(value)
    if isinstance(value, dict):
        return {key: item if key in but else moved(item, change, but) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(moved(item, change, but) for item in value)
    return value


def wide(tensor: torch.Tensor) -> torch.Tensor:
    """Convert floats to float64.

    Args:
        tensor: a tensor of any dtype.

    Returns:
        The tensor itself if it has no floats.
    """
    return tensor.double() if tensor.is_floating_point() else tensor


def distance(ours: Iterable[torch.Tensor], theirs: Iterable[torch.Tensor]) -> float:
    """Compare tensors with the CPU's.

    Args:
        ours: tensors of the device.
        theirs: tensors of the CPU.

    Returns:
        The greatest difference of two elements, in units of the greatest element of that tensor, or of 1e-3 if that is
        smaller.

    Raises:
        WrongError: the number of tensors, shapes or integers differ.
    """
    ours, theirs = list(ours), list(theirs)
    if len(ours) != len(theirs):
        raise WrongError(f"{len(ours)} tensors instead of {len(theirs)}")
    worst = 0.0
    for index, (a, b) in enumerate(zip(map(_dense, ours), map(_dense, theirs), strict=True)):
        if a.shape != b.shape or a.dtype != b.dtype:
            raise WrongError(f"tensor {index} is {a.dtype} {list(a.shape)} instead of {b.dtype} {list(b.shape)}")
        if not b.is_floating_point() and not b.is_complex():
            if not torch.equal(a, b):
                raise WrongError(f"tensor {index}, of {b.dtype}, differs")
        elif b.numel() > 0:
            worst = max(worst, _distance(a, b))
    return worst


def _dense(tensor: torch.Tensor) -> torch.Tensor:
    on_host = tensor.detach().cpu()
    return on_host if on_host.layout == torch.strided else on_host.to_dense()


def _distance(a: torch.Tensor, b: torch.Tensor) -> float:
    same = (a == b) | (a.isnan() & b.isnan())
    difference = torch.where(same, 0, (a - b).abs())
    if not difference.isfinite().all():
        return float("inf")
    scale = b.abs().nan_to_num(0, 0, 0).max().clamp(min=1e-3)
    return (difference.max() / scale).item()
