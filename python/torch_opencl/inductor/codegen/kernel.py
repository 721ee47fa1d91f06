"""One kernel: Inductor's loop bodies become statements, in phases."""

import math
from collections.abc import Iterator
from typing import Any

import sympy
import torch
from torch._inductor import ir
from torch._inductor.codegen.simd import IterationRangesEntry, SIMDKernel
from torch._inductor.virtualized import V
from torch.utils._ordered_set import OrderedSet
from torch.utils._sympy.functions import FloorDiv, Identity, ModularIndexing
from torch.utils._sympy.symbol import SymT, free_symbol_is_type

from .dtypes import HALVES, compute_type
from .ops import Overrides
from .printer import print_index
from .statements import Expr, Phase, Statement, StatementCSE, Statements, Value
from .target import Target

# The minimal length of the rows into which longer rows are divided so that quotients are constant in a row.
SHORTEST_ROW = 64


class OpenCLKernel(SIMDKernel):
    """Collects the statements of a kernel, which the package `layout` turns into source."""

    overrides = Overrides
    kexpr = staticmethod(print_index)
    sexpr = staticmethod(print_index)

    def __init__(self, tiling: dict[str, sympy.Expr], **kwargs: Any) -> None:
        super().__init__(tiling, **kwargs)
        self.cse = StatementCSE()
        self.loads, self.compute, self.stores, self.after = (Statements() for _ in range(4))
        self.phases: list[Phase] = []
        # Symbols of index expressions, by the name of the variable.
        self.entries: dict[str, IterationRangesEntry] = {}
        # Results of statements, by their name in index expressions.
        self.named: dict[str, Value] = {}
        # Values that remain valid after a loop.
        self.outside: OrderedSet[Value] = OrderedSet()
        # Arguments that are host scalars: 0-dimensional CPU tensors.
        self.host_scalars: dict[str, torch.dtype] = {}
        self.reports_faults = False
        self.messages: list[str] = []
        # Checked positions that are not loaded indices: the node that checks, its ranges, and whether the position is
        # in bounds.
        self.guards: list[tuple[Any, OrderedSet[str], Value]] = []

    # --- overrides of the base class

    def create_cse_var(self, *args: Any, **kwargs: Any) -> Value:
        """Make a name for a result."""
        value = Value(*args, **kwargs)
        self.named[value.name] = value
        return value

    def dtype_to_str(self, dtype: torch.dtype) -> str:
        """The scalar type of OpenCL C for a dtype."""
        return compute_type(dtype)

    def codegen_iteration_ranges_entry(self, entry: IterationRangesEntry) -> None:
        """Record that an index expression uses a part of an index."""
        self.entries[entry.name] = entry

    def want_no_x_dim(self) -> bool:
        """Return False: kernels always have an x."""
        return False

    def should_use_persistent_reduction(self) -> bool:
        """Return False: reductions are loops."""
        return False

    # --- memory

    def _guarded(self, index: sympy.Expr, mask: Value | None) -> Value | None:
        """Restrict a mask to checked positions in bounds, for an index that depends on their ranges."""
        ranges = self._ranges(index)
        for node, checked, in_range in self.guards:
            if node is self.current_node and checked <= ranges:
                mask = in_range if mask is None else self._compute("logical_and", mask, in_range, dtype=torch.bool)
        return mask

    def _ranges(self, index: sympy.Expr) -> OrderedSet[str]:
        nodes = self.range_tree_nodes
        return OrderedSet(nodes[symbol].prefix for symbol in index.free_symbols if symbol in nodes)

    def _compute(self, op: str, *args: Any, dtype: torch.dtype) -> Value:
        return self.cse.generate(self.compute, Expr(op, args), dtype=dtype)

    def load(self, name: str, index: sympy.Expr) -> Value:
        """Load an element of a buffer.

        Args:
            name: of the graph's buffer.
            index: in elements.

        Returns:
            Its value; 16-bit floats become float32.
        """
        dtype = V.graph.get_dtype(name)
        pointer = self.args.input(name)
        computed = torch.float32 if dtype in HALVES else dtype
        if V.graph.is_unspec_arg(name):
            self.host_scalars[pointer] = dtype
            if computed == torch.float64 and not Target.current().has_fp64:
                computed = torch.float32
            return self.cse.generate(self.loads, Expr("host_scalar", (pointer,)), dtype=computed)
        index = self.prepare_indexing(index)
        mask = self._guarded(index, self._load_mask)
        loads = self.compute if mask is not None or free_symbol_is_type(index, SymT.TMP) else self.loads
        return self.cse.generate(loads, Expr("load", (pointer, index, dtype, mask)), dtype=computed)

    def store(self, name: str, index: sympy.Expr, value: Value, mode: str | None = None) -> None:
        """Store an element, or add to it.

        Args:
            name: of the graph's buffer.
            index: in elements.
            value: the value to store.
            mode: None or "atomic_add".

        Raises:
            NotImplementedError: for other modes.
        """
        if mode not in (None, "atomic_add"):
            raise NotImplementedError(f"store with mode {mode}")
        # A buffer that mutates one that was read shares its pointer.
        real_name = V.graph.scheduler.mutation_real_name.get(name, name)
        pointer = self.args.input_buffers.get(real_name) or self.args.output(name)
        index = self.prepare_indexing(index)
        dtype = V.graph.get_dtype(name)
        op = "store" if mode is None else "atomic_add"
        # The indices of all other stores are in bounds.
        is_scatter = self.current_node is not None and isinstance(self.current_node.node.data, ir.Scatter)
        mask = self._guarded(index, None) if is_scatter else None
        self.stores.append(Statement((), Expr(op, (pointer, index, dtype, value, mask)), name))

    def store_reduction(self, name: str, index: sympy.Expr, value: Value) -> None:
        """Store the result of a reduction, once its loop has ended."""
        prior, self.inside_reduction = self.inside_reduction, False
        stores, self.stores = self.stores, self.after
        try:
            self.store(name, index, value)
        finally:
            self.inside_reduction, self.stores = prior, stores

    # --- reductions

    def reduction(
        self, dtype: torch.dtype, src_dtype: torch.dtype, reduction_type: str, value: Value | tuple[Value, ...]
    ) -> Value | tuple[Value, ...]:
        """Reduce over the indices r.

        Args:
            dtype: of the result.
            src_dtype: of the input.
            reduction_type: Inductor's name.
            value: the input; several values for reductions of pairs and triples.

        Returns:
            The result, or a tuple for a reduction with several.
        """
        key = (src_dtype, reduction_type, value)
        if key in self.cse.reduction_cache:
            return self.cse.reduction_cache[key]
        values = value if isinstance(value, tuple) else (value,)
        count = 3 if reduction_type.startswith("welford") else 1
        kind = torch.float32 if dtype in HALVES else dtype
        if reduction_type == "any":
            kind = torch.bool
        targets = tuple(self.cse.newvar(dtype=kind, shape=()) for _ in range(count))
        self.compute.append(Statement(targets, Expr("reduce", (reduction_type, *values))))
        self.outside.update(targets)
        result = targets if count > 1 else targets[0]
        self.cse.reduction_cache[key] = result
        return result

    def codegen_body(self) -> None:
        """End a phase, which has the statements collected since the last one."""
        if not (self.loads or self.compute or self.stores or self.after):
            return
        is_loop = self.inside_reduction and self.features.is_reduction()
        statements = Statements([*self.loads, *self.compute, *self.stores])
        self.phases.append(Phase(is_loop, statements, self.after))
        self.guards.clear()
        self.loads, self.compute, self.stores, self.after = (Statements() for _ in range(4))
        if is_loop:
            self.cse.invalidate(self.outside)
            for entry in self.entries.values():
                entry.cache_clear()
        else:
            self.outside.update(target for statement in statements for target in statement.targets)

    # --- bad input

    def check_bounds(self, expr: sympy.Expr, size: sympy.Expr, lower: bool, upper: bool) -> None:
        """Report an index out of range, and continue with one in range, or with only the accesses in range."""
        if not (lower or upper):
            return
        self.reports_faults = True
        index = self.named.get(str(expr))
        if index is None:
            # A position, which other statements use as well: check_bounds changes its operand, so that is a new value.
            expr = self.prepare_indexing(expr)
            position = self._compute("index", expr, dtype=torch.int64)
            end = self._compute("index", self.prepare_indexing(sympy.sympify(size)), dtype=torch.int64)
            in_range = self._compute(
                "logical_and",
                self._compute("ge", position, 0, dtype=torch.bool),
                self._compute("lt", position, end, dtype=torch.bool),
                dtype=torch.bool,
            )
            if self._load_mask is not None:
                # Outside the mask the position is not used, and must not mask other loads.
                unused = self._compute("logical_not", self._load_mask, dtype=torch.bool)
                in_range = self._compute("logical_or", in_range, unused, dtype=torch.bool)
            self.guards.append((self.current_node, self._ranges(expr), in_range))
            index = self.cse.newvar(dtype=torch.int64, shape=())
            self.compute.append(Statement((index,), Expr("index", (expr,))))
        bounds = (0 if lower else None, size if upper else None)
        checked = (index, *bounds, size, self._load_mask, self._is_wrapped(index))
        self.compute.append(Statement((), Expr("check_bounds", checked)))

    def _is_wrapped(self, index: Value) -> bool:
        """Return whether Inductor has added the size to an index if it was negative."""
        made = {target.name: statement.expr for statement in self.compute for target in statement.targets}
        chosen = made.get(index.name)
        if chosen is not None and chosen.op == "to_dtype":
            chosen = made.get(str(chosen.args[0]))
        if chosen is None or chosen.op != "where":
            return False
        below, moved, given = (made.get(str(arg)) if i < 2 else arg for i, arg in enumerate(chosen.args))
        wanted = ((below, "lt"), (moved, "add"))
        return all(expr is not None and expr.op == op and expr.args[0] is given for expr, op in wanted)

    def device_assert_async(self, cond: Value, msg: str) -> None:
        """Report a condition that does not hold."""
        self.reports_faults = True
        if msg not in self.messages:
            self.messages.append(msg)
        self.compute.append(Statement((), Expr("assert", (cond, self.messages.index(msg), self._load_mask))))

    # --- the wrapper's call

    def parameters(self) -> tuple[list[tuple[str, torch.dtype, str]], list[tuple[str, str, str]]]:
        """Return the arguments of the kernel's call.

        Returns:
            Buffers: the name inside, the dtype and the wrapper's expression. Then scalars: the name inside, its type
            in OpenCL C (Real for a float) and the wrapper's expression.
        """
        buffers, scalars = [], []
        for outer, inner in self.args.output_buffers.items():
            if isinstance(inner, str) and outer not in self.removed_buffers:
                buffers.append((inner, V.graph.get_dtype(outer), outer))
        for outer, inner in self.args.input_buffers.items():
            dtype = V.graph.get_dtype(outer)
            if inner in self.host_scalars:
                kind = "Real" if dtype.is_floating_point else "long"
                convert = "float" if dtype.is_floating_point else "int"
                scalars.append((inner, kind, f"{convert}({outer}.item())"))
            else:
                buffers.append((inner, dtype, outer))
        for outer, inner in self.args.sizevars.items():
            kind = "Real" if outer.is_integer is False else "long"
            scalars.append((inner, kind, str(outer)))
        return buffers, scalars

    # --- indices

    def prepare_indexing(self, index: sympy.Expr) -> sympy.Expr:
        """Simplify an index. Inductor marks indices of masked loads to prevent expansion; here they are expanded."""
        return super().prepare_indexing(index).replace(Identity, lambda part: part)

    def lane_stride(
        self, index: sympy.Expr, prefix: str, varies: set[str], length: sympy.Expr | None
    ) -> sympy.Expr | None:
        """The stride of an index from one lane to the next.

        Args:
            index: the index expression.
            prefix: of the range along which lanes lie.
            varies: names of values that are not the same in all lanes.
            length: of the rows in which lanes are neighbours, from :meth:`inner_length`; None if all are one row.

        Returns:
            The stride; None if it is not the same between all lanes.
        """
        if any(symbol.name in varies for symbol in index.free_symbols):
            return None
        symbols = [
            symbol
            for symbol, entry in self.range_tree_nodes.items()
            if entry.prefix == prefix and entry.divisor == 1 and index.has(symbol)
        ]
        if not symbols:
            return sympy.S.Zero
        if length is not None:
            index = self._in_row(index, symbols, length)
        step = sympy.expand(index.xreplace({symbol: symbol + 1 for symbol in symbols}) - index)
        step = V.graph.sizevars.simplify(step)
        is_known = not step.has(sympy.Dummy) and not any(step.has(symbol) for symbol in self.range_tree_nodes)
        return step if is_known else None

    def _in_row(self, index: sympy.Expr, lanes: list[sympy.Symbol], length: sympy.Expr) -> sympy.Expr:
        """An index with the same strides within a row, and fewer quotients and remainders."""
        known = V.graph.sizevars.statically_known_multiple_of

        def simpler(part: sympy.Expr) -> sympy.Expr:
            base, divisor, *modulus = part.args
            found = [symbol for symbol in lanes if base.has(symbol)]
            start = sympy.expand(base - sum(found))
            # A multiple of the length, and the position in the row.
            if len(found) != 1 or start.has(*found) or not known(start, length):
                return part
            if known(divisor, length):
                return sympy.Dummy(integer=True, nonnegative=True)
            if modulus and divisor == 1 and known(modulus[0], length):
                return sympy.Dummy(integer=True, nonnegative=True) + found[0]
            return part

        return index.replace(lambda part: isinstance(part, (FloorDiv, ModularIndexing)), simpler)

    def inner_length(self, prefix: str) -> sympy.Expr | None:
        """The number of neighbouring indices of a range that differ only in their innermost part.

        A range's index is split as `row * length + i`: parts with divisor 1 become `i`, all others depend on the row.

        Args:
            prefix: of the range.

        Returns:
            The length; None if the range cannot be split in this way.
        """
        sizevars = V.graph.sizevars
        tree = next(tree for tree in self.range_trees if tree.prefix == prefix)
        used = [entry for entry in self.entries.values() if entry.prefix == prefix]
        lengths = [entry.length if entry.divisor == 1 else entry.divisor for entry in used]
        length = min(lengths, key=sizevars.optimization_hint, default=tree.numel)
        if not all(sizevars.statically_known_multiple_of(size, length) for size in lengths):
            return None
        if not isinstance(length, sympy.Integer):
            return length
        shorter = math.gcd(int(length), *self._quotients(prefix))
        return sympy.Integer(shorter) if shorter >= SHORTEST_ROW else length

    def _quotients(self, prefix: str) -> Iterator[int]:
        """Divisors of an index in index expressions: in rows of such a length the quotients are constant."""
        statements = [statement for phase in self.phases for statement in (*phase.statements, *phase.after)]
        parts = {
            part
            for statement in statements
            for arg in statement.expr.args
            if isinstance(arg, sympy.Expr)
            for part in arg.atoms(FloorDiv, ModularIndexing)
        }
        for base, divisor, *modulus in (part.args for part in parts):
            entries = [self.range_tree_nodes[symbol] for symbol in base.free_symbols if symbol in self.range_tree_nodes]
            if any(entry.prefix == prefix and entry.divisor == 1 for entry in entries):
                size = modulus[0] if modulus and divisor == 1 else divisor
                yield from [int(size)] if isinstance(size, sympy.Integer) else ()
