"""Kernels whose lanes lie along x (CPUs), and kernels with a work-item per x (GPUs)."""

from collections.abc import Sequence
from functools import cached_property

import sympy
from torch._inductor.virtualized import V

from torch_opencl.inductor.codegen import reductions
from torch_opencl.inductor.codegen.statements import Phase, Statement

from .body import Body, Vectors, hint
from .splits import MANY
from .transpose import Transpose

# Elements of a piece of a row, which is one task on CPUs.
PIECE = 4096
# Vectors of columns that a loop over a reduction sums at once: neighbouring cache lines are fetched together, and the
# accumulators still fit in registers. Both sums of layer norm's gradient over 4096 rows of 1024 floats take 1.9 ms on
# all cores; with 4 vectors 2.4, with one 6.6 (PoCL).
COLUMN_VECTORS = 8
FEWEST_COLUMN_VECTORS = 2
# Bytes of accumulators, half of an L1 cache, if the elements are so many that they come from memory, which is faster
# for long rows. On two cores with AVX2 these sums of layer norm then take 1.3 ms, with 8 vectors 2.9.
CACHED_BYTES = 16 << 10
MOST_COLUMN_VECTORS = 64
# Loops with at most this many statements take 8 vectors; up to twice as many statements take 4, and so on.
COLUMN_STATEMENTS = 10


class Items(Body):
    """For GPUs: a work-item for each x, with a loop over the reduction inside."""

    def write(self) -> None:
        """Write the source."""
        self.line("const long xindex = get_global_id(0);")
        self.line(f"if (xindex >= {self.numels['x']}) return;")
        self.entries("x", "xindex")
        if any(phase.is_loop for phase in self.phases):
            self.phases_of_x(1)
            return
        for phase in self.phases:
            self.statements(phase.statements, 1)


class Pieces(Body):
    """For CPUs: vectors along the innermost part of x. A task is a piece of a row."""

    piece = PIECE

    def tasks(self) -> sympy.Expr:
        """A lower bound of the number of pieces."""
        return (self.kernel.numels["x"] + self.piece - 1) // self.piece

    def write(self) -> None:
        """Write the source."""
        if self.length is None:
            # Rows of one element, so that the row is the index.
            self.line("const long length = 1, piece = 1, pieces = 1;")
        else:
            self.line(
                f"const long length = {self.divisor(self.length)}, piece = {self.piece}, "
                "pieces = (length + piece - 1) / piece;"
            )
        with self.block(f"ITEM_TASKS(({self.numels['x']}) / length * pieces, first, last);\nTASKS_LOOP(first, last)"):
            self.line("const long xrow = task / pieces, begin = task % pieces * piece;")
            self.line("const long end = min(length, begin + piece);")
            self.entries("x", "xrow", is_lane=False)
            self.piece_of_row()

    def piece_of_row(self) -> None:
        """Write the loops over a piece."""
        for phase in self.phases:
            for statement in phase.statements:
                # Values that are the same for all of a row are computed before the loop over it.
                if self.lanes.may_be_hoisted(statement):
                    self.out.splice(self.lanes.text(statement, 1))
                    self.lanes.put_in_front(statement)
        self.line("long at = begin;")
        for width, _ in self.steps():
            with self.step("end", width):
                self.entries("x", "xrow", is_lane=True)
                for phase in self.phases:
                    self.statements(phase.statements, width)


