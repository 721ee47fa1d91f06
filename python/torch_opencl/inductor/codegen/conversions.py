"""Conversions of values between dtypes."""

import torch

from .dtypes import HALVES, NARROW, STORAGE, compute_type
from .statements import Value


def promoted(args: tuple[object, ...]) -> torch.dtype:
    """The promoted dtype of some values; Python numbers are ignored."""
    dtypes = [arg.dtype for arg in args if isinstance(arg, Value)]
    dtype = dtypes[0]
    for other in dtypes[1:]:
        dtype = torch.promote_types(dtype, other)
    return dtype


def converted(text: str, source: torch.dtype, target: torch.dtype, wide: int) -> str:
    """A value converted to another dtype.

    Args:
        text: the value, an expression that needs no parentheses.
        source: its dtype.
        target: the other dtype.
        wide: lanes.

    Returns:
        An expression.
    """
    if (
        source == target
        or (target in HALVES and source == torch.float32)
        or (source in HALVES and target == torch.float32)
    ):
        return text
    suffix = str(wide) if wide > 1 else ""
    ours, theirs = compute_type(source), compute_type(target)
    if target == torch.bool:
        test = f"({text} != 0)"
        return f"convert_int{suffix}{test}" if wide > 1 and ours in ("long", "ulong", "double") else test
    if source == torch.bool:
        bit = f"({text} & 1)" if wide > 1 else text
        return bit if theirs == "int" else f"convert_{theirs}{suffix}({bit})"
    if target in NARROW:
        whole = text if ours == "int" else f"convert_int{suffix}({_whole(text, ours, suffix)})"
        return f"wrap_{STORAGE[target].name}{suffix}({whole})"
    if ours == theirs:
        return text
    if theirs in ("int", "uint", "ulong"):
        text = _whole(text, ours, suffix)
    return f"convert_{theirs}{suffix}({text})"


def _whole(text: str, kind: str, suffix: str) -> str:
    """Floating values as longs: values that do not fit a narrower type are converted through long."""
    return f"convert_long{suffix}({text})" if kind in ("float", "double") else text
