"""Into how many parts a CPU divides a reduction with few results."""

import functools
from typing import Any

import sympy
import torch

# Work-items for each compute unit that a divided reduction has.
PARTS_PER_UNIT = 4
# Elements of all results together below which one work-item is as fast.
FEW = 1 << 16
# The longest part: its sums have 64 accumulators (rows.py), whose rounding errors grow with it.
LONGEST = 1 << 17


def install(module: Any) -> None:
    """Let CPU devices divide reductions by what they are: PyTorch counts on thousands of threads.

    Args:
        module: torch._inductor.choices.
    """
    choose = module.InductorChoices.reduction_split_factor

    @functools.wraps(choose)
    def reduction_split_factor(device: torch.device, length: int, results: int, *args: Any, **options: Any) -> int:
        properties = torch.opencl.get_device_properties(device) if device.type == "opencl" else None
        if properties is None or properties.device_class != "cpu":
            return choose(device, length, results, *args, **options)
        return parts(length, results, properties.multi_processor_count)

    module.InductorChoices.reduction_split_factor = staticmethod(reduction_split_factor)


def parts(length: int, results: int, units: int) -> int:
    """Choose the number of parts.

    Args:
        length: elements of a result.
        results: how many results there are.
        units: compute units of the device.

    Returns:
        1 where there are results or rows of memory enough, or little work; else a number that divides the length
        evenly, if one is near.
    """
    if results >= 2 * units or length * results <= FEW:
        return 1
    wanted = max(-(-PARTS_PER_UNIT * units // results), -(-length // LONGEST))
    divisor = next((divisor for divisor in sympy.divisors(length) if divisor >= wanted), length)
    return divisor if divisor <= 2 * wanted else wanted
