"""The report: one JSON file, and the page that is made of it, both replaced as a whole whenever something is known.

Schema 1, an object with the keys

- ``schema``: 1. A reader refuses what it does not know.
- ``kit``: what the kit was built from: ``version`` of the package, ``torch`` that it was built for.
- ``started``, ``updated``: ISO 8601, UTC.
- ``minutes``: the time given to each run, the first one and those that resumed it.
- ``state``: "running", "interrupted" or "ended".
- ``device``: the device's name as the self-test found it, or those that drivers have said, or null.
- ``notes``: sentences on what was set up for the run (driver, loader, vendored modules).
- ``parts``: by name, in the order in which they run, each with

  - ``title``; ``summary``, a sentence; ``seconds``;
  - ``status``: "passed", "failed", "crashed", "hung", "cut", "running" or "not run";
  - ``finished``: whether nothing of it is left to do;
  - ``errors``: a list of {``where``, ``lines``};
  - ``tables``: a list of {``title``, ``columns``, ``rows``};
  - ``data``: whatever the part has measured;
  - ``tests``, null for other parts: ``total`` or null; ``slices``, how many tests each process that has come to its
    end had; and by outcome ``passed`` and ``skipped``, lists of names, ``failed``, ``crashed`` and ``hung``, lines by
    name.

"cut" is a part that its time did not suffice for: nothing of it was wrong so far. ``--resume`` goes on with parts that
are not finished, and with the tests that have no outcome; a crash and a hang are outcomes.
"""

import json
import os
from dataclasses import asdict, dataclass, field
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

SCHEMA = 1
JSON_NAME, PAGE_NAME, LOG_NAME = "report.json", "page.md", "log.txt"
BAD = ("failed", "crashed", "hung")


class ReportError(Exception):
    """The folder holds a report that cannot be resumed; the message says why."""


@dataclass
class Tests:
    """Outcomes of the tests of a part; see the module's description."""

    total: int | None = None
    slices: dict[str, int] = field(default_factory=dict)
    passed: list[str] = field(default_factory=list)
    skipped: list[str] = field(default_factory=list)
    failed: dict[str, list[str]] = field(default_factory=dict)
    crashed: dict[str, list[str]] = field(default_factory=dict)
    hung: dict[str, list[str]] = field(default_factory=dict)

    def done(self) -> set[str]:
        """Return the names of the tests that have an outcome."""
        return {*self.passed, *self.skipped, *self.failed, *self.crashed, *self.hung}


@dataclass
class Part:
    """The outcome of a part; see the module's description."""

    title: str
    status: str = "not run"
    finished: bool = False
    seconds: float = 0.0
    summary: str = ""
    errors: list[dict[str, Any]] = field(default_factory=list)
    tables: list[dict[str, Any]] = field(default_factory=list)
    data: Any = None
    tests: Tests | None = None

    def fail(self, where: str, lines: list[str]) -> None:
        """Add an error: what it is about, and its first or last lines."""
        self.errors.append({"where": where, "lines": lines})


@dataclass
class Report:
    """Everything that is known; see the module's description."""

    kit: dict[str, str]
    started: str = ""
    updated: str = ""
    minutes: list[float] = field(default_factory=list)
    state: str = "running"
    device: str | None = None
    notes: list[str] = field(default_factory=list)
    parts: dict[str, Part] = field(default_factory=dict)
    schema: int = SCHEMA

    @property
    def good(self) -> bool:
        """True if something has passed, and nothing failed, crashed or hung."""
        statuses = [part.status for part in self.parts.values()]
        return "passed" in statuses and not any(status in BAD for status in statuses)


def now() -> str:
    """Return the time, in UTC and to the second."""
    return datetime.now(timezone.utc).isoformat(timespec="seconds")


def load(folder: Path, kit: dict[str, str]) -> Report:
    """Read the report of a folder, to go on with it.

    Args:
        folder: where it is.
        kit: what the kit was built from.

    Returns:
        The report.

    Raises:
        ReportError: there is none, it cannot be read, or another kit has written it.
    """
    path = folder / JSON_NAME
    try:
        tree = json.loads(path.read_text())
        if tree.get("schema") != SCHEMA:
            raise ReportError(f"{path} has the schema {tree.get('schema')}, and this kit knows {SCHEMA}.")
        parts = {
            name: Part(**{**entry, "tests": Tests(**entry["tests"]) if entry["tests"] else None})
            for name, entry in tree["parts"].items()
        }
        report = Report(**{**tree, "parts": parts})
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise ReportError(f"{path} cannot be resumed: {error}. Run without --resume to start anew.") from error
    if report.kit != kit:
        raise ReportError(f"{path} is of another kit ({report.kit}), this is {kit}: choose another --out.")
    return report


def store(report: Report, folder: Path, page: str) -> None:
    """Write the report and its page; whoever reads finds the old ones or the new ones, each as a whole.

    Args:
        report: the report.
        folder: where to.
        page: the page made of it.
    """
    # In this order the page is never older than the report.
    _replace(folder / PAGE_NAME, page)
    _replace(folder / JSON_NAME, json.dumps(asdict(report), indent=1) + "\n")


def _replace(path: Path, text: str) -> None:
    fresh = path.with_name(f".{path.name}.new")
    with fresh.open("w") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    os.replace(fresh, path)
