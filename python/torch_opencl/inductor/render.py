"""The text of a kernel: OpenCL C for CPU devices, in explicit vectors, and for GPU devices, an element to a work-item.

CPU devices. Lanes of a vector lie along one range: of a kernel without reductions its x; of one with reductions the
range along which more of the memory is contiguous. The index of that range is `row * length + i`, and vectors run along
i. A work-item takes a block of tasks: pieces of rows of x, or, where lanes lie along the reduction, all of an x.

GPU devices. The same with one lane. A work-item takes one x and loops over the reduction, or, where the reduction is
the contiguous range and long, a work-group takes one x and joins its items' results in local memory.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from enum import Enum, auto
from typing import TYPE_CHECKING

import sympy
from torch._inductor.codegen.common import IndentedBuffer
from torch._inductor.virtualized import V

from . import reductions
from .dtypes import STORAGE
from .lanes import Lanes
from .statements import Phase, Statement
from .target import Target

if TYPE_CHECKING:
    from .kernel import OpenCLKernel

# Elements of a piece of a row that a CPU's work-item takes as one task.
PIECE = 4096
# The same for loops over a reduction inside, in multiples of a vector.
COLUMNS = 64
# Below this many elements a launch has one work-item, and need not start before others do.
FEW = 8192
SHORT = 4096
# Tasks are split among so many work-items for each compute unit of a CPU.
ITEMS_PER_UNIT = 4
# Work-items of a GPU's group, and the shortest reduction that is worth one.
GROUP = 64
SHORTEST_GROUP_REDUCTION = 64


@dataclass
class Text:
    """A kernel's text.

    Attributes:
        source: OpenCL C.
        launch: the first arguments of a launch, as the wrapper's Python: global size, local size, and 1 where the
            launch need not start before others do.
    """

    source: str
    launch: tuple[str, str, str]


class Shape(Enum):
    """How the indices of a kernel are shared among work-items."""

    POINTWISE = auto()
    """No reduction; lanes along x."""
    ROWS = auto()
    """Lanes along the reduction: an item, or a GPU's group, for each x."""
    COLUMNS = auto()
    """Lanes along x: the reduction is a loop inside."""


def render(kernel: "OpenCLKernel", name: str) -> Text:
    """Make the text of a kernel.

    Args:
        kernel: its statements.
        name: of the kernel function.

    Returns:
        The text, and how it is launched.
    """
    return _Renderer(kernel, Target.current()).text(name)


