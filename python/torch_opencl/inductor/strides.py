"""Orders of strides that depend on dynamic sizes."""

import functools
from typing import Any

from torch.utils._sympy.value_ranges import ValueRangeError

__all__ = ["install"]


def install(module: Any) -> None:
    """Take an order of strides for unknown where PyTorch fails to find it: a layout is then made by a copy.

    PyTorch asks whether one stride is a multiple of another. Where a stride is a quotient of dynamic sizes, as behind
    a convolution with a stride, its bounds of powers fail (``Invalid ranges [0:-1]``).

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
