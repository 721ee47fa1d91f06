"""Parts that are one command, whose results are read from a file it writes or from its output."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gpu_kit.check.context import Context
from gpu_kit.check.environment import missing
from gpu_kit.check.process import TAIL_LINES, Ending
from gpu_kit.check.record import Part

# Arguments are a part, the values that the command has written as lines of JSON, and its output. It sets the summary,
# tables and errors.
Reader = Callable[[Part, list[Any], list[str]], None]


@dataclass(frozen=True, kw_only=True)
class CommandPart:
    """A part that is one command of Python.

    Attributes:
        name: its name in the report.
        title: describes the part.
        weight: its share of the time.
        arguments: of Python. "{results}" becomes the file for results, "{half}" half of its seconds, "{accelerator}"
            the name of the vendor's device in PyTorch ("none" without one).
        read: turns the results into the part's entry in the report; also called if the command was killed.
        most: the most seconds that it ever needs.
        least: the least useful seconds.
        fine: exit statuses of a command that has done its work.
        needs: modules that the machine may lack; it is not run without them.
    """

    name: str
    title: str
    weight: float
    arguments: list[str]
    read: Reader
    most: float = float("inf")
    least: float = 0
    fine: tuple[int, ...] = (0,)
    needs: tuple[str, ...] = ()

    def run(self, context: Context, part: Part, seconds: float) -> None:
        """Run the command; see :mod:`gpu_kit.check.record` for the part's outcome."""
        if lacking := [name for name in self.needs if name in missing()]:
            part.status, part.summary = "not run", f"needs {', '.join(lacking)}"
            return
        results = context.work / f"{self.name}.jsonl"
        results.unlink(missing_ok=True)
        limit = min(seconds, self.most)
        values = {"results": results, "half": max(1, int(limit / 2)), "accelerator": context.accelerator()}
        part.errors, part.tables, part.summary = [], [], ""
        ending, printed = context.run([word.format(**values) for word in self.arguments], limit)
        part.status = self._status(ending)
        part.finished = ending.how != "cut" or seconds >= self.most
        self.read(part, _read_lines(results), printed)
        if part.status != "passed":
            part.summary = "; ".join(filter(None, [part.summary, ending.words]))
        if ending.how in ("crashed", "hung") or (part.status == "failed" and not part.errors):
            part.fail(ending.words, printed[-TAIL_LINES:])
        if part.errors and part.status == "passed":
            part.status = "failed"

    def _status(self, ending: Ending) -> str:
        if ending.how == "exited":
            return "passed" if ending.code in self.fine else "failed"
        return ending.how


def _read_lines(path: Path) -> list[Any]:
    """Return the values of a file of JSON lines, without an incomplete last line."""
    values = []
    for line in path.read_text(errors="replace").splitlines() if path.exists() else ():
        try:
            values.append(json.loads(line))
        except ValueError:
            break
    return values