class Columns(Pieces, Transpose):
    """For CPUs: `Pieces` with loops over a reduction inside, such as sums of columns.

    Buffers that are contiguous along the reduction, such as a matmul's input that a norm over channels writes, are
    transposed in tiles: one step of the reduction for each row of a tile.
    """

    @cached_property
    def copies(self) -> int:
        """Vectors of columns that are reduced at once."""
        loops = [phase for phase in self.phases if phase.is_loop]
        if (wide := self._wide_copies(loops)) > COLUMN_VECTORS:
            return wide
        longest = max(len(phase.statements) for phase in loops)
        copies = COLUMN_VECTORS
        while copies > 1 and longest > COLUMN_STATEMENTS * (COLUMN_VECTORS // copies):
            copies //= 2
        # Every core should have a task, but rows of a task must not be too short for memory bandwidth.
        columns = hint(self.kernel.numels["x"])
        while (
            copies > FEWEST_COLUMN_VECTORS and columns < copies * self.target.vector_width * self.target.compute_units
        ):
            copies //= 2
        return copies

    def _wide_copies(self, loops: Sequence[Phase]) -> int:
        """Vectors of columns whose accumulators are in a cache and not in registers; 0 if there are few elements."""
        width, numels = self.target.vector_width, self.kernel.numels
        columns, elements = hint(numels["x"]), hint(numels["x"]) * hint(numels["r0_"])
        if elements < MANY or any(self._turned(phase) for phase in loops):
            return 0
        statements = [statement for phase in loops for statement in phase.statements]
        parts = sum(len(statement.targets) for statement in statements if statement.expr.op == "reduce")
        most = max(1, min(MOST_COLUMN_VECTORS, CACHED_BYTES // (8 * width * max(1, parts))))
        length = hint(self.length) if self.length is not None else 0
        # Pieces of about equal size, at least one per core.
        pieces = max(-(-length // (width * most)), -(-self.target.compute_units * length // columns), 1)
        return length // width // pieces

    @property
    def piece(self) -> int:
        """Columns of a task."""
        return self.copies * self.target.vector_width

    def piece_of_row(self) -> None:
        """Write the loops over a piece."""
        self.line("long at = begin;")
        for width, copies in self.steps(self.copies):
            span = width * copies
            with self.block(f"for (; at + {span} <= end; at += {span})"):
                self.phases_of_x(width, copies)

    def loop_of_x(
        self, phase: Phase, columns: Vectors, accumulators: Sequence[reductions.Accumulator], first: str = "0"
    ) -> None:
        """Write a loop over a reduction for vectors of x: in tiles, then the rest step by step."""
        turned = self._turned(phase) if columns.width > 1 else []
        if not turned:
            super().loop_of_x(phase, columns, accumulators, first)
            return
        width = columns.width
        with self.block(""):
            self.line(f"long r0_first = {first};")
            with (
                self.block(f"for (; r0_first + {width} <= {self.numels['r0_']}; r0_first += {width})"),
                self.copies_of_x(columns, is_unrolled=False),
            ):
                self._tile(phase, turned, accumulators)
            super().loop_of_x(phase, columns, accumulators, "r0_first")

    def _turned(self, phase: Phase) -> list[Statement]:
        """Loads and stores of a phase that are contiguous along the reduction and not along the lanes."""
        length, numel = self.kernel.inner_length("r0_"), self.kernel.numels["r0_"]
        is_row = V.graph.sizevars.statically_known_equals
        is_whole = V.graph.sizevars.statically_known_multiple_of
        if length is None or not (is_row(length, numel) or is_whole(length, sympy.Integer(self.width))):
            return []
        found = []
        accesses = [statement for statement in phase.statements if statement.expr.op in ("load", "store")]
        for statement in accesses:
            index, mask = statement.expr.args[1], statement.expr.args[3 if statement.expr.op == "load" else 4]
            steps = (
                self.lanes.stride(statement.expr),
                self.kernel.lane_stride(index, "r0_", set(self.kernel.named), length),
            )
            if mask is None and steps[0] not in (0, 1) and steps[1] == 1:
                found.append(statement)
        # A tile is written after all of it has been read, so a buffer that is read and written must have one index.
        indices: dict[str, set[sympy.Expr]] = {}
        for statement in accesses:
            indices.setdefault(statement.expr.args[0], set()).add(statement.expr.args[1])
        return [s for s in found if s.expr.args[0] not in self.lanes.stored or len(indices[s.expr.args[0]]) == 1]

    def _tile(self, phase: Phase, turned: list[Statement], accumulators: Sequence[reductions.Accumulator]) -> None:
        arrays = self.arrays(turned)
        self.line("const long first_i = i;")
        self.declare(arrays)
        self.turn(arrays, [s for s in turned if s.expr.op == "load"], is_load=True)
        self.lanes.tiles = {key[:2]: f"{array}[tile_row]" for key, array in arrays.items()}
        with self.block(f"for (int tile_row = 0; tile_row < {self.width}; tile_row++)"):
            self.line("const long r0_index = r0_first + tile_row;")
            self.entries("r0_", "r0_index")
            self.statements(phase.statements, self.width, accumulators)
        self.lanes.tiles = {}
        self.turn(arrays, [s for s in turned if s.expr.op == "store"], is_load=False)

    def place_of_lane(self) -> None:
        """Declare the parts of the index of a lane's row of a tile in memory."""
        self.line("const long r0_index = r0_first, i = first_i + lane;")
        self.entries("r0_", "r0_index")
        self.entries("x", "xrow", is_lane=True)
