"""The number of parts into which a CPU divides a reduction with few results."""

import copy
from typing import Any

import sympy
import torch

# Work-items per compute unit of a divided reduction.
PARTS_PER_UNIT = 4
# Up to this many elements of all results together, one work-item is as fast.
UNDIVIDED_ELEMENTS = 1 << 16
# Columns of a task that sums columns (columns.py): COLUMNS, or LONG_COLUMNS for at least MANY elements, for which
# tasks take rows as long as fit their caches.
COLUMNS = 32
LONG_COLUMNS = 1024
MANY = 1 << 20
# The longest part: its sums have 64 accumulators (rows.py), whose rounding errors grow with its length.
LONGEST = 1 << 17


def choices(others: Any) -> Any:
    """Choose how CPU devices divide reductions: PyTorch's choice assumes thousands of threads.

    Args:
        others: the InductorChoices for all other choices.

    Returns:
        The InductorChoices with ours.
    """

    def reduction_split_factor(device: torch.device, length: int, results: int, inner_reduction: bool) -> int:
        properties = torch.opencl.get_device_properties(device) if device.type == "opencl" else None
        if properties is None or properties.device_class != "cpu":
            return others.reduction_split_factor(device, length, results, inner_reduction)
        columns = LONG_COLUMNS if length * results >= MANY else COLUMNS
        tasks = results if inner_reduction else -(-results // columns)
        return parts(length, results, tasks, properties.multi_processor_count)

    chosen = copy.copy(others)
    chosen.reduction_split_factor = reduction_split_factor
    return chosen


def parts(length: int, results: int, tasks: int, units: int) -> int:
    """Choose the number of parts.

    Args:
        length: elements of a result.
        results: the number of results.
        tasks: the number of tasks that share the results.
        units: compute units of the device.

    Returns:
        1 if there are enough tasks or little work; otherwise a divisor of the length, if one is near.
    """
    if tasks >= units or length * results <= UNDIVIDED_ELEMENTS:
        return 1
    wanted = max(-(-PARTS_PER_UNIT * units // tasks), -(-length // LONGEST))
    divisor = next((divisor for divisor in sympy.divisors(length) if divisor >= wanted), length)
    return divisor if divisor <= 2 * wanted else wanted
