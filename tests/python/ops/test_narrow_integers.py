"""Integers of at most 32 bits, in tensors so large that kernels do not widen the arithmetic."""

import pytest
import torch


def numbers(dtype):
    """More elements than a generic kernel takes, including the limits of the dtype."""
    if dtype == torch.bool:
        return torch.rand(70_001) > 0.5
    ends = torch.iinfo(dtype)
    values = torch.randint(ends.min, ends.max, (70_001,), dtype=dtype)
    values[:4] = torch.tensor([ends.min, ends.max, 0, 1], dtype=dtype)
    return values


NARROW = {
    "add": lambda a, b: torch.add(a, b, alpha=3),
    "mul": torch.mul,
    "scalar": lambda a, b: a * 119 + b,
    "addcmul": lambda a, b: torch.addcmul(a, a, b, value=-3),
    "bitwise": lambda a, b: ~(a & b) ^ (a | 5),
    "compare": lambda a, b: torch.where(a > b, a, b * 2),
    "bounds": lambda a, b: torch.minimum(a.clamp(3, 100), b),
    "logical": lambda a, b: torch.logical_or(a == 7, b),
    "divide": lambda a, b: torch.div(a, b.clamp(1, 9), rounding_mode="floor"),
    "abs": lambda a, b: a.abs() + b.sgn(),
    "rows": lambda a, b: a[:65_536].view(256, 256).t() * b[:256],
    "cast": lambda a, b: a.float() + b.double(),
}


@pytest.mark.parametrize("op", NARROW)
@pytest.mark.parametrize("dtype", [torch.uint8, torch.int8, torch.int16, torch.int32], ids=str)
def test_large_tensors_of_narrow_integers_wrap_as_on_the_cpu(device, dtype, op):
    """Also with operands that begin between vectors."""
    torch.manual_seed(0)
    a, b = numbers(dtype), numbers(dtype)
    for other in (b, b.roll(1) > 0):
        for first in (0, 3):
            expected = NARROW[op](a[first:], other[first:].to(dtype) if op in {"bounds", "divide"} else other[first:])
            ours = a.to(device)[first:], other.to(device)[first:]
            got = NARROW[op](ours[0], ours[1].to(dtype) if op in {"bounds", "divide"} else ours[1])
            torch.testing.assert_close(got.cpu(), expected, rtol=0, atol=0)
