"""Reductions whose lanes lie along the reduction: a row per x, for an item or, on GPUs, a group."""

from collections.abc import Sequence
from contextlib import nullcontext

import sympy

from torch_opencl.inductor.codegen import reductions
from torch_opencl.inductor.codegen.kernel import OpenCLKernel
from torch_opencl.inductor.codegen.statements import Phase, Statement
from torch_opencl.inductor.codegen.target import Target

from .body import GROUP, Body
from .row_cache import RowCache

# Vectors that a short loop folds at once, each into a separate accumulator: additions need not wait for each other.
VECTORS = 4
# Maximum number of statements of a short loop.
SHORT_LOOP = 8


class Rows(Body):
    """For CPUs: a task is a row. Values that later phases of a short row need are kept in private memory."""

    prefix = "r0_"

    def __init__(self, kernel: OpenCLKernel, phases: list[Phase], target: Target) -> None:
        super().__init__(kernel, phases, target)
        self.row_cache = None
        if target.is_cpu and self.width > 1:
            self.row_cache = RowCache(self.phases, self.lanes, kernel.features.reduction_numel)
            self.phases = self.row_cache.phases

    def tasks(self) -> sympy.Expr:
        """The number of rows."""
        return self.kernel.numels["x"]

    def write(self) -> None:
        """Write the source."""
        with self.block(f"ITEM_TASKS({self.numels['x']}, first, last);\nTASKS_LOOP(first, last)"):
            self.line("const long xindex = task;")
            self.row()

    def row(self) -> None:
        """Write all phases of a row."""
        self.entries("x", "xindex")
        if self.row_cache is not None:
            self.out.splice(self.row_cache.declared())
        for phase in self.phases:
            if not phase.is_loop:
                self.once(phase.statements)
                continue
            steps = self.steps(self._copies(phase))
            copies = max(copies for _, copies in steps)
            accumulators = reductions.of(phase, self.lanes, copies)
            widths = tuple(dict.fromkeys(width for width, _ in steps))
            for accumulator in accumulators:
                for width in widths:
                    self.out.splice(accumulator.declared(width))
            self.loop(phase, steps, accumulators)
            for accumulator in accumulators:
                self.join(accumulator, widths)
            self.once(phase.after)

    def once(self, statements: Sequence[Statement]) -> None:
        """Write statements that run once for a row.

        Args:
            statements: outside of its loops.
        """
        self.statements(statements, 1)

    @staticmethod
    def _copies(phase: Phase) -> int:
        reduces = any(statement.expr.op == "reduce" for statement in phase.statements)
        return VECTORS if reduces and len(phase.statements) <= SHORT_LOOP else 1

    def loop(
        self, phase: Phase, steps: Sequence[tuple[int, int]], accumulators: Sequence[reductions.Accumulator]
    ) -> None:
        """Write the loop over a row.

        Args:
            phase: its statements are the loop's body.
            steps: widths and numbers of vectors, from :meth:`steps`.
            accumulators: of its reductions.
        """
        numel = self.numels["r0_"]
        if self.length is None:
            with self.block(f"for (long r0_index = 0, copy = 0; r0_index < {numel}; r0_index++)"):
                self.entries("r0_", "r0_index")
                self.statements(phase.statements, 1, accumulators)
            return
        self.line("{")
        with self.block(
            f"const long length = {self.divisor(self.length)};\n"
            f"for (long r0_row = 0; r0_row < ({numel}) / length; r0_row++)"
        ):
            self.entries("r0_", "r0_row", is_lane=False)
            self.line("long at = 0;")
            for width, copies in steps:
                with self.step("length", width, copies):
                    self.line("const long position = r0_row * length + i;")
                    self.entries("r0_", "r0_row", is_lane=True)
                    position = f"(position{f' + LANES{width}' if width > 1 else ''})"
                    self.statements(phase.statements, width, accumulators, position)
        self.line("}")

    def join(self, accumulator: reductions.Accumulator, widths: tuple[int, ...]) -> None:
        """Write the code that joins a loop's accumulators into one result."""
        self.out.splice(accumulator.joined(widths))


class GroupRows(Rows):
    """For GPUs: a work-group takes a row, and joins its items' results in local memory.

    Attributes:
        used: pointers through which items may still read or write, without a barrier since.
    """

    def __init__(self, kernel: OpenCLKernel, phases: list[Phase], target: Target) -> None:
        super().__init__(kernel, phases, target)
        self.used: set[str] = set()

    def group_items(self) -> sympy.Expr:
        """A group for each row."""
        return self.kernel.numels["x"] * GROUP

    def write(self) -> None:
        """Write the source."""
        once = f"xindex_once = xindex < {self.numels['x']}"
        with self.block(f"for (long xindex = get_group_id(0), {once}; xindex_once; xindex_once = 0)"):
            self.row()

    def once(self, statements: Sequence[Statement]) -> None:
        """Write statements that every item of a group runs; a barrier separates accesses from updates in place.

        Only one item does atomic additions.

        Args:
            statements: outside of a row's loops.
        """
        for statement in statements:
            op = statement.expr.op
            # The barriers between steps of a reduction order only local memory.
            if op in ("store", "atomic_add") and statement.expr.args[0] in self.used:
                self.line("barrier(CLK_GLOBAL_MEM_FENCE);")
                self.used.clear()
            self.use([statement])
            with self.block("if (get_local_id(0) == 0)") if op == "atomic_add" else nullcontext():
                self.statements([statement], 1)

    def use(self, statements: Sequence[Statement]) -> None:
        """Record the pointers through which statements read and write."""
        accesses = [s.expr for s in statements if s.expr.op in ("load", "store", "atomic_add")]
        self.used.update(expr.args[0] for expr in accesses)

    def loop(
        self, phase: Phase, steps: Sequence[tuple[int, int]], accumulators: Sequence[reductions.Accumulator]
    ) -> None:
        """Write the loop over a row: neighbouring items take neighbouring elements."""
        numel = self.numels["r0_"]
        with self.block(f"for (long r0_index = get_local_id(0), copy = 0; r0_index < {numel}; r0_index += {GROUP})"):
            self.entries("r0_", "r0_index")
            self.statements(phase.statements, 1, accumulators)
        self.use(phase.statements)

    def join(self, accumulator: reductions.Accumulator, widths: tuple[int, ...]) -> None:
        """Write the code that joins the items' accumulators into one result."""
        self.locals += accumulator.local_memory(GROUP)
        self.out.splice(accumulator.in_group(GROUP))
