"""Comparisons of strides that depend on dynamic sizes."""

import functools
from typing import Any

from torch.utils._sympy.value_ranges import ValueRangeError

__all__ = ["install"]


def install(module: Any) -> None:
    """Treat the order of strides as unknown if PyTorch fails to compare them: a copy then makes the layout.

    PyTorch checks whether one stride is a multiple of another. If a stride is a quotient of dynamic sizes, as after a
    strided convolution, its bounds of powers fail (``Invalid ranges [0:-1]``).

    Args:
        module: torch._inductor.ir.
    """
    # Older releases compare strides in another way.
    compare = vars(module.Layout).get("_stride_expr_ge_or_false")
    if compare is None:
        return

    @functools.wraps(compare)
    def stride_expr_ge_or_false(left: Any, right: Any) -> bool:
        try:
            return compare(left, right)
        except ValueRangeError:
            if "opencl" in module.V.graph.device_types:
                return False
            raise

    module.Layout._stride_expr_ge_or_false = staticmethod(stride_expr_ge_or_false)
