"""Reductions: accumulators, folding of values into them, and joining of the accumulators of lanes and work-items."""

from collections.abc import Callable
from dataclasses import dataclass

import torch

from .conversions import converted, promoted
from .dtypes import NARROW, STORAGE, literal
from .lanes import Lanes
from .statements import Phase, Statement

# Loops over at most this many vectors are unrolled.
MOST_UNROLLED = 8
# Makes the statements that fold the second of two partial results into the first, from the names of their parts and
# the vector type of the first part.
Fold = Callable[[list[str], list[str], str], list[str]]


def _by_operator(text: str) -> Fold:
    def fold(a: list[str], b: list[str], kind: str) -> list[str]:
        return [f"{a[0]} = {text.format(a[0], b[0]).replace('@', kind)};"]

    return fold


def _extreme_index(sign: str) -> Fold:
    def fold(a: list[str], b: list[str], kind: str) -> list[str]:
        # NaN precedes all other values; the first of equal values wins.
        return [
            f"{{ const MASK_{kind} later = arg_{sign}_{kind}({a[0]}, {a[1]}, {b[0]}, {b[1]});",
            f"{a[0]} = later ? {b[0]} : {a[0]}; {a[1]} = INDEX_MASK_{kind}(later) ? {b[1]} : {a[1]}; }}",
        ]

    return fold


def _welford(a: list[str], b: list[str], kind: str) -> list[str]:
    # Chan, Golub and LeVeque, "Updating formulae and a pairwise algorithm for computing sample variances" (1979).
    mean, m2, weight = a
    return [
        f"{{ const {kind} total = {weight} + {b[2]}, delta = {b[0]} - {mean};",
        f"const {kind} share = total == 0 ? ({kind})(0) : {b[2]} / total;",
        f"{mean} += delta * share; {m2} += {b[1]} + delta * delta * {weight} * share; {weight} = total; }}",
    ]


def _welford_step(a: list[str], b: list[str], kind: str) -> list[str]:
    # Welford, "Note on a method for calculating corrected sums of squares and products" (1962). All lanes have folded
    # equally many values, so one division is enough.
    mean, m2, weight = a
    one = kind.rstrip("0123456789")
    first = weight if kind == one else f"{weight}.s0"
    return [
        f"{{ const {kind} delta = {b[0]} - {mean}; {weight} += 1;",
        f"{mean} += delta * (({one})1 / {first}); {m2} += delta * ({b[0]} - {mean}); }}",
    ]


def _welford_vectors(a: list[str], b: list[str], kind: str) -> list[str]:
    # Combines two states like _welford, if each has folded equally many values in all lanes.
    weight, one = a[2], kind.rstrip("0123456789")
    shares = f"const {one} own = {weight}.s0, other = {b[2]}.s0, share = other == 0 ? ({one})0 : other / (own + other);"
    return ["{ " + shares, *_combined(a, b, kind, "share", "own * share"), "}"]


def _welford_halves(a: list[str], b: list[str], kind: str) -> list[str]:
    # Combines two states like _welford, if both have folded equally many values.
    half = f"({kind.rstrip('0123456789')})0.5f"
    return ["{", *_combined(a, b, kind, half, f"{a[2]} * {half}"), "}"]


def _combined(a: list[str], b: list[str], kind: str, share: str, scale: str) -> list[str]:
    # `share` is the weight of b divided by the total weight; `scale` is `share` times the weight of a.
    mean, m2, weight = a
    return [
        f"const {kind} delta = {b[0]} - {mean}; {mean} += delta * {share};",
        f"{m2} += {b[1]} + delta * delta * ({scale}); {weight} += {b[2]};",
    ]


@dataclass(frozen=True)
class Kind:
    """A reduction.

    Attributes:
        fold: of two partial results.
        start: the identity of each part.
        has_index: true if the second part is a position.
        step: of a partial result and a single value, if a value is not a partial result itself.
        vectors: of vectors whose lanes have each folded equally many values.
        halves: of the halves of such a vector.
    """

    fold: Fold
    start: tuple[float, ...]
    has_index: bool = False
    step: Fold | None = None
    vectors: Fold | None = None
    halves: Fold | None = None


