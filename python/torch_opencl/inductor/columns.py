"""Kernels whose lanes lie along x, and those of which a GPU's work-item takes one x."""

import sympy

from .body import Body, hint

# Elements of a piece of a row that a CPU's work-item takes as one task.
PIECE = 4096
# Vectors of columns that a loop over a reduction sums at once: neighbouring lines of memory are fetched together, and
# the accumulators still fit in registers. Both sums of layer norm's gradient over 4096 rows of 1024 floats take 1.9 ms
# of all cores; with 4 vectors 2.4, with one 6.6 (PoCL).
COLUMN_VECTORS = 8
FEWEST_COLUMN_VECTORS = 2
# The most statements of a loop for which there are 8; longer ones take half as many, and so on.
COLUMN_STATEMENTS = 10


class Items(Body):
    """For GPUs: a work-item for each x, with a loop over the reduction inside."""

    def write(self) -> None:
        """Write the text."""
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
        """The number of pieces, at least."""
        return (self.kernel.numels["x"] + self.piece - 1) // self.piece

    def write(self) -> None:
        """Write the text."""
        if self.length is None:
            # Rows of one element: the index itself is all there is.
            self.line("const long length = 1, piece = 1, pieces = 1;")
        else:
            self.line(
                f"const long length = {self.size(self.length)}, piece = {self.piece}, "
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
                # What is the same for all of a row is computed before the loop over it.
                if self.lanes.may_be_hoisted(statement):
                    self.out.splice(self.lanes.text(statement, 1))
                    self.lanes.put_in_front(statement)
        self.line("long at = begin;")
        for width, _ in self.steps():
            with self.step("end", width):
                self.entries("x", "xrow", is_lane=True)
                for phase in self.phases:
                    self.statements(phase.statements, width)


class Columns(Pieces):
    """For CPUs: the same with loops over a reduction inside, such as sums of columns."""

    @property
    def copies(self) -> int:
        """Vectors of columns that are reduced at once."""
        longest = max(len(phase.statements) for phase in self.phases if phase.is_loop)
        copies = COLUMN_VECTORS
        while copies > 1 and longest > COLUMN_STATEMENTS * (COLUMN_VECTORS // copies):
            copies //= 2
        # Every core is to have a task, as long as rows of a task are not too short for memory.
        columns = hint(self.kernel.numels["x"])
        while (
            copies > FEWEST_COLUMN_VECTORS and columns < copies * self.target.vector_width * self.target.compute_units
        ):
            copies //= 2
        return copies

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
