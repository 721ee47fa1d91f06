"""Parts that are tests: each slice runs in a separate process and continues after a test that crashes or hangs."""

import json
import os
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from gpu_kit.check.context import Context
from gpu_kit.check.process import INTERVAL, Ending, tail
from gpu_kit.check.record import Part, Tests

# Variables of the plugin gpu_kit.check.test_log. This module does not import pytest, which only children surely have.
LOG, SKIP, SHARD = "GPU_CHECK_TEST_LOG", "GPU_CHECK_SKIP", "GPU_CHECK_SHARD"
# pytest's exit statuses: all passed, some failed, none were left to run.
RAN = (0, 1, 5)
# A slice is abandoned after this many crashes or hangs: the driver no longer works.
MOST_CRASHES, MOST_HANGS = 12, 3
SAVE_SECONDS = 3.0
# Import and collection may be silent for this many times the patience of a test.
IMPORT_PATIENCE = 4


@dataclass(frozen=True, kw_only=True)
class TestPart:
    """Files of tests, each with a number of processes.

    Attributes:
        name: its name in the report.
        title: describes the part.
        weight: its share of the time.
        files: files or tests below tests/python (``ops/test_ops.py::test_forward``), and the number of their shards.
        least: the least useful seconds.
    """

    __test__ = False

    name: str
    title: str
    weight: float
    files: Mapping[str, int]
    least: float = 0

    def run(self, context: Context, part: Part, seconds: float) -> None:
        """Run the tests that have no outcome yet; see :mod:`gpu_kit.check.record` for the part's outcome."""
        part.tests = part.tests or Tests()
        end = time.monotonic() + seconds
        slices = [Slice(file, (place, count)) for file, count in self.files.items() for place in range(count)]
        waiting = [each for each in slices if each.words not in part.tests.slices]
        active, saved = [], time.monotonic()
        collected = dict(part.tests.slices)
        try:
            while active or (waiting and time.monotonic() < end):
                while waiting and len(active) < context.jobs and time.monotonic() < end:
                    active.append(SliceRun(waiting.pop(0), context, part, end, len(waiting)))
                for running in list(active):
                    if running.step():
                        active.remove(running)
                    if running.collected is not None:
                        collected[running.slice.words] = running.collected
                    if running.finished:
                        part.tests.slices[running.slice.words] = running.collected or 0
                part.tests.total = sum(collected.values()) if len(collected) == len(slices) else None
                if time.monotonic() - saved > SAVE_SECONDS:
                    part.summary = summary_of(part.tests)
                    context.save()
                    saved = time.monotonic()
                time.sleep(INTERVAL)
        finally:
            for running in active:
                running.kill()
        part.finished = len(part.tests.slices) == len(slices)
        part.status = status_of(part)
        part.summary = summary_of(part.tests)


@dataclass(frozen=True)
class Slice:
    """The tests of one process: a file, and a shard (index, count) of its tests."""

    file: str
    shard: tuple[int, int]

    @property
    def words(self) -> str:
        """Its name in the report."""
        place, count = self.shard
        return self.file if count == 1 else f"{self.file}, {place + 1} of {count}"


