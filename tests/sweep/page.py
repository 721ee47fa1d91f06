"""docs/coverage.md: a table that the build makes of the op table, and one that a sweep has measured."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

PAGE = Path(__file__).resolve().parents[2] / "docs" / "coverage.md"
HEADING = "## Measured"
DTYPES = ("bool", "uint8", "int8", "int16", "int32", "int64", "float16", "bfloat16", "float32", "float64", "complex64",
          "complex128")  # fmt: skip
LETTERS = {
    "native": "n",
    "composed": "c",
    "host": "h",
    "fallback": "f",
    "unsupported": "u",
    "wrong": "w",
    "error": "e",
    "crash": "x",
    "hang": "x",
}
INTRODUCTION = f"""{HEADING}

Written by `make sweep`: each operator, module and optimizer of PyTorch's own test databases in each dtype, compared
with the CPU: as a function, with `out=`, in place, of tensors that are not contiguous, with gradients of first and
second order, in forward mode, by `torch.vmap`, and with bad arguments. It is right, and computed by

- `n`: a kernel of its own, `c`: other operators, of which PyTorch or this backend composes it,
- `h`: PyTorch's function for the CPU on mapped memory, by declaration,
- `f`: for a part at least, the CPU fallback, which warns;

or it is not: `u` is refused, `w` wrong, `e` an error, `x` a crash or a hang in one of these forms.
`tests/sweep/known.py` has the reasons. An empty cell: PyTorch's CPU backend does not take the dtype.

"""

Lines = dict[str, dict[str, str]]


def halves(text: str) -> tuple[str, str]:
    """Divide the page.

    Args:
        text: all of it.

    Returns:
        The part that the build makes, and the part that a sweep has written.
    """
    table, heading, measured = text.partition(f"\n{HEADING}\n")
    return table, heading + measured


def measured_lines(text: str) -> Lines:
    """Read the measured table.

    Args:
        text: the page.

    Returns:
        By subject, letters by dtype.
    """
    lines: Lines = {}
    for line in halves(text)[1].splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if line.startswith("| `") and len(cells) == len(DTYPES) + 1:
            lines[cells[0].strip("`")] = {name: cell for name, cell in zip(DTYPES, cells[1:], strict=True) if cell}
    return lines


def write_table(built: Path) -> None:
    """Replace the part that the build makes.

    Args:
        built: the build's.
    """
    PAGE.write_text(built.read_text() + halves(PAGE.read_text())[1])


def write_measured(records: Iterable[Any]) -> None:
    """Bring the measured part up to date.

    Args:
        records: of results; subjects without any keep their lines.
    """
    table = halves(PAGE.read_text())[0]
    PAGE.write_text(table + "\n" + INTRODUCTION + _table(_updated(measured_lines(PAGE.read_text()), records)))


def _updated(lines: Lines, records: Iterable[Any]) -> Lines:
    for record in records:
        kind, rest = record.pair.split(" ", 1)
        name, dtype = rest.rsplit(" ", 1)
        subject = name if kind == "op" else f"torch.optim.{name}" if kind == "optim" else f"torch.{name}"
        lines.setdefault(subject, {})[dtype] = LETTERS.get(record.status, "")
    return lines


def _table(lines: Lines) -> str:
    text = f"| | {' | '.join(DTYPES)} |\n|{' --- |' * (len(DTYPES) + 1)}\n"
    for subject, letters in sorted(lines.items()):
        if any(letters.values()):
            text += f"| `{subject}` | {' | '.join(letters.get(dtype, '') for dtype in DTYPES)} |\n"
    return text
