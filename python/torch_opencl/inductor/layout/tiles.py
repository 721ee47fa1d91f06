"""Kernels that read or write some tensors along another range than the lanes: transposes and permutations.

`i` is the innermost part of x, along which lanes are neighbours; `j` is another part, along which such a tensor is
contiguous. A tile of both is read along j and transposed in registers or in local memory; the body then takes its rows.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import sympy
from torch._inductor.codegen.simd import IterationRangesEntry
from torch._inductor.virtualized import V
from torch.utils._sympy.functions import CeilDiv, FloorDiv

from torch_opencl.inductor.codegen.dtypes import compute_type
from torch_opencl.inductor.codegen.kernel import OpenCLKernel
from torch_opencl.inductor.codegen.statements import Phase, Statement
from torch_opencl.inductor.codegen.target import Target

from .body import GROUP, ITEMS_PER_UNIT, hint
from .transpose import Location, Transpose

# The longest sides of a task along i and j on CPUs. Such long runs along i keep memory streams going: a transpose of
# 2048 x 2048 floats, added to another matrix, takes 2.6 ms on all cores instead of 3.3 with 128 (PoCL).
SIDE_I, SIDE_J = 2048, 64
# The shortest side along i on CPUs.
SHORTEST_SIDE = 64
# The sides of a tile on GPUs.
GROUP_SIDE = 32
# The shortest ranges that are tiled.
SHORTEST = 16
# The longest body that is unrolled.
UNROLLED_STATEMENTS = 10
# Maximum number of tensors that are tiled, and of bytes of their tiles on GPUs: every device has that much local
# memory.
MOST_TILES = 4
MOST_BYTES = 32 << 10


@dataclass
class Turned:
    """Accesses along another part of x than the innermost one.

    Attributes:
        j: that part.
        loads: of such tensors.
        stores: to such tensors.
    """

    j: IterationRangesEntry
    loads: list[Statement]
    stores: list[Statement]


def turned(kernel: OpenCLKernel, phases: list[Phase]) -> Turned | None:
    """Find the accesses to transpose in a kernel without reductions.

    Args:
        kernel: its ranges.
        phases: its statements.

    Returns:
        The part of x along which most such accesses are contiguous, and these accesses; None without any.
    """
    length = kernel.inner_length("x")
    if length is None or hint(length) < SHORTEST:
        return None
    statements = [s for phase in phases for s in phase.statements if s.expr.op in ("load", "store")]
    stored: dict[str, set[sympy.Expr]] = {}
    for statement in statements:
        if statement.expr.op == "store":
            stored.setdefault(statement.expr.args[0], set()).add(statement.expr.args[1])
    found: dict[str, Turned] = {}
    for statement in statements:
        pointer, index = statement.expr.args[:2]
        if kernel.lane_stride(index, "x", set(kernel.named), length) in (0, 1):
            continue
        is_load = statement.expr.op == "load"
        mask = statement.expr.args[3 if is_load else 4]
        # A tensor that the kernel both reads and writes must have a single index.
        if mask is not None or (is_load and stored.get(pointer, {index}) != {index}):
            continue
        for entry in kernel.entries.values():
            if entry.prefix == "x" and entry.divisor != 1 and _is_along(kernel, index, entry, length):
                which = found.setdefault(entry.name, Turned(entry, [], []))
                (which.loads if is_load else which.stores).append(statement)
    which = max(found.values(), key=lambda which: len(which.loads) + len(which.stores), default=None)
    return None if which is None else _limited(which)


def _limited(which: Turned) -> Turned:
    """The accesses whose tiles fit; a location that is loaded and stored has one tile, for both or neither."""
    tiles: set[Location] = set()
    left = MOST_BYTES
    for statement in (*which.loads, *which.stores):
        location = statement.expr.args[:3]
        size = GROUP_SIDE * (GROUP_SIDE + 1) * (8 if compute_type(location[2]) in ("long", "ulong", "double") else 4)
        if location not in tiles and len(tiles) < MOST_TILES and size <= left:
            tiles.add(location)
            left -= size
    kept = ([s for s in statements if s.expr.args[:3] in tiles] for statements in (which.loads, which.stores))
    return Turned(which.j, *kept)


def _is_along(kernel: OpenCLKernel, index: sympy.Expr, j: IterationRangesEntry, length: sympy.Expr) -> bool:
    """Return whether neighbours along j, a part of x, are neighbours in memory."""
    sizevars = V.graph.sizevars
    symbol = j.symbol()
    if not index.has(symbol) or hint(j.length) < SHORTEST or any(s.name in kernel.named for s in index.free_symbols):
        return False
    for other in index.free_symbols:
        entry = kernel.range_tree_nodes.get(other)
        if entry is None or entry is j:
            continue
        is_inner = entry.divisor == 1 and sizevars.statically_known_equals(entry.length, length)
        if not is_inner and not is_apart(entry, j):
            return False
    step = sizevars.simplify(sympy.expand(index.xreplace({symbol: symbol + 1}) - index))
    return step == 1


def is_apart(entry: IterationRangesEntry, j: IterationRangesEntry) -> bool:
    """Return whether a part of x is the same for all of j."""
    known = V.graph.sizevars.statically_known_multiple_of
    return known(entry.divisor, j.divisor * j.length) or known(j.divisor, entry.divisor * entry.length)


class Tiles(Transpose):
    """For CPUs: a task is a square of `i` and `j`, in tiles as wide as a vector; its edges are done row by row."""

    def __init__(self, kernel: OpenCLKernel, phases: list[Phase], target: Target, which: Turned) -> None:
        super().__init__(kernel, phases, target)
        self.inner = kernel.inner_length("x")
        self.which = which
        self.j = which.j
        self.apart = [
            e.name for e in kernel.entries.values() if e.prefix == "x" and e.divisor != 1 and is_apart(e, which.j)
        ]
        self.side_i, self.side_j = self._sides()

    def _sides(self) -> tuple[int, int]:
        """Sides of a task's square along i and j: shorter if there would be fewer tasks than work-items."""
        length, count, numel = hint(self.inner), hint(self.j.length), hint(self.kernel.numels["x"])
        items, side_i, side_j = ITEMS_PER_UNIT * self.target.compute_units, SIDE_I, SIDE_J
        while numel // (min(side_i, length) * min(side_j, count)) < items and side_i > SHORTEST_SIDE:
            side_i, side_j = (side_i, side_j // 2) if side_j > self.target.vector_width else (side_i // 2, side_j)
        return side_i, side_j

    def tasks(self) -> sympy.Expr:
        """A lower bound of the number of squares."""
        square = min(self.side_i, hint(self.inner)) * min(self.side_j, hint(self.j.length))
        return (self.kernel.numels["x"] + square - 1) // square

    def write(self) -> None:
        """Write the source."""
        self._sizes(self.side_i, self.side_j)
        rest = f"({self.numels['x']}) / length / count"
        with self.block(f"ITEM_TASKS({rest} * down * across, first, last);\nTASKS_LOOP(first, last)"):
            for name, task, end in (("i", "task % across", "length"), ("j", "task / across % down", "count")):
                side = self.side_i if name == "i" else self.side_j
                self.line(f"const long {name}_first = {task} * {side};")
                self.line(f"const long {name}_last = min({end}, {name}_first + {side});")
            self.line("const long outer = task / across / down;")
            self.line("const long row = outer / step * count * step + outer % step;")
            # The parts that do not depend on j.
            others = [e.name for e in self.kernel.entries.values() if e.name not in self.apart]
            self.entries("x", "row", is_lane=False, without=others)
            width = self.width
            self.line(f"const long i_whole = i_first + (i_last - i_first) / {width} * {width};")
            self.line(f"const long j_whole = j_first + (j_last - j_first) / {width} * {width};")
            with self.block(
                f"for (long tile_j = j_first; tile_j < j_whole; tile_j += {width})\n"
                f"for (long tile_i = i_first; tile_i < i_whole; tile_i += {width})"
            ):
                self._tile()
            self._edges()

    def _sizes(self, along_i: int, along_j: int) -> None:
        """Declare the sizes of x and of its division into squares."""
        length, count = self.size(self.inner), self.size(self.j.length)
        self.line(f"const long length = {length}, count = {count}, step = ({self.size(self.j.divisor)}) / length;")
        self.line(
            f"const long across = (length + {along_i - 1}) / {along_i}, down = (count + {along_j - 1}) / {along_j};"
        )

    # --- a tile

    def _tile(self) -> None:
        width = self.width
        arrays = self._arrays()
        self.declare(arrays)
        self.turn(arrays, self.which.loads, is_load=True)
        self.lanes.tiles = {key[:2]: f"{array}[tile_row]" for key, array in arrays.items()}
        # A tile stays in registers if the body is short.
        unrolled = "UNROLL " if sum(len(phase.statements) for phase in self.phases) <= UNROLLED_STATEMENTS else ""
        with self.block(f"{unrolled}for (int tile_row = 0; tile_row < {width}; tile_row++)"):
            self._place("tile_j + tile_row", "tile_i")
            self._body(width)
        self.lanes.tiles = {}
        self.turn(arrays, self.which.stores, is_load=False)

    def _arrays(self) -> dict[Location, str]:
        return self.arrays((*self.which.loads, *self.which.stores))

    def place_of_lane(self) -> None:
        """Declare the parts of x at the beginning of a lane's row of a tile in memory."""
        self._place("tile_j", "tile_i + lane")

    def _place(self, j: str, i: str) -> None:
        """Declare the parts of x at a location."""
        self.line(f"const long i = {i}, {self.j.name} = {j}, xrow = row + {self.j.name} * step;")
        self.entries("x", "xrow", is_lane=False, without=[*self.apart, self.j.name])
        self.entries("x", "xrow", is_lane=True)

    def _body(self, width: int) -> None:
        for phase in self.phases:
            self.statements(phase.statements, width)

    # --- the edges of a square

    def _edges(self) -> None:
        left = [self._is_whole(self.length), self._is_whole(self.j.length)]
        if all(left):
            return
        with self.block("for (long edge_j = j_first; edge_j < j_last; edge_j++)"):
            self.line("long at = edge_j < j_whole ? i_whole : i_first;")
            for width in (self.width, 1):
                # Whole vectors are left only below the tiles, single elements only beside them.
                if left[1 if width > 1 else 0]:
                    continue
                with self.step("i_last", width):
                    self.line(f"const long {self.j.name} = edge_j, xrow = row + edge_j * step;")
                    self.entries("x", "xrow", is_lane=False, without=[*self.apart, self.j.name])
                    self.entries("x", "xrow", is_lane=True)
                    self._body(width)

    def _is_whole(self, length: sympy.Expr) -> bool:
        return V.graph.sizevars.statically_known_multiple_of(length, sympy.Integer(self.width))


class GroupTiles(Tiles):
    """For GPUs: a work-group transposes a tile in local memory, so that neighbouring items access neighbours."""

    def group_items(self) -> sympy.Expr:
        """A group for each tile."""
        length, count = self.inner, self.j.length
        rest = FloorDiv(self.kernel.numels["x"], length * count)
        return rest * CeilDiv(length, sympy.Integer(GROUP_SIDE)) * CeilDiv(count, sympy.Integer(GROUP_SIDE)) * GROUP

    def write(self) -> None:
        """Write the source."""
        self._sizes(GROUP_SIDE, GROUP_SIDE)
        self.line(f"const long i_first = get_group_id(0) % across * {GROUP_SIDE};")
        self.line(f"const long j_first = get_group_id(0) / across % down * {GROUP_SIDE};")
        self.line("const long outer = get_group_id(0) / across / down;")
        self.line("const long row = outer / step * count * step + outer % step;")
        self.line(f"const int beside = get_local_id(0) % {GROUP_SIDE}, below = get_local_id(0) / {GROUP_SIDE};")
        arrays = self._arrays()
        for (_, _, dtype), array in arrays.items():
            # One more column, so that a column spreads over all banks.
            self.locals.append(f"__local {compute_type(dtype)} {array}[{GROUP_SIDE}][{GROUP_SIDE + 1}];\n")
        if self.which.loads:
            self._in_group(arrays, self.which.loads)
            self.line("barrier(CLK_LOCAL_MEM_FENCE);")
        self.lanes.tiles = {key[:2]: f"{array}[beside][tile_row]" for key, array in arrays.items()}
        with self._items("tile_row", "beside", "tile_row"):
            self._body(1)
        self.lanes.tiles = {}
        if self.which.stores:
            self.line("barrier(CLK_LOCAL_MEM_FENCE);")
            self._in_group(arrays, self.which.stores)

    def _in_group(self, arrays: dict[Location, str], statements: list[Statement]) -> None:
        with self._items("lane", "lane", "beside"):
            for statement in statements:
                self.move(statement, f"{arrays[statement.expr.args[:3]]}[lane][beside]", 1)

    @contextmanager
    def _items(self, row: str, i: str, j: str) -> Iterator[None]:
        """A loop over an item's rows of a tile, with the parts of x there."""
        with self.block(f"for (int {row} = below; {row} < {GROUP_SIDE}; {row} += {GROUP // GROUP_SIDE})"):
            self.line(f"const long place_i = i_first + {i}, place_j = j_first + {j};")
            with self.block("if (place_i < length && place_j < count)"):
                self.line("const long xindex = (row + place_j * step) * length + place_i;")
                self.entries("x", "xindex")
                yield