@dataclass
class SliceRun:
    """The processes of a slice, one after another.

    Attributes:
        slice: the tests.
        context: of all parts.
        part: receives the outcomes.
        end: the time limit, as a value of ``time.monotonic()``.
        number: a unique number for the names of its files.
        collected: the number of tests, once it is known.
        finished: whether no test is left.
    """

    slice: Slice
    context: Context
    part: Part
    end: float
    number: int
    collected: int | None = None
    finished: bool = False
    _current: str | None = None
    _read: int = 0
    _started: float = 0.0
    _crashes: int = 0
    _hangs: int = 0
    _log: Path = field(init=False)
    _lines: Path = field(init=False)

    def __post_init__(self) -> None:
        self._log, self._lines = (self.context.work / f"slice-{self.number}.{suffix}" for suffix in ("txt", "jsonl"))
        self._start()

    def step(self) -> bool:
        """Read new results; return whether the slice has ended, for any reason."""
        ending = self._running.poll()
        for line in self._new_lines():
            self._take(line)
        if ending is None:
            return False
        self._keep_log()
        if self._goes_on(ending):
            self._start()
            return False
        return True

    def kill(self) -> None:
        """Kill the process; tests that have ended keep their outcomes."""
        self._running.kill()
        for line in self._new_lines():
            self._take(line)
        self._keep_log()

    def _start(self) -> None:
        skip = self.context.work / f"slice-{self.number}.skip"
        skip.write_text("\n".join(self.part.tests.done()))
        self._lines.write_text("")
        self._log.write_text("")
        self._read, self._current = 0, None
        place, count = self.slice.shard
        variables = {
            LOG: str(self._lines),
            SKIP: str(skip),
            SHARD: f"{place}/{count}",
            # Plugins of the machine must not affect the tests.
            "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
            # Each process gets its part of the cores.
            "OMP_NUM_THREADS": str(max(1, (os.cpu_count() or 1) // self.context.jobs)),
        }
        arguments = [
            *("-X", "faulthandler", "-m", "pytest", "-c", "pyproject.toml", "-p", "gpu_kit.check.test_log"),
            *("-p", "no:cacheprovider", "-q", "--tb=short", "--continue-on-collection-errors"),
            f"tests/python/{self.slice.file}",
        ]
        seconds = max(0.0, self.end - time.monotonic())
        self._started = time.monotonic()
        self._running = self.context.start(arguments, seconds, extra=variables, log=self._log, progress=self._progress)

    def _progress(self) -> float:
        """Return a value that changes with each line, and at first with time, because importing torch is silent."""
        size, seconds = self._lines.stat().st_size, time.monotonic() - self._started
        return seconds if not size and seconds < IMPORT_PATIENCE * self.context.patience else size

    def _goes_on(self, ending: Ending) -> bool:
        """Record how the process ended, and return whether to run the tests after the one that ended it."""
        tests, current = self.part.tests, self._current
        if ending.how == "cut":
            return False
        if ending.how == "exited" and current is None:
            self.finished = True
            # A file that cannot be imported already has an outcome: failed, or skipped for a missing module.
            file = f"tests/python/{self.slice.file.partition('::')[0]}"
            is_known = file in tests.skipped or any(name.startswith(file) for name in tests.failed)
            if ending.code not in RAN and not is_known:
                self.part.fail(f"{self.slice.words}: {ending.words}", tail(self._log))
            return False
        if current is None:
            # Before the first test or after the last one, so there is no test to leave out.
            self.finished = True
            self.part.fail(f"{self.slice.words}: {ending.words}, outside of tests", tail(self._log))
            return False
        # A test that dies in its cleanup had passed.
        tests.passed[:] = [name for name in tests.passed if name != current]
        if ending.how == "hung":
            tests.hung[current] = [f"{ending.words} ({self.context.patience:g} s)"]
            self._hangs += 1
        else:
            tests.crashed[current] = [ending.words, *crash_lines(tail(self._log))]
            self._crashes += 1
        if self._crashes >= MOST_CRASHES or self._hangs >= MOST_HANGS:
            self.finished = True
            self.part.fail(self.slice.words, [f"abandoned after {self._crashes} crashes and {self._hangs} hangs"])
            return False
        return True

    def _new_lines(self) -> Iterator[dict]:
        with self._lines.open("rb") as file:
            file.seek(self._read)
            text = file.read()
        # The last line may be incomplete.
        whole = text[: text.rfind(b"\n") + 1]
        self._read += len(whole)
        return map(json.loads, whole.splitlines())

    def _take(self, line: dict) -> None:
        tests = self.part.tests
        if "collected" in line:
            self.collected = line["collected"]
        elif "start" in line:
            self._current = line["start"]
        elif "end" in line:
            self._current = None
        else:
            name = line["test"]
            if line["outcome"] == "failed":
                tests.failed[name] = line["lines"]
                # A test whose teardown failed had passed before.
                tests.passed[:] = [other for other in tests.passed if other != name]
            elif name not in tests.failed and name not in (names := getattr(tests, line["outcome"])):
                names.append(name)

    def _keep_log(self) -> None:
        with self.context.log.open("ab") as log:
            log.write(self._log.read_bytes())


def crash_lines(lines: list[str]) -> list[str]:
    """Return a log's last lines about a crash, such as Python's traceback, without the test runner's frames."""
    return [line[:200] for line in lines if "pluggy" not in line and "_pytest" not in line][-8:]


def status_of(part: Part) -> str:
    """Return a test part's status: the worst of what happened."""
    tests = part.tests
    if tests.crashed:
        return "crashed"
    if tests.hung:
        return "hung"
    if tests.failed or part.errors:
        return "failed"
    return "passed" if part.finished else "cut"


def summary_of(tests: Tests) -> str:
    """Return the counts of a part's tests as text."""
    counts = {name: len(getattr(tests, name)) for name in ("passed", "failed", "crashed", "hung", "skipped")}
    words = [f"{count} {name}" for name, count in counts.items() if count or name == "passed"]
    left = "" if tests.total is None else f" of {tests.total}"
    return ", ".join(words) + left
