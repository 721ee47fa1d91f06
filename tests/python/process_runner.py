"""Processes that run cases which may crash or hang: one at a time, or a crew of them that shares jobs.

They are forked from a server process. A tool may make it import slow modules once, with
`CONTEXT.set_forkserver_preload`; these must not query devices on import, as drivers do not survive a fork.
"""

import contextlib
import multiprocessing
import os
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from pkgutil import resolve_name
from typing import Any

from tqdm import tqdm

CONTEXT = multiprocessing.get_context("forkserver")
# If two threads read the status of a process at once, one of them gets a wrong one. The start of a process reads all.
STATUS = threading.Lock()
# The last lines of a process's output that are reported.
LINES = 5


class DiedError(Exception):
    """A process has ended, or was killed because it sent nothing in time.

    Attributes:
        kind: `crash` or `hang`.
        status: its exit status; negative for a signal.
        lines: the last lines of its output.
    """

    def __init__(self, kind: str, text: str, status: int, lines: list[str]) -> None:
        super().__init__(text)
        self.kind, self.status, self.lines = kind, status, lines


class Worker:
    """A process that receives and sends messages, and may end at any time; `contextlib.closing` kills it."""

    def __init__(self, target: str, *arguments: object, environment: Mapping[str, str] | None = None) -> None:
        """Start the process.

        Args:
            target: what it calls, as "module:function". It gets the process's `Connection` and the arguments; the
                connection's `recv` raises EOFError if this process has ended.
            arguments: can be pickled.
            environment: variables to set before the module is imported.
        """
        self._log = tempfile.NamedTemporaryFile("r", errors="replace")  # noqa: SIM115, `close` closes it
        self._connection, theirs = CONTEXT.Pipe()
        given = target, theirs, arguments, self._log.name, dict(environment or {})
        self._process = CONTEXT.Process(target=_run, args=given)
        try:
            with STATUS:
                self._process.start()
        except BaseException:
            self._connection.close()
            self._log.close()
            raise
        finally:
            theirs.close()

    @property
    def status(self) -> int | None:
        """The exit status; None while the process runs."""
        with STATUS:
            return self._process.exitcode

    def send(self, message: object) -> None:
        """Send a message. If the process has ended, nothing happens, and `receive` reports it."""
        with contextlib.suppress(OSError):
            self._connection.send(message)

    def receive(self, seconds: float) -> Any:
        """Wait for a message.

        Args:
            seconds: after this time the process is killed, even if it has closed its connection.

        Returns:
            The message.

        Raises:
            DiedError: the process has ended, or was killed because it sent nothing in time.
        """
        until = time.monotonic() + seconds
        # A child of the process may keep the connection open.
        is_hung = not wait([self._connection, self._process.sentinel], seconds)
        # It may also end between two parts of a message.
        with contextlib.suppress(EOFError, OSError):
            if self._connection.poll():
                return self._connection.recv()
        # It may close the connection and hang.
        is_hung = is_hung or not wait([self._process.sentinel], max(until - time.monotonic(), 0))
        if is_hung:
            self._process.kill()
            wait([self._process.sentinel])
        status = self.status or 0
        lines = self._log.read().splitlines()[-LINES:]
        if is_hung:
            raise DiedError("hang", f"no result after {seconds:g} s", status, lines)
        text = "\n".join(lines)
        raise DiedError("crash", f"the process ends with status {status}: {text}", status, lines)

    def close(self) -> None:
        """Kill it now."""
        self._process.kill()
        with STATUS:
            self._process.join()
        self._connection.close()
        self._log.close()


def _run(target: str, channel: Connection, arguments: tuple[Any, ...], log: str, environment: dict[str, str]) -> None:
    os.environ.update(environment)
    written = os.open(log, os.O_WRONLY)
    os.dup2(written, 1)
    os.dup2(written, 2)
    resolve_name(target)(channel, *arguments)


@dataclass
class Crew:
    """Threads, each with a worker, with a progress bar.

    Attributes:
        start: starts a worker.
        serve: makes a worker do a job; returns true if the worker has ended and a part of the job is left.
        done: called with each finished job, by one thread at a time; returns a line to print, or nothing.
        size: the number of workers.
        seconds: no job is started after this time.
        unit: the unit of the progress bar.
        jobs_of_a_worker: a worker is replaced after this many jobs, because its compiled programs stay in memory.
    """

    start: Callable[[], Worker]
    serve: Callable[[Worker, Any], bool]
    done: Callable[[Any], str]
    size: int = 2
    seconds: float = float("inf")
    unit: str = "job"
    jobs_of_a_worker: int = 300

    def work(self, jobs: list[Any]) -> None:
        """Do jobs until time is up.

        Args:
            jobs: arguments of `serve`.
        """
        left, lock, end = iter(jobs), threading.Lock(), time.monotonic() + self.seconds
        is_terminal = sys.stderr.isatty()
        interval = 0.5 if is_terminal else 30
        with tqdm(total=len(jobs), unit=self.unit, mininterval=interval, ascii=not is_terminal) as bar:

            def done(job: Any) -> None:
                with lock:
                    if line := self.done(job):
                        bar.write(line, file=sys.stderr)
                    bar.update()

            threads = [threading.Thread(target=self._attend, args=(left, end, done)) for _ in range(self.size)]
            for thread in threads:
                thread.start()
            try:
                for thread in threads:
                    thread.join()
            except KeyboardInterrupt:
                # Leaves no job to the threads.
                list(left)

    def _attend(self, left: Iterator[Any], end: float, done: Callable[[Any], None]) -> None:
        """Have a worker do jobs, and replace it if it ends."""
        worker, served = None, 0
        try:
            for job in left:
                if time.monotonic() > end:
                    break
                is_left = True
                while is_left:
                    if worker is None:
                        worker, served = self.start(), 0
                    is_left = self.serve(worker, job)
                    served += 1
                    if is_left or served >= self.jobs_of_a_worker or worker.status is not None:
                        worker.close()
                        worker = None
                done(job)
        finally:
            if worker is not None:
                worker.close()