class _Renderer:
    def __init__(self, kernel: "OpenCLKernel", target: Target) -> None:
        self.kernel = kernel
        self.target = target
        self.phases = [_live(phase, kernel.removed_buffers) for phase in kernel.phases]
        self.out = IndentedBuffer()
        # Local memory is declared in front of everything else.
        self.locals: list[str] = []
        self.numels = {tree.prefix: self._size(tree.numel) for tree in kernel.range_trees}
        self.shape = self._choose_shape()
        self.prefix = "r0_" if self.shape is Shape.ROWS else "x"
        self.is_group = self.shape is Shape.ROWS and not target.is_cpu
        self.length = kernel.inner_length(self.prefix) if target.is_cpu else None
        self.lanes = Lanes(kernel, self.phases, self.prefix, self.length is not None)
        self.widths = self._choose_widths()

    # --- choices

    def _choose_shape(self) -> Shape:
        kernel = self.kernel
        if not any(phase.is_loop for phase in self.phases):
            return Shape.POINTWISE
        if not self.target.is_cpu and self._hint(kernel.features.reduction_numel) < SHORTEST_GROUP_REDUCTION:
            return Shape.COLUMNS
        indices = [
            arg
            for phase in self.phases
            for statement in phase.statements
            if statement.expr.op in ("load", "store")
            for arg in statement.expr.args[1:2]
        ]
        contiguous = {
            prefix: sum(kernel.lane_stride(index, prefix, set(kernel.named)) == 1 for index in indices)
            for prefix in ("x", "r0_")
        }
        is_small = self._hint(kernel.numels["x"]) < 16
        return Shape.COLUMNS if contiguous["x"] > contiguous["r0_"] and not is_small else Shape.ROWS

    def _choose_widths(self) -> tuple[int, ...]:
        if not self.target.is_cpu or self.length is None or self.lanes.is_scalar_only:
            return (1,)
        width = self.target.vector_width
        if isinstance(self.length, sympy.Integer):
            if int(self.length) < width:
                return (1,)
            if int(self.length) % width == 0:
                return (width,)
        return (width, 1)

    # --- sizes

    def _size(self, expr: sympy.Expr) -> str:
        return self.kernel.kexpr(self.kernel.rename_indexing(expr))

    def _divisor(self, expr: sympy.Expr) -> str:
        """A size by which others are divided: those that depend on data may be 0."""
        text = self._size(expr)
        return text if isinstance(expr, sympy.Integer) else f"max((long)({text}), 1L)"

    def _hint(self, expr: sympy.Expr) -> int:
        return int(V.graph.sizevars.optimization_hint(expr))

    # --- text

    def text(self, name: str) -> Text:
        out = self.out
        with out.indent():
            {Shape.POINTWISE: self._flat, Shape.ROWS: self._rows, Shape.COLUMNS: self._flat}[self.shape]()
        # Behind the body, which may have used further sizes.
        source = IndentedBuffer()
        source.splice(self._signature(name))
        with source.indent():
            source.splice("".join(self.locals))
            source.splice(self._unpacked())
        source.splice(out)
        source.writeline("}")
        return Text(source.getvalue(), self._launch())

    def _signature(self, name: str) -> str:
        buffers, scalars = self.kernel.parameters()
        fields = [f"long {inner}_offset;" for inner, _, _ in buffers]
        fields += [f"{kind} {inner};" for inner, kind, _ in scalars]
        fields += [f"long message{i};" for i in range(len(self.kernel.messages))]
        if not fields:
            fields = ["long unused;"]
        params = [f"__global {STORAGE[dtype].pointer} *{inner}_memory" for inner, dtype, _ in buffers]
        params.append(f"const {name}_args args")
        if self.kernel.reports_faults:
            params.append("__global uchar *faults")
        group = "" if self.target.is_cpu else f"__attribute__((reqd_work_group_size({GROUP}, 1, 1))) "
        struct = f"typedef struct {{ {' '.join(fields)} }} {name}_args;\n"
        return f"{struct}__kernel {group}void {name}({', '.join(params)}) {{\n"

    def _unpacked(self) -> str:
        buffers, scalars = self.kernel.parameters()
        lines = []
        for inner, dtype, _ in buffers:
            kind = STORAGE[dtype].pointer
            address = f"(__global {kind} *)((__global uchar *){inner}_memory + args.{inner}_offset)"
            lines.append(f"__global {kind} *const {inner} = {address};\n")
        lines += [f"const {kind} {inner} = args.{inner};\n" for inner, kind, _ in scalars]
        return "".join(lines)

    def _launch(self) -> tuple[str, str, str]:
        kernel, pexpr = self.kernel, V.graph.wrapper_code.codegen_python_sizevar
        x = kernel.numels["x"]
        reduction = kernel.features.reduction_numel if kernel.features.is_reduction() else sympy.S.One
        work = self._hint(x * reduction)
        short = str(int(work <= SHORT))
        if not self.target.is_cpu:
            items = x * GROUP if self.is_group else (x + GROUP - 1) // GROUP * GROUP
            return f"max({GROUP}, {pexpr(sympy.expand(items))})", str(GROUP), short
        if work <= FEW:
            return "1", "1", short
        tasks = x if self.shape is Shape.ROWS else (x + self._piece() - 1) // self._piece()
        most = ITEMS_PER_UNIT * self.target.compute_units
        return f"max(1, min({most}, {pexpr(tasks)}))", "1", short

    def _piece(self) -> int:
        return COLUMNS if self.shape is Shape.COLUMNS else PIECE

    # --- loops over x with lanes along it

    def _flat(self) -> None:
        if not self.target.is_cpu:
            self._item_per_x()
            return
        if self.length is None:
            # Rows of one element: the index itself is all there is.
            self.out.writeline("const long length = 1, piece = 1, pieces = 1;")
        else:
            self.out.writeline(
                f"const long length = {self._divisor(self.length)}, piece = {self._piece()}, "
                "pieces = (length + piece - 1) / piece;"
            )
        with self._block(f"ITEM_TASKS(({self.numels['x']}) / length * pieces, first, last);\nTASKS_LOOP(first, last)"):
            self.out.writeline("const long xrow = task / pieces, begin = task % pieces * piece;")
            self.out.writeline("const long end = min(length, begin + piece);")
            self._entries("x", "xrow", is_lane=False)
            if self.shape is Shape.POINTWISE:
                self._hoisted(self.phases)
            self.out.writeline("long i = begin;")
            for width in self.widths:
                with self._block(_lane_loop("i", "end", width)):
                    self._entries("x", "xrow", is_lane=True)
                    self._phases_inside(width)

    def _item_per_x(self) -> None:
        self.out.writeline("const long xindex = get_global_id(0);")
        self.out.writeline(f"if (xindex >= {self.numels['x']}) return;")
        self._entries("x", "xindex")
        self._phases_inside(1)

    def _phases_inside(self, width: int) -> None:
        """Phases of an x, or of a vector of them; reductions are loops of single indices."""
        for phase in self.phases:
            if not phase.is_loop:
                self._statements(phase.statements, width)
                continue
            accumulators = reductions.of(phase, self.lanes)
            for accumulator in accumulators:
                self.out.splice(accumulator.declared(width))
            with self._block(f"for (long r0_index = 0; r0_index < {self.numels['r0_']}; r0_index++)"):
                self._entries("r0_", "r0_index")
                self._statements(phase.statements, width, accumulators)
            for accumulator in accumulators:
                self.out.splice(accumulator.result(width))
            self._statements(phase.after, width)

    # --- loops over x with lanes along the reduction

    def _rows(self) -> None:
        if self.is_group:
            once = f"xindex_once = xindex < {self.numels['x']}"
            with self._block(f"for (long xindex = get_group_id(0), {once}; xindex_once; xindex_once = 0)"):
                self._row()
        else:
            with self._block(f"ITEM_TASKS({self.numels['x']}, first, last);\nTASKS_LOOP(first, last)"):
                self.out.writeline("const long xindex = task;")
                self._row()

    def _row(self) -> None:
        self._entries("x", "xindex")
        for phase in self.phases:
            if not phase.is_loop:
                self._statements(phase.statements, 1)
                continue
            accumulators = reductions.of(phase, self.lanes)
            for accumulator in accumulators:
                for width in self.widths:
                    self.out.splice(accumulator.declared(width))
            self._reduction_loop(phase, accumulators)
            for accumulator in accumulators:
                if self.is_group:
                    self.locals += accumulator.local_memory(GROUP)
                    self.out.splice(accumulator.in_group(GROUP))
                else:
                    self.out.splice(accumulator.joined(self.widths))
            self._statements(phase.after, 1)

    def _reduction_loop(self, phase: Phase, accumulators: Sequence[reductions.Accumulator]) -> None:
        numel = self.numels["r0_"]
        if self.is_group:
            with self._block(f"for (long r0_index = get_local_id(0); r0_index < {numel}; r0_index += {GROUP})"):
                self._entries("r0_", "r0_index")
                self._statements(phase.statements, 1, accumulators)
            return
        if self.length is None:
            with self._block(f"for (long r0_index = 0; r0_index < {numel}; r0_index++)"):
                self._entries("r0_", "r0_index")
                self._statements(phase.statements, 1, accumulators)
            return
        self.out.writeline("{")
        with self._block(
            f"const long length = {self._divisor(self.length)};\n"
            f"for (long r0_row = 0; r0_row < ({numel}) / length; r0_row++)"
        ):
            self._entries("r0_", "r0_row", is_lane=False)
            self.out.writeline("long i = 0;")
            for width in self.widths:
                with self._block(_lane_loop("i", "length", width)):
                    self._entries("r0_", "r0_row", is_lane=True)
                    self._statements(phase.statements, width, accumulators)
        self.out.writeline("}")

    # --- pieces

    def _statements(
        self, statements: Sequence[Statement], width: int, accumulators: Sequence[reductions.Accumulator] = ()
    ) -> None:
        by_target = {accumulator.statement.targets[0]: accumulator for accumulator in accumulators}
        for statement in statements:
            if id(statement) in self.lanes.hoisted:
                continue
            if statement.expr.op == "reduce":
                self.out.splice(by_target[statement.targets[0]].updated(width, self._position(width)))
            else:
                self.out.splice(self.lanes.text(statement, width))

    def _position(self, width: int) -> str:
        """The flat index of a reduction, at a place inside its loop."""
        if self.shape is not Shape.ROWS or self.is_group or self.length is None:
            return "r0_index"
        return f"(r0_row * length + i{f' + LANES{width}' if width > 1 else ''})"

    def _hoisted(self, phases: Sequence[Phase]) -> None:
        """What is the same for all of a row is computed before the loop over it."""
        for phase in phases:
            for statement in phase.statements:
                if self.lanes.may_be_hoisted(statement):
                    self.out.splice(self.lanes.text(statement, 1))
                    self.lanes.put_in_front(statement)

    def _entries(self, prefix: str, base: str, is_lane: bool | None = None) -> None:
        """Declare the parts of a range's index.

        Args:
            prefix: of the range.
            base: the variable of the index, or of its row.
            is_lane: None where `base` is the whole index. Else true for the parts that depend on i, false for the
                others, which depend on the row alone.
        """
        sizevars = V.graph.sizevars
        for entry in self.kernel.entries.values():
            if entry.prefix != prefix:
                continue
            if is_lane is None or self.length is None:
                # A row of one element has no lanes: all depends on the row.
                if is_lane:
                    continue
                root = sympy.Symbol(base, integer=True, nonnegative=True)
                text = self._size(entry.expr.xreplace({entry.root.index_sym(): root}))
            elif (entry.divisor == 1) is not is_lane:
                continue
            elif is_lane and sizevars.statically_known_equals(entry.length, self.length):
                text = "i"
            elif is_lane and sizevars.statically_known_equals(entry.length, entry.root.numel):
                text = f"{base} * length + i"
            elif is_lane:
                text = f"{base} % (({self._size(entry.length)}) / length) * length + i"
            else:
                text = f"{base} / (({self._size(entry.divisor)}) / length)"
                if not sizevars.statically_known_equals(entry.divisor * entry.length, entry.root.numel):
                    text += f" % ({self._size(entry.length)})"
            self.out.writeline(f"const long {entry.name} = {text};")

    @contextmanager
    def _block(self, head: str) -> Iterator[None]:
        self.out.splice(head + " {\n")
        with self.out.indent():
            yield
        self.out.writeline("}")


def _lane_loop(variable: str, end: str, width: int) -> str:
    if width == 1:
        return f"for (; {variable} < {end}; {variable}++)"
    return f"for (; {variable} + {width} <= {end}; {variable} += {width})"


def _live(phase: Phase, removed: set[str]) -> Phase:
    """A phase without stores to buffers that nobody needs."""
    keep = [
        type(phase.statements)(statement for statement in statements if statement.buffer not in removed)
        for statements in (phase.statements, phase.after)
    ]
    return Phase(phase.is_loop, *keep)
