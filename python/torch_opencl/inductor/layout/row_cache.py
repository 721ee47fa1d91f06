"""Values that a phase of a short row caches for later phases: softmax computes its exponentials once."""

import re

import sympy
import torch

from torch_opencl.inductor.codegen.dtypes import HALVES
from torch_opencl.inductor.codegen.lanes import EFFECTS, Lanes
from torch_opencl.inductor.codegen.ops import TEMPLATES
from torch_opencl.inductor.codegen.statements import Expr, Phase, Statement, Statements, Value

# Bytes of private memory per work-item for cached values: they stay in the L1 cache.
MOST_BYTES = 16384
# Cheaper values are recomputed: a load of a neighbouring element costs 1, like an addition.
LEAST_COST = 6
_COSTS = {"truediv": 4, "reciprocal": 4, "sqrt": 4, "rsqrt": 6}
_FUNCTION = 12
_SCATTERED_LOAD = 8


def _cost(op: str) -> int:
    """The cost of an operation: high if its source calls a function, low if it only has an operator."""
    if op in _COSTS or op not in TEMPLATES:
        return _COSTS.get(op, _FUNCTION if op.startswith("rand") else 1)
    return _FUNCTION if re.search(r"[a-z0-9]\(", TEMPLATES[op].text) else 1


class RowCache:
    """Values of loops over a row that later loops read from private memory.

    Attributes:
        phases: the kernel's phases, with the writes and reads of these values.
    """

    def __init__(self, phases: list[Phase], lanes: Lanes, numel: sympy.Expr) -> None:
        self.lanes = lanes
        self.arrays: dict[str, Value] = {}
        self.phases = phases
        self.size = int(numel) if isinstance(numel, sympy.Integer) else 0
        if not 0 < self.size * 4 <= MOST_BYTES or sum(phase.is_loop for phase in phases) < 2:
            return
        # By name, the first equal value; and the loop that computes that one.
        self.same: dict[str, Value] = {}
        self.made_in: dict[str, int] = {}
        self._number()
        self.phases = list(phases)
        # In reverse order, so that a loop knows which of its values later loops read.
        for number in reversed(range(len(phases))):
            if phases[number].is_loop:
                self.phases[number] = self._changed(number)

    def declared(self) -> str:
        """Declare the arrays."""
        lines = [f"{self.lanes.type(value.dtype, 1)} {name}[{self.size}];\n" for name, value in self.arrays.items()]
        return "".join(lines)

    # --- which values are equal

    def _number(self) -> None:
        clamped = {
            statement.expr.args[0].name
            for phase in self.phases
            for statement in phase.statements
            if statement.expr.op == "check_bounds"
        }
        first: dict[tuple, Value] = {}
        for number, phase in enumerate(self.phases):
            for statement in (*phase.statements, *phase.after):
                if len(statement.targets) != 1 or statement.expr.op in EFFECTS:
                    continue
                (target,) = statement.targets
                if target.name in clamped or (
                    statement.expr.op == "load" and statement.expr.args[0] in self.lanes.stored
                ):
                    continue
                key = (statement.expr.op, target.dtype, *map(self._key, statement.expr.args))
                self.same[target.name] = first.setdefault(key, target)
                if phase.is_loop and first[key] is target:
                    self.made_in[target.name] = number

    def _key(self, arg: object) -> object:
        if isinstance(arg, Value):
            return self.same.get(arg.name, arg).name
        if isinstance(arg, sympy.Expr):
            names = {s: sympy.Symbol(self.same[s.name].name) for s in arg.free_symbols if s.name in self.same}
            return arg.xreplace(names)
        # 1, 1.0 and True are equal, but not as operands.
        return (type(arg), str(arg))

    # --- reads and writes of a loop

    def _changed(self, number: int) -> Phase:
        phase = self.phases[number]
        by_target = {target.name: statement for statement in phase.statements for target in statement.targets}
        written = {value.name for value in self.arrays.values() if self.made_in[value.name] == number}
        used_after = {value.name for statement in phase.after for value in statement.expr.values()}
        stack = [
            statement
            for statement in phase.statements
            if statement.expr.op in EFFECTS or any(t.name in written | used_after for t in statement.targets)
        ]
        needed: set[int] = set()
        read: dict[str, str] = {}
        while stack:
            statement = stack.pop()
            if id(statement) in needed:
                continue
            needed.add(id(statement))
            for name in self._operands(statement):
                operand = by_target.get(name)
                if operand is None or name in read:
                    continue
                array = self._array(name, number, by_target)
                if array is None:
                    stack.append(operand)
                else:
                    read[name] = array
        statements = Statements()
        for statement in phase.statements:
            name = statement.targets[0].name if statement.targets else ""
            if id(statement) in needed:
                statements.append(statement)
                if name in written:
                    statements.append(Statement((), Expr("keep", (f"kept_{name}", statement.targets[0]))))
            elif name in read:
                statements.append(Statement(statement.targets, Expr("kept", (read[name],))))
        return Phase(phase.is_loop, statements, phase.after)

    @staticmethod
    def _operands(statement: Statement) -> set[str]:
        names = {value.name for value in statement.expr.values()}
        for arg in statement.expr.args:
            if isinstance(arg, sympy.Expr):
                names.update(symbol.name for symbol in arg.free_symbols)
        return names

    def _array(self, name: str, number: int, by_target: dict[str, Statement]) -> str | None:
        """The array from which a loop reads a value; None if it computes the value."""
        first = self.same.get(name)
        if first is None or first.name not in self.lanes.varies or self.made_in.get(first.name, number) >= number:
            return None
        array = f"kept_{first.name}"
        if array in self.arrays:
            return array
        if self._bytes(first) + sum(map(self._bytes, self.arrays.values())) > MOST_BYTES:
            return None
        if self._cost(name, by_target) < LEAST_COST:
            return None
        self.arrays[array] = first
        return array

    def _bytes(self, value: Value) -> int:
        wide = value.dtype in (torch.float64, torch.int64, torch.uint64)
        return self.size * (8 if wide else 4)

    def _cost(self, name: str, by_target: dict[str, Statement]) -> int:
        cost, stack, seen = 0, [name], set()
        while stack:
            name = stack.pop()
            statement = by_target.get(name)
            if statement is None or name in seen or name not in self.lanes.varies:
                continue
            seen.add(name)
            if statement.expr.op == "load":
                cost += self._load_cost(statement.expr)
            else:
                cost += _cost(statement.expr.op)
            stack += self._operands(statement)
        return cost

    def _load_cost(self, expr: Expr) -> int:
        if expr.args[3] is not None or self.lanes.stride(expr) != 1:
            return _SCATTERED_LOAD
        return 2 if expr.args[2] in HALVES else 1
