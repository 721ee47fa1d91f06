"""A pytest plugin that writes a line of JSON when a test starts and when it ends, and leaves out finished tests.

The variables of :mod:`gpu_kit.check.testing` set the file, the tests to leave out and the shard of the tests to run.
"""

import json
import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from gpu_kit.check.environment import missing
from gpu_kit.check.testing import LOG, SHARD, SKIP

ERROR_LINES, ERROR_WIDTH = 6, 300
# Tests whose names end with a dtype are ordered by the dtype, the most used first, in case the time is not enough.
DTYPES = ("float32", "int64", "bool", "float16", "bfloat16", "int32", "float64")
# Messages about a missing module; the second is torch's.
LACKING = re.compile(r"No module named '(\w+)|(Numpy) is not available")


def rank(name: str) -> int:
    """Return the index of a test's dtype in :data:`DTYPES`; 0 for a test without one."""
    dtype = name.rstrip("]").rpartition("-")[2] if "[" in name else ""
    if dtype in DTYPES:
        return DTYPES.index(dtype)
    return len(DTYPES) if dtype in ("uint8", "int8", "int16", "complex64", "complex128") else 0


class TestLog:
    """The plugin.

    Args:
        log: the file that lines are appended to.
        skip: a file with the names of finished tests, one per line.
        shard: the tests to run: those whose index modulo the second integer equals the first.
    """

    __test__ = False

    def __init__(self, log: Path, skip: Path, shard: tuple[int, int]) -> None:
        self._file = log.open("a", buffering=1)
        self._skip = set(skip.read_text().splitlines())
        self._shard = shard

    def pytest_collection_modifyitems(self, config: pytest.Config, items: list[pytest.Item]) -> None:
        """Leave out the tests of other shards and finished tests; order by dtype."""
        place, count = self._shard
        mine = sorted(items[place::count], key=lambda item: rank(item.nodeid))
        self._write(collected=len(mine))
        wanted = [item for item in mine if item.nodeid not in self._skip]
        left_out = set(items) - set(wanted)
        config.hook.pytest_deselected(items=[item for item in items if item in left_out])
        items[:] = wanted

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        """Write which test starts: if the process dies, the last one is at fault."""
        self._write(start=nodeid)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Write the outcome of a test."""
        if report.outcome == "failed" and not lacks(report.longrepr):
            self._write(test=report.nodeid, outcome="failed", lines=error_lines(report.longrepr))
        elif report.outcome != "passed":
            self._write(test=report.nodeid, outcome="skipped")
        elif report.when == "call":
            self._write(test=report.nodeid, outcome="passed")

    def pytest_runtest_logfinish(self, nodeid: str) -> None:
        """Write that the cleanup of a test has finished."""
        self._write(end=nodeid)

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        """Write which file cannot be imported."""
        if report.outcome == "failed":
            outcome = "skipped" if lacks(report.longrepr) else "failed"
            self._write(test=report.nodeid or "collection", outcome=outcome, lines=error_lines(report.longrepr))

    def _write(self, **line: Any) -> None:
        self._file.write(json.dumps(line) + "\n")


def lacks(longrepr: Any) -> bool:
    """Return whether the error is only that the machine lacks a module that a kit cannot contain."""
    found = LACKING.findall("\n".join(error_lines(longrepr)))
    return any((module or other).lower() in missing() for module, other in found)


def error_lines(longrepr: Any) -> list[str]:
    """Return the first lines of an error, without its traceback."""
    crash = getattr(longrepr, "reprcrash", None)
    text = crash.message if crash else str(longrepr)
    lines: Sequence[str] = [line.rstrip() for line in text.splitlines() if line.strip()]
    # For a failed import, pytest shows the traceback first.
    lines = lines[:ERROR_LINES] if crash else lines[-ERROR_LINES:]
    return [line[:ERROR_WIDTH] for line in lines]


def pytest_configure(config: pytest.Config) -> None:
    """Register the plugin."""
    place, count = map(int, os.environ[SHARD].split("/"))
    config.pluginmanager.register(TestLog(Path(os.environ[LOG]), Path(os.environ[SKIP]), (place, count)))
