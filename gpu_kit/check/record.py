"""The report: one JSON file, and a page made from it. Both are replaced atomically at each new result.

Schema 1, an object with the keys

- ``schema``: 1. Readers reject other values.
- ``kit``: the build of the kit: ``version`` of the package, ``torch`` that it was built for.
- ``started``, ``updated``: ISO 8601, UTC.
- ``minutes``: the time limit of each run, the first one and those that resumed it.
- ``state``: "running", "interrupted" or "ended".
- ``device``: the device's name from the self-test, or the names from the drivers, or null.
- ``notes``: sentences about the run's environment (driver, loader, vendored modules).
- ``parts``: by name, in the order in which they run, each with

  - ``title``; ``summary``, a sentence; ``seconds``;
  - ``status``: "passed", "failed", "crashed", "hung", "cut", "running" or "not run";
  - ``finished``: whether nothing of it is left to do;
  - ``errors``: a list of {``where``, ``lines``};
  - ``tables``: a list of {``title``, ``columns``, ``rows``};
  - ``data``: the part's measurements;
  - ``tests``, null for other parts: ``total`` or null; ``slices``, the number of tests of each finished process; and by
    outcome ``passed`` and ``skipped``, lists of names, ``failed``, ``crashed`` and ``hung``, lines by name.

"cut" is a part that ran out of time without an error so far. ``--resume`` continues with parts that are not finished,
and with tests that have no outcome; a crash and a hang are outcomes.
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
        """Add an error: its subject, and its first or last lines."""
        self.errors.append({"where": where, "lines": lines})


@dataclass
class Report:
    """All results; see the module's description."""

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
        """True if at least one part has passed, and none failed, crashed or hung."""
        statuses = [part.status for part in self.parts.values()]
        return "passed" in statuses and not any(status in BAD for status in statuses)


def now() -> str:
    """Return the time, in UTC and to the second."""
    return datetime.now(timezone.utc).isoformat(timespec="seconds")


def load(folder: Path, kit: dict[str, str]) -> Report:
    """Read the report of a folder, to continue it.

    Args:
        folder: the report's folder.
        kit: the build of this kit.

    Returns:
        The report.

    Raises:
        ReportError: there is none, it cannot be read, or another kit has written it.
    """
    path = folder / JSON_NAME
    try:
        tree = json.loads(path.read_text())
        if tree.get("schema") != SCHEMA:
            raise ReportError(f"{path} has schema {tree.get('schema')}, but this kit supports {SCHEMA}.")
        parts = {
            name: Part(**{**entry, "tests": Tests(**entry["tests"]) if entry["tests"] else None})
            for name, entry in tree["parts"].items()
        }
        report = Report(**{**tree, "parts": parts})
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise ReportError(f"{path} cannot be resumed: {error}. Run without --resume to start over.") from error
    if report.kit != kit:
        raise ReportError(f"{path} was written by another kit ({report.kit}), this is {kit}: choose another --out.")
    return report


def store(report: Report, folder: Path, page: str) -> None:
    """Write the report and its page atomically: readers see the old or the new ones.

    Args:
        report: the report.
        folder: the target folder.
        page: the page made from it.
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
