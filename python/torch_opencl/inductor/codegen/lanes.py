"""Statements as OpenCL C, at a vector width."""

from typing import TYPE_CHECKING

import sympy
import torch
from torch._inductor.virtualized import OpsValue

from .blocks import ORDERS, Comparison, whole_comparison
from .conversions import converted, promoted
from .dtypes import HALVES, NARROW, STORAGE, compute_type, literal
from .gelu import doubled_normal_distributions
from .ops import TEMPLATES, Operands
from .printer import has_vectors, in_lanes, is_real
from .shuffles import shuffled
from .softmax import Softmax
from .statements import Expr, Phase, Statement, Value

if TYPE_CHECKING:
    from .kernel import OpenCLKernel

# Operations with other templates for bools.
_OF_BOOLS = {"bitwise_not": "not_@({0})", "maximum": "({0} | {1})", "minimum": "({0} & {1})"}
# Operations with side effects, or whose result may differ each time.
EFFECTS = {"store", "atomic_add", "check_bounds", "assert", "reduce"}


class Lanes:
    """The values that are the same in all lanes, and the source of statements.

    Attributes:
        length: of the rows in which lanes lie; None without rows.
        width: of vectors, which begin at its multiples in a row; None if they begin anywhere.
        varies: names of values that differ from lane to lane.
        is_scalar_only: true if a statement has no vector form.
        hoisted: ids of statements whose source precedes the loop.
        stored: pointers through which the kernel stores.
        streamed: pointers with non-temporal stores.
        tiles: elements of arrays that replace memory, by pointer and index.
        whole: comparisons of positions whose result is the same in all lanes of a vector, by its name.
        doubled_normal_distributions: x of each sum that is twice the standard normal CDF at x, by the sum's name.
        random_groups: names of state that vectors of random numbers pass to later vectors, declared before the loops.
    """

    def __init__(
        self, kernel: "OpenCLKernel", phases: list[Phase], prefix: str, length: sympy.Expr | None, width: int | None
    ) -> None:
        self.kernel = kernel
        self.prefix = prefix
        self.length = length
        self.width = width
        self.positions: dict[str, Expr] = {}
        self.whole: dict[str, Comparison] = {}
        self.softmax = Softmax(phases)
        self.doubled_normal_distributions = doubled_normal_distributions(phases)
        self.random_groups: dict[str, None] = {}
        self.varies: set[str] = set()
        self.is_scalar_only = False
        self.hoisted: set[int] = set()
        self.stored: set[str] = set()
        self.in_front: set[str] = set()
        self.streamed: set[str] = set()
        self.tiles: dict[tuple[str, sympy.Expr], str] = {}
        for phase in phases:
            for statement in (*phase.statements, *phase.after):
                if statement.expr.op in ("store", "atomic_add"):
                    self.stored.add(statement.expr.args[0])
                if length is not None:
                    self._analyse(statement)

    # --- what differs between lanes

    def _analyse(self, statement: Statement) -> None:
        expr = statement.expr
        if expr.op == "reduce" and self.prefix != "x":
            return
        if expr.op in ("load", "index"):
            varies = self.stride(expr) != 0
        else:
            varies = any(value.name in self.varies for value in expr.values())
        if expr.op in ("index", "constant"):
            self.positions[statement.targets[0].name] = expr
        comparison = whole_comparison(self, expr) if varies and expr.op in ORDERS else None
        if comparison is not None:
            self.whole[statement.targets[0].name] = comparison
        elif varies:
            self.varies.update(target.name for target in statement.targets)
        index = self._index(expr)
        if index is not None and self.stride(expr) != 0 and not has_vectors(self._in_lanes(index, 16)):
            self.is_scalar_only = True
        if expr.op == "atomic_add" or (expr.op == "store" and expr.args[4] is not None):
            self.is_scalar_only = True

    @staticmethod
    def _index(expr: Expr) -> sympy.Expr | None:
        if expr.op == "index":
            return expr.args[0]
        return expr.args[1] if expr.op in ("load", "store", "atomic_add") else None

    def stride(self, expr: Expr) -> sympy.Expr | None:
        """The stride of a load's or store's index from lane to lane; None if it differs between lanes."""
        return self.kernel.lane_stride(self._index(expr), self.prefix, self.varies, self.length)

    def may_be_hoisted(self, statement: Statement) -> bool:
        """Return whether a statement has one result for a row, and reads nothing that the kernel writes."""
        expr = statement.expr
        if expr.op == "check_bounds":
            # It precedes the loads that it checks.
            return expr.args[0].name in self.in_front and expr.args[4] is None
        if expr.op in EFFECTS or any(target.name in self.varies for target in statement.targets):
            return False
        if expr.op == "load" and (expr.args[0] in self.stored or expr.args[3] is not None):
            return False
        index = self._index(expr)
        used = {symbol.name for symbol in index.free_symbols} if index is not None else set()
        inner = {e.name for e in self.kernel.entries.values() if e.prefix == self.prefix and e.divisor == 1}
        if used & inner:
            return False
        names = {value.name for value in expr.values()} | {name for name in used if name in self.kernel.named}
        return names <= self.in_front

    def put_in_front(self, statement: Statement) -> None:
        """Record that a statement's source precedes the loop."""
        self.hoisted.add(id(statement))
        self.in_front.update(target.name for target in statement.targets)

    # --- operands

    def is_wide(self, value: object, width: int) -> bool:
        """Return whether a value is a vector in source of a width."""
        return width > 1 and isinstance(value, Value) and value.name in self.varies

    def type(self, dtype: torch.dtype, wide: int) -> str:
        """The OpenCL C type for values of a dtype in `wide` lanes."""
        return compute_type(dtype) + (str(wide) if wide > 1 else "")

    def operand(self, value: object, dtype: torch.dtype, width: int, wide: int) -> str:
        """The source of an operand.

        Args:
            value: a value or a Python number.
            dtype: the dtype to convert to.
            width: of the source.
            wide: lanes of the result.

        Returns:
            An expression.
        """
        if isinstance(value, OpsValue):
            value = value.value
        if not isinstance(value, Value):
            text = literal(value, dtype)
            if wide > 1:
                text = f"(-{text})" if dtype == torch.bool else text
                return f"(({self.type(dtype, wide)})({text}))"
            return text
        if wide > 1 and not self.is_wide(value, width):
            text = converted(value.name, value.dtype, dtype, 1)
            text = f"-({text})" if dtype == torch.bool else text
            return f"(({self.type(dtype, wide)})({text}))"
        return converted(value.name, value.dtype, dtype, wide)

    def index(self, index: sympy.Expr, expr: Expr | None = None, wide: int = 1) -> str:
        """The source of an index; a vector of all lanes if `wide` is greater than 1."""
        if wide == 1:
            return self.kernel.index_to_str(index)
        stride = self.kernel.lane_stride(index, self.prefix, self.varies, self.length)
        if stride is not None:
            return f"(({self.kernel.index_to_str(index)}) + LANES{wide} * (long)({self.kernel.index_to_str(stride)}))"
        return self.kernel.index_to_str(self._in_lanes(index, wide))

    def _in_lanes(self, index: sympy.Expr, wide: int) -> sympy.Expr:
        lanes = {}
        for symbol, entry in self.kernel.range_tree_nodes.items():
            if entry.prefix == self.prefix and entry.divisor == 1:
                index = in_lanes(index, symbol, entry.length, wide)
                lanes[symbol] = sympy.Symbol(f"({entry.name} + LANES{wide})", integer=True, nonnegative=True)
        return index.xreplace(lanes)

    # --- statements

    def declared(self) -> str:
        """Declare the variables that statements use besides their values."""
        return "".join(f"RandomGroup {name} = NO_RANDOM_GROUP;\n" for name in self.random_groups)

    def text(self, statement: Statement, width: int) -> str:
        """The source of a statement.

        Args:
            statement: any except a reduction.
            width: of vectors; 1 for scalars.

        Returns:
            A line.
        """
        expr = statement.expr
        if not statement.targets:
            return getattr(self, f"_op_{expr.op}")(expr, width)
        (target,) = statement.targets
        if target.name in self.whole:
            position, sign, bound = self.whole[target.name]
            return f"int {target.name} = (long)({self.index(position)}) {sign} {bound}L;\n"
        wide = width if self.is_wide(target, width) else 1
        written = getattr(self, f"_op_{expr.op}", None)
        text = written(expr, target, width, wide) if written else self._template(expr, target, width, wide)
        return f"{self.type(target.dtype, wide)} {target.name} = {text};\n"

    def _template(self, expr: Expr, target: Value, width: int, wide: int) -> str:
        template = TEMPLATES[expr.op]
        dtype = target.dtype
        if template.operands is Operands.PROMOTED:
            dtype = promoted(expr.args)
            # True is -1 in a lane of a vector, so bools are compared as integers.
            dtype = torch.int32 if dtype == torch.bool and expr.op in ORDERS else dtype
        kind = self.type(dtype, wide)
        text = template.text
        if not dtype.is_floating_point and template.integers:
            text = template.integers
        elif kind.startswith("float") and wide > 1 and template.vectors:
            text = template.vectors
        if dtype == torch.bool:
            text = _OF_BOOLS.get(expr.op, text)
        if expr.op == "logical_not" or expr.op.startswith("logical"):
            dtype, kind = torch.bool, self.type(torch.bool, wide)
            text = text.replace("not_@", f"not_{kind}")
        text = text.replace("@", kind).format(*(self.operand(arg, dtype, width, wide) for arg in expr.args))
        if template.operands is Operands.PROMOTED and wide > 1 and compute_type(dtype) in ("long", "ulong", "double"):
            text = f"convert_int{wide}({text})"
        if template.may_overflow and dtype in NARROW:
            text = f"wrap_{STORAGE[dtype].name}{wide if wide > 1 else ''}({text})"
        return text

    def _op_constant(self, expr: Expr, target: Value, width: int, wide: int) -> str:
        return literal(expr.args[0], target.dtype)

    def _op_host_scalar(self, expr: Expr, target: Value, width: int, wide: int) -> str:
        return f"({compute_type(target.dtype)})({expr.args[0]})"

    def _op_to_dtype(self, expr: Expr, target: Value, width: int, wide: int) -> str:
        x, dtype, _ = expr.args
        text = self.operand(x, target.dtype, width, wide)
        # The graph requires rounding to 16 bits.
        if target.dtype in HALVES:
            text = f"round_{STORAGE[dtype].name}{wide if wide > 1 else ''}({text})"
        return text

    def _op_bitcast(self, expr: Expr, target: Value, width: int, wide: int) -> str:
        x, dtype, source = expr.args
        suffix = str(wide) if wide > 1 else ""
        bits = self.operand(x, torch.uint8 if source == torch.bool else x.dtype, width, wide)
        if dtype == torch.bool:
            return converted(bits, torch.int32, torch.bool, wide)
        if source.itemsize == 2:
            bits = f"bits_of_{STORAGE[source].name}{suffix}({bits})"
            return f"{STORAGE[dtype].name}_of_bits{suffix}({bits})"
        if source.itemsize == 1:
            return f"wrap_{STORAGE[dtype].name}{suffix}({bits})"
        return f"as_{compute_type(target.dtype)}{suffix}({bits})"

    def _op_index(self, expr: Expr, target: Value, width: int, wide: int) -> str:
        text = f"({self.index(expr.args[0], wide=wide)})"
        if is_real(expr.args[0]):
            text = f"({text} != 0)" if target.dtype == torch.bool else text
            return f"({compute_type(target.dtype)}){text}"
        return converted(f"(long){text}" if wide == 1 else text, torch.int64, target.dtype, wide)

    def _op_where(self, expr: Expr, target: Value, width: int, wide: int) -> str:
        condition, x, y = expr.args
        is_wide = self.is_wide(condition, width)
        mask = self.operand(condition, torch.bool, width, wide if is_wide else 1)
        if is_wide and compute_type(target.dtype) in ("long", "ulong", "double"):
            mask = f"convert_long{wide}({mask})"
        return f"({mask} ? {self.operand(x, target.dtype, width, wide)} : {self.operand(y, target.dtype, width, wide)})"

    def _random(self, expr: Expr, target: Value, width: int, wide: int) -> str:
        args = [self.operand(arg, torch.int64, width, wide if number else 1) for number, arg in enumerate(expr.args)]
        if wide == 1:
            return f"{expr.op}({', '.join(args)})"
        self.random_groups[f"{target.name}_group"] = None
        return f"{expr.op}{wide}(&{target.name}_group, {', '.join(args)})"

    _op_rand = _op_randn = _op_randint64 = _random

    def _op_frexp_significand(self, expr: Expr, target: Value, width: int, wide: int) -> str:
        (x,) = expr.args
        return f"{expr.op}_{self.type(x.dtype, wide)}({self.operand(x, x.dtype, width, wide)})"

    _op_frexp_exponent = _op_frexp_significand

    def _op_ldexp(self, expr: Expr, target: Value, width: int, wide: int) -> str:
        x, n = expr.args
        return f"ldexp({self.operand(x, target.dtype, width, wide)}, {self.operand(n, torch.int32, width, wide)})"

    def _op_truediv(self, expr: Expr, target: Value, width: int, wide: int) -> str:
        x, y = expr.args
        is_sum = isinstance(y, Value) and y.name in self.softmax.sums and y.dtype == target.dtype
        if wide == 1 or not is_sum:
            return self._template(expr, target, width, wide)
        return f"({self.operand(x, target.dtype, width, wide)} * (1 / {y}))"

    def _op_add(self, expr: Expr, target: Value, width: int, wide: int) -> str:
        x = self.doubled_normal_distributions.get(target.name)
        if wide == 1 or x is None:
            return self._template(expr, target, width, wide)
        return f"(2 * m_normal_cdf({self.operand(x, target.dtype, width, wide)}))"

    def _op_exp(self, expr: Expr, target: Value, width: int, wide: int) -> str:
        if wide == 1 or target.name not in self.softmax.exponentials:
            return self._template(expr, target, width, wide)
        return f"exp_below{wide}({self.operand(expr.args[0], target.dtype, width, wide)})"

    # --- memory

    def _op_load(self, expr: Expr, target: Value, width: int, wide: int) -> str:
        pointer, index, dtype, mask = expr.args
        name = STORAGE[dtype].name
        if mask is None and (pointer, index) in self.tiles:
            return self.tiles[pointer, index]
        if wide == 1:
            text = f"load_{name}({pointer} + ({self.index(index)}))"
            return text if mask is None else f"({self._any(mask, width)} ? {text} : 0)"
        stride = self.stride(expr)
        if stride in (-1, 2) and mask is None:
            head, where = f"load{wide}_{name}", f"{pointer} + ({self.index(index)})"
            return shuffled(head, where, self.type(dtype, wide), stride, wide)
        if stride == 1:
            head, where = f"load{wide}", f"{pointer} + ({self.index(index)})"
        else:
            head, where = f"gather{wide}", f"{pointer}, {self.index(index, wide=wide)}"
        if mask is None:
            return f"{head}_{name}({where})"
        if not self.is_wide(mask, width):
            return f"({mask} ? {head}_{name}({where}) : ({self.type(dtype, wide)})(0))"
        return f"{head}_masked_{name}({where}, {mask})"

    def _any(self, mask: Value, width: int) -> str:
        return f"any{width}({mask})" if self.is_wide(mask, width) else str(mask)

    def _op_store(self, expr: Expr, width: int) -> str:
        pointer, index, dtype, value, mask = expr.args
        if mask is not None:
            return f"if ({mask}) {self._op_store(Expr('store', (*expr.args[:4], None)), 1)}"
        name, computed = STORAGE[dtype].name, torch.float32 if dtype in HALVES else dtype
        if (pointer, index) in self.tiles:
            return f"{self.tiles[pointer, index]} = {self.operand(value, computed, width, width)};\n"
        stride = self.stride(expr) if width > 1 else sympy.S.Zero
        if stride == 0 and not self.is_wide(value, width):
            return f"store_{name}({pointer} + ({self.index(index)}), {self.operand(value, computed, width, 1)});\n"
        text = self.operand(value, computed, width, width)
        if stride == 1:
            head = "stream" if pointer in self.streamed else "store"
            return f"{head}{width}_{name}({pointer} + ({self.index(index)}), {text});\n"
        return f"scatter{width}_{name}({pointer}, {self.index(index, wide=width)}, {text});\n"

    # --- private memory, at `position` of a row

    def _op_keep(self, expr: Expr, width: int) -> str:
        array, value = expr.args
        if width == 1:
            return f"{array}[position] = {value};\n"
        return f"KEPT({self.type(value.dtype, width)}, {array} + position) = {value};\n"

    def _op_kept(self, expr: Expr, target: Value, width: int, wide: int) -> str:
        (array,) = expr.args
        return f"{array}[position]" if width == 1 else f"KEPT({self.type(target.dtype, width)}, {array} + position)"

    def _op_atomic_add(self, expr: Expr, width: int) -> str:
        """The atomic addition of one element: a kernel that has one is scalar."""
        pointer, index, dtype, value, mask = expr.args
        name, computed = STORAGE[dtype].name, torch.float32 if dtype in HALVES else dtype
        text = f"atomic_add_{name}({pointer} + ({self.index(index)}), {self.operand(value, computed, width, 1)});\n"
        return text if mask is None else f"if ({mask}) {text}"

    # --- bad input

    def _op_check_bounds(self, expr: Expr, width: int) -> str:
        index, _, _, size, mask, is_wrapped = expr.args
        wide = width if self.is_wide(index, width) else 1
        active = (
            "1"
            if mask is None
            else self._any(mask, width)
            if wide == 1
            else self.operand(mask, torch.bool, width, wide)
        )
        if mask is None and wide > 1:
            active = f"(int{wide})(-1)"
        suffix = str(wide) if wide > 1 else ""
        arguments = f"{index}, {self.index(size)}, {int(is_wrapped)}, {active}, faults"
        return f"{index} = checked_index{suffix}({arguments});\n"

    def _op_assert(self, expr: Expr, width: int) -> str:
        condition, message, mask = expr.args
        wide = self.is_wide(condition, width)
        failed = f"any{width}(~{condition})" if wide else f"!({condition})"
        if mask is not None:
            failed = f"{failed} && {self._any(mask, width)}"
            if wide and self.is_wide(mask, width):
                failed = f"any{width}(~{condition} & {mask})"
        return f"if ({failed}) report_fault(faults, FAULT_ASSERTION, args.message{message}, 0);\n"
