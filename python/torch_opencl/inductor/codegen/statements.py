"""Kernels as lists of statements: an intermediate form between Inductor's loop bodies and source.

A statement names the result of one operation on named values. Names have dtypes, so that they can be written in a
language that needs types, at any vector width.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

import torch
from torch._inductor.codegen.common import CSE, CSEVariable
from torch._inductor.virtualized import OpsValue
from torch.utils._sympy.value_ranges import ValueRanges


class Value(CSEVariable):
    """The result of a statement. Booleans, 16-bit floats and narrow integers are computed in wider types."""


@dataclass(frozen=True)
class Expr:
    """One operation.

    Attributes:
        op: its name: one of Inductor's, or `load`, `store`, `reduce`, `index` and the like.
        args: values, Python numbers, dtypes, names of buffers and index expressions.
        dtype: of the result, if Inductor does not pass it.
    """

    op: str
    args: tuple[Any, ...]
    dtype: torch.dtype | None = None

    def __post_init__(self) -> None:
        unwrapped = tuple(arg.value if isinstance(arg, OpsValue) else arg for arg in self.args)
        object.__setattr__(self, "args", unwrapped)

    def __str__(self) -> str:
        return f"{self.op}({', '.join(map(str, self.args))}){self.dtype or ''}"

    def values(self) -> Iterator[Value]:
        """The values among the arguments."""
        return (arg for arg in _leaves(self.args) if isinstance(arg, Value))


def _leaves(args: Iterable[Any]) -> Iterator[Any]:
    for arg in args:
        if isinstance(arg, tuple):
            yield from _leaves(arg)
        else:
            yield arg


@dataclass
class Statement:
    """An operation and the names of its results.

    Attributes:
        targets: none for stores and checks, several for reductions such as Welford's.
        expr: the operation.
        buffer: of a store, the name of the graph's buffer, which Inductor may later find to be unused.
    """

    targets: tuple[Value, ...]
    expr: Expr
    buffer: str | None = None


class Statements(list[Statement]):
    """A list of statements, instead of Inductor's buffers of source."""

    def splice(self, others: Iterable[Statement]) -> None:
        """Append other statements."""
        self.extend(others)


@dataclass
class Phase:
    """Statements that run together.

    Attributes:
        is_loop: true if they run for each index of the reduction.
        statements: in order.
        after: statements after the loop: stores of its results.
    """

    is_loop: bool
    statements: Statements
    after: Statements = field(default_factory=Statements)


def made_by(phases: Iterable[Phase]) -> dict[str, Statement]:
    """Find the statement that makes each value, by the value's name."""
    statements = (statement for phase in phases for statement in (*phase.statements, *phase.after))
    return {target.name: statement for statement in statements for target in statement.targets}


def _narrow(value: CSEVariable, bounds: ValueRanges[Any]) -> None:
    """Narrow the bounds of a value, unless they have another kind: ``x // 2`` may be a float and an index."""
    known = value.bounds
    is_open = any(each in (ValueRanges.unknown(), ValueRanges.unknown_int()) for each in (known, bounds))
    if is_open or (known.is_bool, known.is_int) == (bounds.is_bool, bounds.is_int):
        value.bounds = known.tighten(bounds)


class StatementCSE(CSE):
    """Common subexpressions among statements."""

    def generate(
        self,
        buffer: Statements,
        expr: Expr | CSEVariable | OpsValue,
        *,
        bounds: ValueRanges[Any] = ValueRanges.unknown(),  # noqa: B008 the base class's own default
        write: bool = True,
        assignment: bool = True,
        dtype: torch.dtype | None = None,
        shape: Any = None,
    ) -> CSEVariable:
        """Name an operation's result, or find its existing name.

        Args:
            buffer: the statement is appended to it.
            expr: the operation.
            bounds: of its result.
            write: not used.
            assignment: not used.
            dtype: of the result.
            shape: not used: all values are scalars here, for any width of the source.

        Returns:
            The name.
        """
        if isinstance(expr, OpsValue):
            expr = expr.value
        if isinstance(expr, CSEVariable):
            _narrow(expr, bounds)
            expr.use_count += 1
            return expr
        key = str(expr)
        found = self.try_get(key)
        if found is not None:
            _narrow(found, bounds)
            found.use_count += 1
            return found
        value = self.newvar(bounds, expr.dtype or dtype, ())
        self.put(key, value)
        buffer.append(Statement((value,), expr))
        return value
