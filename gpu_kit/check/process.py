"""Runs a command in a separate process group, until it ends, stops making progress or exceeds its time limit.

Not with tests/python/process_runner.py: a command may start processes, so that its whole group is killed; and it may be
silent for long on a busy machine, so that its processor time counts.
"""

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

# Seconds between two checks of a running command.
INTERVAL = 0.05
# A silent process that uses less than this part of a core is idle; and the seconds between two checks of that.
IDLE, ASK_EVERY = 0.03, 0.5
# The part of a log that is kept in the report.
TAIL_LINES, TAIL_BYTES = 12, 20_000


@dataclass(frozen=True)
class Ending:
    """How a command ended.

    Attributes:
        how: "exited", "crashed" (ended by a signal), "hung" (no progress for too long) or "cut" (out of time).
        code: the exit status; for a crash the signal's number; None if it was killed.
        seconds: its duration.
    """

    how: str
    code: int | None
    seconds: float

    @property
    def words(self) -> str:
        """The ending as text."""
        if self.how == "exited":
            return f"exit status {self.code}"
        if self.how == "crashed":
            return f"ended by {signal_name(self.code or 0)}"
        return "killed: no progress for too long" if self.how == "hung" else "stopped at its time limit"


class Running:
    """A command that runs in a separate process group, its output in a file.

    Args:
        command: the program and its arguments.
        environment: all of its variables.
        directory: its working directory.
        log: the file that its output is appended to.
        seconds: its time limit.
        patience: the seconds that it may make no progress, not counting the time in which others have the processor:
            a compiler is silent for long if it gets only a part of a core. None for no such limit.
        progress: returns a value that changes when there is progress; the log's size by default.
    """

    def __init__(
        self,
        command: Sequence[str],
        environment: Mapping[str, str],
        directory: Path,
        log: Path,
        *,
        seconds: float,
        patience: float | None = None,
        progress: Callable[[], object] | None = None,
    ) -> None:
        self._progress = progress or (lambda: log.stat().st_size)
        self._seconds, self._patience = seconds, patience
        with log.open("ab") as output:
            output.write(f"\n$ {' '.join(command)}\n".encode())
            output.flush()
            self._process = subprocess.Popen(
                command,
                env=dict(environment),
                cwd=directory,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        self._start = self._changed = time.monotonic()
        self._seen = self._progress()
        # Set when it has been silent for half of its patience: the time, and its processor seconds until then.
        self._silent: tuple[float, float] | None = None
        self._asked = self._start

    def poll(self) -> Ending | None:
        """Return how it ended, or None while it runs; kill its group if it hangs or exceeds its time limit."""
        now = time.monotonic()
        code = self._process.poll()
        if code is not None:
            self.kill()
            return Ending("crashed" if code < 0 else "exited", abs(code), now - self._start)
        seen = self._progress()
        if seen != self._seen:
            self._seen, self._changed, self._silent = seen, now, None
        how = None
        if self._patience is not None and self._is_hung(now, self._patience):
            how = "hung"
        elif now - self._start > self._seconds:
            how = "cut"
        if how is None:
            return None
        self.kill()
        return Ending(how, None, now - self._start)

    def _is_hung(self, now: float, patience: float) -> bool:
        """Return True if it has been idle, or has used the processor, for its patience without progress."""
        if now - self._changed <= patience / 2:
            return False
        if self._silent is None:
            self._silent = now, processor_seconds(self._process.pid)
        if now - self._changed <= patience or now - self._asked < ASK_EVERY:
            return False
        self._asked = now
        since, before = self._silent
        worked = processor_seconds(self._process.pid) - before
        return worked < IDLE * (now - since) or worked >= patience / 2

    def kill(self) -> None:
        """Kill the process group; harmless if it has ended."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGKILL)
        # A process that the driver blocks in the kernel does not end even so, and is abandoned.
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(timeout=5)


def processor_seconds(group: int) -> float:
    """Return the processor seconds that the processes of a group have used."""
    ticks = 0
    for path in Path("/proc").glob("[0-9]*/stat"):
        # A process may end meanwhile.
        with contextlib.suppress(OSError):
            # After the name, which may hold any characters: state, parent, group... and, from the 12th on, the times.
            values = path.read_text(errors="replace").rpartition(")")[2].split()
            ticks += sum(map(int, values[11:13])) if int(values[2]) == group else 0
    return ticks / os.sysconf("SC_CLK_TCK")


def run(running: Running) -> Ending:
    """Wait for a command; an exception (such as Ctrl-C) kills it."""
    try:
        while (ending := running.poll()) is None:
            time.sleep(INTERVAL)
    except BaseException:
        running.kill()
        raise
    return ending


def signal_name(number: int) -> str:
    """Return a signal's name such as "SIGSEGV"."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def tail(log: Path) -> list[str]:
    """Return the last non-empty lines of a log."""
    with log.open("rb") as file:
        file.seek(max(0, log.stat().st_size - TAIL_BYTES))
        text = file.read().decode(errors="replace")
    return [line.rstrip() for line in text.splitlines() if line.strip()][-TAIL_LINES:]
