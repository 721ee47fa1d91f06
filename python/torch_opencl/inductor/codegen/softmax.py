"""Softmax in a kernel: two operations get cheaper forms, as in eager mode.

Exponentials of differences from the row's maximum have arguments of at most 0. Their sum is at least 1 and at most the
length of a row: its reciprocal neither overflows nor is subnormal, and a multiplication by it replaces a division in
each lane.
"""

from collections.abc import Sequence

import torch

from .statements import Expr, Phase, Statement, Value, made_by


class Softmax:
    """The softmax operations in a kernel.

    Attributes:
        exponentials: names of exponentials of differences from the maximum.
        sums: names of sums of these.
    """

    def __init__(self, phases: Sequence[Phase]) -> None:
        statements = [statement for phase in phases for statement in (*phase.statements, *phase.after)]
        self._made = made_by(phases)
        self._stored = {s.expr.args[0] for s in statements if s.expr.op in ("store", "atomic_add")}
        self.exponentials = {s.targets[0].name for s in statements if s.expr.op == "exp" and self._is_below(s)}
        self.sums = {s.targets[0].name for s in statements if self._summed(s) in self.exponentials}

    def _is_below(self, exponential: Statement) -> bool:
        difference = self._expr_of(exponential.expr.args[0])
        if exponential.targets[0].dtype != torch.float32 or difference is None or difference.op != "sub":
            return False
        x, top = difference.args
        largest = self._expr_of(top)
        if largest is None or largest.op != "reduce" or largest.args[0] != "max":
            return False
        return self._is_same(x, largest.args[1])

    @staticmethod
    def _summed(statement: Statement) -> str | None:
        kind, *values = statement.expr.args if statement.expr.op == "reduce" else (None,)
        return values[0].name if kind == "sum" and isinstance(values[0], Value) else None

    def _expr_of(self, value: object) -> Expr | None:
        statement = self._made.get(value.name) if isinstance(value, Value) else None
        return statement.expr if statement is not None else None

    def _is_same(self, a: object, b: object) -> bool:
        """Return whether two values have the same computation, from memory that the kernel does not change."""
        if not (isinstance(a, Value) and isinstance(b, Value)):
            return type(a) is type(b) and a == b
        if a.name == b.name:
            return True
        first, second = self._expr_of(a), self._expr_of(b)
        if first is None or second is None or a.dtype != b.dtype or first.op != second.op:
            return False
        if first.op == "reduce" or (first.op == "load" and first.args[0] in self._stored):
            return False
        return len(first.args) == len(second.args) and all(map(self._is_same, first.args, second.args))
