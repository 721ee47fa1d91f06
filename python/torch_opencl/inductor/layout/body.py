"""The parts that the sources of all kernels share: sizes, parts of indices, loops over vectors, statements."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

import sympy
from torch._inductor.codegen.common import IndentedBuffer
from torch._inductor.virtualized import V

from torch_opencl.inductor.codegen import reductions
from torch_opencl.inductor.codegen.kernel import OpenCLKernel
from torch_opencl.inductor.codegen.lanes import Lanes
from torch_opencl.inductor.codegen.statements import Phase, Statement, Value
from torch_opencl.inductor.codegen.target import Target

# Work-items of a group on GPUs.
GROUP = 64
# Work-items per compute unit of a CPU, among which tasks are split.
ITEMS_PER_UNIT = 4
# Up to this many elements a launch has one work-item.
ONE_ITEM_ELEMENTS = 8192


def hint(expr: sympy.Expr) -> int:
    """Return the likely value of a size."""
    return int(V.graph.sizevars.optimization_hint(expr))


@dataclass
class Vectors:
    """Vectors of x from `at` on, for which a kernel computes all phases.

    Attributes:
        width: the lanes of each vector.
        copies: the number of vectors.
        known: results of earlier phases, in arrays with an element for each vector.
    """

    width: int
    copies: int
    known: list[Value] = field(default_factory=list)


class Body:
    """The body of a kernel; subclasses write its loops.

    Attributes:
        prefix: of the range along which lanes lie.
        out: the source.
        locals: declarations of local memory, which precede everything else.
    """

    prefix = "x"

    def __init__(self, kernel: OpenCLKernel, phases: list[Phase], target: Target) -> None:
        self.kernel = kernel
        self.phases = phases
        self.target = target
        self.out = IndentedBuffer()
        self.locals: list[str] = []
        self.numels = {tree.prefix: self.size(tree.numel) for tree in kernel.range_trees}
        self.length = kernel.inner_length(self.prefix) if target.is_cpu else None
        self.lanes = Lanes(kernel, self.phases, self.prefix, self.length, target.vector_width)
        self.width = self._width()

    def _width(self) -> int:
        width = self.target.vector_width
        if not self.target.is_cpu or self.length is None or self.lanes.is_scalar_only:
            return 1
        return 1 if isinstance(self.length, sympy.Integer) and int(self.length) < width else width

    # --- overridden by subclasses

    def write(self) -> None:
        """Write the source."""
        raise NotImplementedError

    def tasks(self) -> sympy.Expr:
        """The number of tasks that the work-items share on CPUs."""
        raise NotImplementedError

    def group_items(self) -> sympy.Expr:
        """The number of work-items on GPUs."""
        return (self.kernel.numels["x"] + GROUP - 1) // GROUP * GROUP

    def global_size(self, work: int) -> str:
        """The number of work-items, as Python code of the wrapper.

        Args:
            work: the likely number of elements.

        Returns:
            An expression.
        """
        pexpr = V.graph.wrapper_code.codegen_python_sizevar
        if not self.target.is_cpu:
            return f"max({GROUP}, {pexpr(sympy.expand(self.group_items()))})"
        if work <= ONE_ITEM_ELEMENTS:
            return "1"
        return f"max(1, min({ITEMS_PER_UNIT * self.target.compute_units}, {pexpr(self.tasks())}))"

    # --- sizes and blocks

    def size(self, expr: sympy.Expr) -> str:
        """The source of a size."""
        return self.kernel.kexpr(self.kernel.rename_indexing(expr))

    def divisor(self, expr: sympy.Expr) -> str:
        """A size as a divisor: a size that depends on data may be 0."""
        text = self.size(expr)
        return text if isinstance(expr, sympy.Integer) else f"max((long)({text}), 1L)"

    def line(self, text: str) -> None:
        """Write a line."""
        self.out.writeline(text)

    @contextmanager
    def block(self, head: str) -> Iterator[None]:
        """Write a block of statements after a head, such as a loop's."""
        self.out.splice(head + " {\n")
        with self.out.indent():
            yield
        self.line("}")

    def steps(self, copies: int = 1) -> list[tuple[int, int]]:
        """The loops along the lanes: vectors for most of a length, smaller steps for its rest.

        Args:
            copies: vectors in a step of the first loop.

        Returns:
            For each loop the width of vectors and their number in a step.
        """
        if self.width == 1:
            return [(1, 1)]
        left = int(self.length) if isinstance(self.length, sympy.Integer) else None
        steps = []
        for width, count in ((self.width, copies), (self.width, 1), (1, 1)):
            if (width, count) in steps or (left is not None and left < width * count):
                continue
            steps.append((width, count))
            left = None if left is None else left % (width * count)
        return steps

    @contextmanager
    def step(self, end: str, width: int, copies: int = 1) -> Iterator[None]:
        """Write a loop of `at` along the lanes. Inside it `i` is the first lane's index.

        Args:
            end: the loop's end.
            width: of vectors.
            copies: vectors in a step; `copy` counts them.
        """
        span = width * copies
        head = f"for (; at + {span} <= {end}; at += {span})" if span > 1 else f"for (; at < {end}; at++)"
        with self.block(head), self.each_copy(copies):
            self.line(f"const long i = at + copy * {width};" if copies > 1 else "const long i = at;")
            yield

    @contextmanager
    def each_copy(self, copies: int, is_unrolled: bool = True) -> Iterator[None]:
        """Write a loop over the vectors of a step, which compilers unroll."""
        unrolled = reductions.unrolled(copies) if is_unrolled else ""
        with self.block(f"{unrolled}for (int copy = 0; copy < {copies}; copy++)"):
            yield

    # --- indices

    def entries(self, prefix: str, base: str, is_lane: bool | None = None, without: Sequence[str] = ()) -> None:
        """Declare the parts of a range's index.

        Args:
            prefix: of the range.
            base: the variable of the index, or of its row.
            is_lane: None if `base` is the whole index. Otherwise true for the parts that depend on i, false for the
                parts that depend only on the row.
            without: parts that are declared elsewhere.
        """
        sizevars = V.graph.sizevars
        for entry in self.kernel.entries.values():
            if entry.prefix != prefix or entry.name in without:
                continue
            if is_lane is None or self.length is None:
                # A row of one element has no lanes: all parts depend on the row.
                if is_lane:
                    continue
                root = sympy.Symbol(base, integer=True, nonnegative=True)
                text = self.size(entry.expr.xreplace({entry.root.index_sym(): root}))
            elif (entry.divisor == 1) is not is_lane:
                continue
            elif is_lane and sizevars.statically_known_equals(entry.length, self.length):
                text = "i"
            elif is_lane and sizevars.statically_known_equals(entry.length, entry.root.numel):
                text = f"{base} * length + i"
            elif is_lane:
                text = f"{base} % (({self.size(entry.length)}) / length) * length + i"
            else:
                text = f"{base} / (({self.size(entry.divisor)}) / length)"
                if not sizevars.statically_known_equals(entry.divisor * entry.length, entry.root.numel):
                    text += f" % ({self.size(entry.length)})"
            self.line(f"const long {entry.name} = {text};")

    # --- statements

    def statements(
        self,
        statements: Sequence[Statement],
        width: int,
        accumulators: Sequence[reductions.Accumulator] = (),
        position: str = "r0_index",
    ) -> None:
        """Write statements.

        Args:
            statements: of a phase.
            width: of vectors.
            accumulators: of the phase's reductions.
            position: the flat index of the reduction.
        """
        by_target = {accumulator.statement.targets[0]: accumulator for accumulator in accumulators}
        for statement in statements:
            if id(statement) in self.lanes.hoisted:
                continue
            if statement.expr.op == "reduce":
                self.out.splice(by_target[statement.targets[0]].updated(width, position))
            else:
                self.out.splice(self.lanes.text(statement, width))

    def phases_of_x(self, width: int, copies: int = 1) -> None:
        """Write all phases for one x, one vector or several vectors of x; reductions are loops over single indices.

        The result of a phase for later ones is an array with an element for each vector.

        Args:
            width: of vectors.
            copies: the number of vectors, from `at` on.
        """
        columns = Vectors(width, copies)
        for phase in self.phases:
            if not phase.is_loop:
                with self.copies_of_x(columns, phase.statements):
                    self.statements(phase.statements, width)
                continue
            accumulators = reductions.of(phase, self.lanes, copies)
            for accumulator in accumulators:
                self.out.splice(accumulator.declared(width))
            self.loop_of_x(phase, columns, accumulators)
            results = [accumulator.statement for accumulator in accumulators]
            with self.copies_of_x(columns, [*results, *phase.after]):
                for accumulator in accumulators:
                    self.out.splice(accumulator.result(width))
                self.statements(phase.after, width)

    def loop_of_x(
        self, phase: Phase, columns: Vectors, accumulators: Sequence[reductions.Accumulator], first: str = "0"
    ) -> None:
        """Write a loop over a reduction for vectors of x.

        Args:
            phase: its statements are the loop's body.
            columns: the vectors.
            accumulators: of the phase's reductions.
            first: the first index of the reduction.
        """
        with self.block(f"for (long r0_index = {first}; r0_index < {self.numels['r0_']}; r0_index++)"):
            self.entries("r0_", "r0_index")
            with self.copies_of_x(columns):
                self.statements(phase.statements, columns.width, accumulators)

    @contextmanager
    def copies_of_x(
        self, columns: Vectors, statements: Sequence[Statement] = (), is_unrolled: bool = True
    ) -> Iterator[None]:
        """Write a loop over vectors of x.

        Args:
            columns: the vectors.
            statements: statements whose results later loops need.
            is_unrolled: whether compilers unroll it.
        """
        width, copies = columns.width, columns.copies
        made = [target for statement in statements for target in statement.targets]
        for value in made:
            self.line(f"{self._type(value, width)} {value.name}_of[{copies}];")
        with self.each_copy(copies, is_unrolled):
            if self.target.is_cpu:
                self.line(f"const long i = at + copy * {width};")
                self.entries("x", "xrow", is_lane=True)
            for value in columns.known:
                self.line(f"{self._type(value, width)} {value.name} = {value.name}_of[copy];")
            yield
            for value in made:
                self.line(f"{value.name}_of[copy] = {value.name};")
        columns.known += made

    def _type(self, value: Value, width: int) -> str:
        return self.lanes.type(value.dtype, width if self.lanes.is_wide(value, width) else 1)
