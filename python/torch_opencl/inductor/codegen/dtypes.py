"""The types of OpenCL C in which tensors of a dtype are stored and computed."""

import math
from dataclasses import dataclass

import torch


@dataclass(frozen=True)
class Storage:
    """How elements are stored in memory.

    Attributes:
        name: suffix of the functions in compiled.cl that load and store them.
        pointer: the element type of pointers to them.
        compute: the type of their values.
    """

    name: str
    pointer: str
    compute: str


STORAGE = {
    torch.float32: Storage("float", "float", "float"),
    torch.float64: Storage("double", "double", "double"),
    torch.float16: Storage("half", "half", "float"),
    torch.bfloat16: Storage("bf16", "ushort", "float"),
    torch.int64: Storage("long", "long", "long"),
    torch.uint64: Storage("ulong", "ulong", "ulong"),
    torch.int32: Storage("int", "int", "int"),
    torch.uint32: Storage("uint", "uint", "uint"),
    torch.int16: Storage("short", "short", "int"),
    torch.uint16: Storage("ushort", "ushort", "int"),
    torch.int8: Storage("char", "char", "int"),
    torch.uint8: Storage("uchar", "uchar", "int"),
    torch.bool: Storage("bool", "uchar", "int"),
}

# Values of these are computed as int, and wrapped after each operation that may leave their range.
NARROW = {torch.int8, torch.uint8, torch.int16, torch.uint16}
# Their values are float32, except where a graph requires the rounding.
HALVES = {torch.float16, torch.bfloat16}


def compute_type(dtype: torch.dtype) -> str:
    """The scalar type of OpenCL C for values of a dtype."""
    return STORAGE[dtype].compute


def literal(value: float | int | bool, dtype: torch.dtype) -> str:
    """A Python number as a constant of the type that a dtype is computed in."""
    if dtype == torch.bool:
        return str(int(bool(value)))
    kind = compute_type(dtype)
    if kind in ("float", "double"):
        return _floating(float(value), kind)
    if isinstance(value, float) and math.isinf(value):
        limits = torch.iinfo(dtype)
        value = limits.max if value > 0 else limits.min
    value = int(value)
    if kind == "long":
        return "LONG_MIN" if value == -(2**63) else f"{value}L"
    if kind == "ulong":
        return f"{value % 2**64}UL"
    if kind == "uint":
        return f"{value % 2**32}U"
    return "INT_MIN" if value == -(2**31) else str(value)


def _floating(value: float, kind: str) -> str:
    if math.isnan(value):
        return f"(({kind})NAN)"
    if math.isinf(value):
        return f"(({kind}){'-' if value < 0 else ''}INFINITY)"
    # Hexadecimal, which is exact; values out of range of a float become infinite.
    if kind == "float":
        try:
            value = torch.tensor(value, dtype=torch.float32).item()
        except (OverflowError, RuntimeError):
            return f"((float){'-' if value < 0 else ''}INFINITY)"
        if math.isinf(value):
            return f"((float){'-' if value < 0 else ''}INFINITY)"
    text = value.hex()
    text = f"({text}f)" if kind == "float" else f"({text})"
    return text
