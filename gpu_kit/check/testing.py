"""Parts that are tests: each slice in a process of its own, that goes on after a test that crashes or hangs."""

import json
import os
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from gpu_kit.check.context import Context
from gpu_kit.check.process import INTERVAL, Ending, tail
from gpu_kit.check.record import Part, Tests

# Variables of the plugin gpu_kit.check.test_log: this module does without pytest, which only children have for sure.
LOG, SKIP, SHARD = "GPU_CHECK_TEST_LOG", "GPU_CHECK_SKIP", "GPU_CHECK_SHARD"
# pytest's exit statuses: all passed, some failed, none were left to run.
RAN = (0, 1, 5)
# A slice whose tests crash or hang as often as this is given up: the driver no longer works.
MOST_CRASHES, MOST_HANGS = 12, 3
SAVE_SECONDS = 3.0
# How many times as long as a test, the import and the collection may go without a sign.
IMPORT_PATIENCE = 4


@dataclass(frozen=True, kw_only=True)
class TestPart:
    """Files of tests, and how many processes each is spread over.

    Attributes:
        name: its name in the report.
        title: what it tests, in words.
        weight: its share of the time.
        files: files or tests below tests/python (``ops/test_ops.py::test_forward``), and their shards.
        least: seconds with less than which it is of no use.
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
    """One process's tests: a file, and its shard (place, count) of them."""

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
        slice: what is run.
        context: where and with what.
        part: where outcomes go.
        end: when time is over, as ``time.monotonic()`` tells it.
        number: what tells its files from those of others.
        collected: how many tests it has, once that is known.
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
        """Look what has happened; return whether the slice has come to an end, whatever it is."""
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
        """End the process; the tests that have ended count."""
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
            # Plugins that the machine happens to have are none of the tests'.
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
        """Return what changes with each line, and before the first one for a while: importing torch says nothing."""
        size, seconds = self._lines.stat().st_size, time.monotonic() - self._started
        return seconds if not size and seconds < IMPORT_PATIENCE * self.context.patience else size

    def _goes_on(self, ending: Ending) -> bool:
        """Note how the process ended, and say whether the tests after the one that ended it are to be run."""
        tests, current = self.part.tests, self._current
        if ending.how == "cut":
            return False
        if ending.how == "exited" and current is None:
            self.finished = True
            # Of a file that cannot be imported the outcome is there: failed, or skipped for a module that is not.
            file = f"tests/python/{self.slice.file.partition('::')[0]}"
            is_known = file in tests.skipped or any(name.startswith(file) for name in tests.failed)
            if ending.code not in RAN and not is_known:
                self.part.fail(f"{self.slice.words}: {ending.words}", tail(self._log))
            return False
        if current is None:
            # Before its first test or after its last one: there is none to leave out.
            self.finished = True
            self.part.fail(f"{self.slice.words}: {ending.words}, in no test", tail(self._log))
            return False
        # Where it dies while it cleans up, it had passed.
        tests.passed[:] = [name for name in tests.passed if name != current]
        if ending.how == "hung":
            tests.hung[current] = [f"{ending.words} ({self.context.patience:g} s)"]
            self._hangs += 1
        else:
            tests.crashed[current] = [ending.words, *crash_lines(tail(self._log))]
            self._crashes += 1
        if self._crashes >= MOST_CRASHES or self._hangs >= MOST_HANGS:
            self.finished = True
            self.part.fail(self.slice.words, [f"given up after {self._crashes} crashes and {self._hangs} hangs"])
            return False
        return True

    def _new_lines(self) -> Iterator[dict]:
        with self._lines.open("rb") as file:
            file.seek(self._read)
            text = file.read()
        # The last line may be half written.
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
                # One whose end failed had passed before.
                tests.passed[:] = [other for other in tests.passed if other != name]
            elif name not in tests.failed and name not in (names := getattr(tests, line["outcome"])):
                names.append(name)

    def _keep_log(self) -> None:
        with self.context.log.open("ab") as log:
            log.write(self._log.read_bytes())


def crash_lines(lines: list[str]) -> list[str]:
    """Return what a log's last lines say of a crash, at most Python's traceback without the test runner's part."""
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
    """Return the numbers of a part's tests in words."""
    counts = {name: len(getattr(tests, name)) for name in ("passed", "failed", "crashed", "hung", "skipped")}
    words = [f"{count} {name}" for name, count in counts.items() if count or name == "passed"]
    left = "" if tests.total is None else f" of {tests.total}"
    return ", ".join(words) + left
