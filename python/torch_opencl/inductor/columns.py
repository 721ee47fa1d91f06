"""Kernels whose lanes lie along x, and those of which a GPU's work-item takes one x."""

import sympy

from .body import Body

# Elements of a piece of a row that a CPU's work-item takes as one task.
PIECE = 4096
# Vectors of columns that a loop over a reduction sums at once: neighbouring lines of memory are fetched together, and
# the accumulators still fit in registers.
COLUMN_VECTORS = 8
# The most statements of a loop for which there are so many; longer ones take half as many, and so on.
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
