"""Tiles as wide as a vector: read or written along another range than the lanes, and transposed in registers."""

from collections.abc import Sequence

import sympy
import torch

from torch_opencl.inductor.codegen.dtypes import STORAGE, compute_type
from torch_opencl.inductor.codegen.statements import Statement

from .body import Body

# Pointer, index and dtype of a transposed access.
Location = tuple[str, sympy.Expr, torch.dtype]


class Transpose(Body):
    """The source of such tiles; in it `tile_row` counts rows of the body, `lane` rows in memory."""

    def place_of_lane(self) -> None:
        """Declare the parts of the index of a lane's row of a tile in memory."""
        raise NotImplementedError

    @staticmethod
    def arrays(statements: Sequence[Statement]) -> dict[Location, str]:
        """Name the tiles.

        Args:
            statements: loads and stores that are transposed.

        Returns:
            A name for each location.
        """
        locations = dict.fromkeys(statement.expr.args[:3] for statement in statements)
        return {location: f"tile{number}" for number, location in enumerate(locations)}

    def declare(self, arrays: dict[Location, str]) -> None:
        """Declare the tiles.

        Args:
            arrays: their names.
        """
        for (_, _, dtype), array in arrays.items():
            self.line(f"{compute_type(dtype)}{self.width} {array}[{self.width}];")

    def turn(self, arrays: dict[Location, str], statements: Sequence[Statement], is_load: bool) -> None:
        """Read tiles and transpose them, or transpose and write them.

        Args:
            arrays: the tiles' names.
            statements: loads, or stores.
            is_load: true for loads.
        """
        if not statements:
            return
        turns = [f"turn{self.width}_{compute_type(s.expr.args[2])}({arrays[s.expr.args[:3]]});" for s in statements]
        if not is_load:
            self.out.writelines(turns)
        with self.block(f"UNROLL for (int lane = 0; lane < {self.width}; lane++)"):
            self.place_of_lane()
            for statement in statements:
                self.move(statement, f"{arrays[statement.expr.args[:3]]}[lane]", self.width)
        if is_load:
            self.out.writelines(turns)

    def move(self, statement: Statement, element: str, width: int) -> None:
        """Write the load or the store of a part of a tile.

        Args:
            statement: the load or the store.
            element: the part.
            width: elements in it.
        """
        pointer, index, dtype = statement.expr.args[:3]
        address = f"{pointer} + ({self.lanes.index(index)})"
        name = f"{width if width > 1 else ''}_{STORAGE[dtype].name}"
        if statement.expr.op == "load":
            self.line(f"{element} = load{name}({address});")
        else:
            head = "stream" if pointer in self.lanes.streamed else "store"
            self.line(f"{head}{name}({address}, {element});")
