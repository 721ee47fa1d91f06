"""Families of programs and their sources, as left by `make build`."""

import os
import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]
DECLARED = ROOT / "rust" / "kernels" / "source.rs"
# With packed arguments (rust/codegen/packed.rs).
SOURCES = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target")) / "release" / "kernels"
# Placeholder lines of a source for the cases of operators, and for the functions that only these call, as in
# source.rs.
CASES_LINE = "//@CASES@"
FUNCTIONS_LINE = "//@FUNCTIONS@"
# Programs that GPUs never build: Winograd convolutions, and GEMMs packed for a CPU's caches.
CPU_ONLY = {"winograd", "matmul", "matmul_gelu", "matmul_fused"}
# Programs that are not recorded: stub devices compute nothing, and fail the check of results before their use. The
# kernel is that of gemm_tile, and the epilogue that of gemm_local_fused.
UNRECORDED = {"gemm_tile_fused"}


class UnknownProgram(Exception):
    """A program belongs to no family of this tree."""


@dataclass(frozen=True)
class Family:
    """A family of `source.rs`.

    Attributes:
        name: its name.
        template: its concatenated sources.
    """

    name: str
    template: str

    def cases_of(self, source: str) -> str | None:
        """Return the cases of operators in a source, or None if it belongs to another family.

        The functions that the cases call come first, and end with CASES_LINE.
        """
        head, line, after = self.template.partition(CASES_LINE)
        if not line:
            return "" if source == head else None
        before, _, between = head.partition(FUNCTIONS_LINE)
        if not (source.startswith(before) and source.endswith(after)):
            return None
        body = source[len(before) : len(source) - len(after)]
        if not between:
            return body
        functions, found, cases = body.partition(between)
        if not found:
            return None
        return functions + CASES_LINE + cases if functions else cases

    def source(self, cases: str) -> str:
        """Return a program's source."""
        functions, _, cases = cases.rpartition(CASES_LINE)
        return self.template.replace(FUNCTIONS_LINE, functions).replace(CASES_LINE, cases)


@cache
def families() -> dict[str, Family]:
    """Read the families.

    Returns:
        The families by name.
    """
    _, _, text = DECLARED.read_text().partition("\nfamilies! {\n")
    declared = re.findall(r"^    \w+ (\w+):([\w\s]+);", text, re.MULTILINE)
    return {
        name: Family(name, "".join((SOURCES / f"{part}.cl").read_text() for part in parts.split()))
        for name, parts in declared
    }


def recognise(source: str) -> tuple[str, str]:
    """Find the family of a source.

    Args:
        source: the source that a driver was given.

    Returns:
        The family's name, and the cases of operators.

    Raises:
        UnknownProgram: no family has these parts.
    """
    for family in families().values():
        cases = family.cases_of(source)
        if cases is not None:
            return family.name, cases
    raise UnknownProgram("the native library built a program that is not from this tree. Run `make build`.")
