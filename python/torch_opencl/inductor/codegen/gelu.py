"""GELU in a kernel: PyTorch decomposes it into ``1 + erf(x / sqrt(2))`` and multiplications.

The sum is twice the standard normal CDF, which eager mode computes with fewer operations than ``erf`` needs.
"""

import math
from collections.abc import Mapping, Sequence

import torch

from .statements import Expr, Phase, Statement, Value, made_by

_ERROR = 1e-7


def doubled_normal_distributions(phases: Sequence[Phase]) -> dict[str, Value]:
    """Find sums that are ``1 + erf(x / sqrt(2))`` in float32.

    Args:
        phases: of a kernel.

    Returns:
        x, by the name of the sum.
    """
    made = made_by(phases)
    found = {}
    for name, statement in made.items():
        if statement.expr.op == "add" and statement.targets[0].dtype == torch.float32:
            erf = _other(made, statement.expr, 1.0, "erf")
            product = _expr(made, erf.args[0]) if erf is not None else None
            x = _operand(made, product, math.sqrt(0.5)) if product is not None and product.op == "mul" else None
            if x is not None and x.dtype == torch.float32:
                found[name] = x
    return found


def _expr(made: Mapping[str, Statement], value: object) -> Expr | None:
    return made[value.name].expr if isinstance(value, Value) and value.name in made else None


def _other(made: Mapping[str, Statement], expr: Expr, number: float, op: str) -> Expr | None:
    """Return the expression of the operand beside a constant, if it has that operation."""
    other = _expr(made, _operand(made, expr, number))
    return other if other is not None and other.op == op else None


def _operand(made: Mapping[str, Statement], expr: Expr, number: float) -> Value | None:
    """Return the operand beside a constant."""
    for value, other in (expr.args, reversed(expr.args)):
        constant = _expr(made, other)
        given = constant.args[0] if constant is not None and constant.op == "constant" else other
        if isinstance(value, Value) and isinstance(given, int | float) and abs(given - number) < _ERROR:
            return value
    return None