KINDS = {
    "sum": Kind(_by_operator("{0} + {1}"), (0,)),
    "prod": Kind(_by_operator("{0} * {1}"), (1,)),
    "any": Kind(_by_operator("{0} | {1}"), (0,)),
    "xor_sum": Kind(_by_operator("{0} ^ {1}"), (0,)),
    "max": Kind(_by_operator("maximum_@({0}, {1})"), (float("-inf"),)),
    "min": Kind(_by_operator("minimum_@({0}, {1})"), (float("inf"),)),
    "argmax": Kind(_extreme_index("max"), (float("-inf"), float("inf")), has_index=True),
    "argmin": Kind(_extreme_index("min"), (float("inf"), float("inf")), has_index=True),
    "welford_reduce": Kind(_welford, (0, 0, 0), step=_welford_step, vectors=_welford_vectors, halves=_welford_halves),
    "welford_combine": Kind(_welford, (0, 0, 0)),
}


def unrolled(copies: int) -> str:
    """The prefix of a loop over `copies` vectors: compilers unroll it if the vectors may fit in registers."""
    return "UNROLL " if 1 < copies <= MOST_UNROLLED else ""


class Accumulator:
    """The partial results of one reduction.

    Attributes:
        statement: the reduction.
        copies: vectors of partial results. In the source, `copy` is the index of the current one.
    """

    def __init__(self, statement: Statement, lanes: Lanes, copies: int) -> None:
        self.statement = statement
        self.lanes = lanes
        self.copies = copies
        self.name, *self.values = statement.expr.args
        self.kind = KINDS[self.name]
        if self.kind.has_index:
            dtype = promoted((self.values[0],))
            self.dtypes = [_as_number(dtype), torch.int64]
        else:
            self.dtypes = [_as_number(target.dtype) for target in statement.targets]

    # --- names and types

    def _wide(self, width: int) -> int:
        """Lanes of the accumulator in source of a width; a reduction over lanes has an accumulator for each."""
        if self.lanes.prefix != "x":
            return width
        return width if self.lanes.is_wide(self.statement.targets[0], width) else 1

    def _arrays(self, width: int) -> list[str]:
        base = self.statement.targets[0].name
        return [f"{base}_part{i}_{self._wide(width)}" for i in range(len(self.dtypes))]

    def _parts(self, width: int, copy: str | int = "copy") -> list[str]:
        return [f"{name}[{copy}]" for name in self._arrays(width)]

    def _copies(self, width: int) -> int:
        return self.copies if width > 1 else 1

    def _type(self, part: int, wide: int) -> str:
        return self.lanes.type(self.dtypes[part], wide)

    # --- source

    def declared(self, width: int) -> str:
        """Declare the accumulators of a width, empty."""
        wide, copies = self._wide(width), self._copies(width)
        lines = []
        for part, name in enumerate(self._arrays(width)):
            start = literal(self.kind.start[part], self.dtypes[part])
            kind = self._type(part, wide)
            lines.append(f"{kind} {name}[{copies}];\n")
            lines.append(
                f"{unrolled(copies)}for (int copy = 0; copy < {copies}; copy++) {name}[copy] = ({kind})({start});\n"
            )
        return "".join(lines)

    def updated(self, width: int, position: str) -> str:
        """Fold the next value into the accumulators.

        Args:
            width: of the source.
            position: the flat index of the reduction.

        Returns:
            Statements.
        """
        wide = self._wide(width)
        parts = self._parts(width)
        operands = [
            self.lanes.operand(value, dtype, width, wide)
            for value, dtype in zip(self.values, self.dtypes, strict=False)
        ]
        if self.kind.has_index and len(operands) == 1:
            operands.append(f"((long{wide if wide > 1 else ''})({position}))")
        fold = self.kind.step or self.kind.fold
        return "".join(f"{line}\n" for line in fold(parts, operands, self._type(0, wide)))

    def result(self, width: int) -> str:
        """Name the results of a reduction in which each lane has its own."""
        wide = self._wide(width)
        parts = self._parts(width)
        return self._named(parts, wide)

    def _named(self, parts: list[str], wide: int) -> str:
        sources = [1] if self.kind.has_index else range(len(parts))
        lines = []
        for target, part in zip(self.statement.targets, sources, strict=True):
            text = converted(parts[part], self.dtypes[part], target.dtype, wide)
            if target.dtype in NARROW:
                text = f"wrap_{STORAGE[target.dtype].name}{wide if wide > 1 else ''}({text})"
            lines.append(f"{self.lanes.type(target.dtype, wide)} {target.name} = {text};\n")
        return "".join(lines)

    def joined(self, widths: tuple[int, ...]) -> str:
        """Join the lanes of a loop's accumulators and of its tail's."""
        lines = []
        scalars: list[list[str]] = []
        for width in widths:
            parts, lanes = self._parts(width, 0), width
            for copy in range(1, self._copies(width)):
                lines += (self.kind.vectors or self.kind.fold)(parts, self._parts(width, copy), self._type(0, width))
            while lanes > 1:
                half = lanes // 2
                low, high = ([f"{part}_{side}{half}" for part in self._bases()] for side in ("low", "high"))
                for part, name in enumerate(parts):
                    kind = self._type(part, half)
                    lines.append(f"{kind} {low[part]} = {name}.lo, {high[part]} = {name}.hi;")
                lines += (self.kind.halves or self.kind.fold)(low, high, self._type(0, half))
                parts, lanes = low, half
            scalars.append(parts)
        first, *others = scalars
        for other in others:
            lines += self.kind.fold(first, other, self._type(0, 1))
        return "".join(f"{line}\n" for line in lines) + self._named(first, 1)

    def _bases(self) -> list[str]:
        return [f"{self.statement.targets[0].name}_{i}" for i in range(len(self.dtypes))]

    def local_memory(self, group: int) -> list[str]:
        """Declare the local memory in which a group's items join their results."""
        return [f"__local {self._type(part, 1)} {base}_local[{group}];\n" for part, base in enumerate(self._bases())]

    def in_group(self, group: int) -> str:
        """Join the accumulators of a group's items, by halves."""
        own = self._parts(1, 0)
        memory = [f"{base}_local" for base in self._bases()]
        other = [f"{base}_other" for base in self._bases()]
        lines = [f"{slot}[get_local_id(0)] = {name};" for slot, name in zip(memory, own, strict=True)]
        lines.append("barrier(CLK_LOCAL_MEM_FENCE);")
        lines.append(f"for (int half_group = {group // 2}; half_group > 0; half_group /= 2) {{")
        lines.append("if (get_local_id(0) < half_group) {")
        for part, (slot, name) in enumerate(zip(memory, other, strict=True)):
            lines.append(f"const {self._type(part, 1)} {name} = {slot}[get_local_id(0) + half_group];")
        lines += self.kind.fold(own, other, self._type(0, 1))
        lines += [f"{slot}[get_local_id(0)] = {name};" for slot, name in zip(memory, own, strict=True)]
        lines += ["}", "barrier(CLK_LOCAL_MEM_FENCE);", "}"]
        lines += [f"{name} = {slot}[0];" for slot, name in zip(memory, own, strict=True)]
        lines.append("barrier(CLK_LOCAL_MEM_FENCE);")
        return "".join(f"{line}\n" for line in lines) + self._named(own, 1)


def _as_number(dtype: torch.dtype) -> torch.dtype:
    """The dtype in which values are reduced: true is another value in a vector's lane than in a scalar."""
    return torch.int32 if dtype == torch.bool else dtype


def of(phase: Phase, lanes: Lanes, copies: int = 1) -> list[Accumulator]:
    """The accumulators of a phase's reductions.

    Args:
        phase: a loop.
        lanes: its lanes.
        copies: vectors in a step of the loop.

    Returns:
        One for each reduction.
    """
    return [Accumulator(statement, lanes, copies) for statement in phase.statements if statement.expr.op == "reduce"]
