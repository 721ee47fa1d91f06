"""Comparisons of positions whose result is the same in all lanes of a vector: masks of concatenations and paddings.

Vectors begin at multiples of their width. A bound that is such a multiple lies between two vectors, never within one.
"""

from typing import TYPE_CHECKING, NamedTuple

import sympy
import torch
from torch._inductor.virtualized import V

from .statements import Expr, Value

if TYPE_CHECKING:
    from .lanes import Lanes

# Ordering comparisons, and the comparisons with exchanged operands.
ORDERS = {"lt": "<", "le": "<=", "gt": ">", "ge": ">="}
_EXCHANGED = {"lt": "gt", "le": "ge", "gt": "lt", "ge": "le"}


class Comparison(NamedTuple):
    """A position, the operator and a bound, which hold for all lanes."""

    position: sympy.Expr
    sign: str
    bound: int


def whole_comparison(lanes: "Lanes", expr: Expr) -> Comparison | None:
    """Find whether a comparison gives the same result in all lanes of every vector.

    Args:
        lanes: the lanes of the kernel.
        expr: one of ORDERS.

    Returns:
        The comparison; None if lanes may differ, or if that is not known.
    """
    op, (x, y) = expr.op, expr.args
    if _number(lanes, x) is not None:
        op, x, y = _EXCHANGED[op], y, x
    bound = _number(lanes, y) if lanes.width is not None else None
    # A position in a narrower type may wrap between two lanes.
    known = lanes.positions.get(x.name) if isinstance(x, Value) and x.dtype in (torch.int32, torch.int64) else None
    if bound is None or known is None or known.op != "index":
        return None
    # `x <= 15` is `x < 16`.
    between = bound + 1 if op in ("le", "gt") else bound
    position = known.args[0]
    if not _begins_at_multiple(lanes, sympy.expand(position - between)):
        return None
    return Comparison(position, ORDERS[op], bound)


def _number(lanes: "Lanes", arg: object) -> int | None:
    if isinstance(arg, Value):
        known = lanes.positions.get(arg.name)
        arg = known.args[0] if known is not None else None
    return int(arg) if isinstance(arg, (int, sympy.Integer)) else None


def _begins_at_multiple(lanes: "Lanes", position: sympy.Expr) -> bool:
    """Return whether a position starts at a multiple of the width and grows by 1 from lane to lane."""
    nodes, known = lanes.kernel.range_tree_nodes, V.graph.sizevars.statically_known_multiple_of
    along = 0
    for symbol, factor in position.as_coefficients_dict().items():
        entry = nodes.get(symbol)
        if entry is not None and entry.prefix == lanes.prefix and entry.divisor == 1:
            is_within_row = V.graph.sizevars.statically_known_equals(entry.length, lanes.length)
            if factor != 1 or not (is_within_row or known(lanes.length, sympy.Integer(lanes.width))):
                return False
            along += 1
        elif not (symbol.is_Symbol or symbol == 1) or not factor.is_integer or factor % lanes.width:
            return False
    return along == 1
