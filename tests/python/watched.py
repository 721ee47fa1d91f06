"""Processes that may crash or hang, and that report progress as JSON lines."""

import json
import os
import queue
import subprocess
import sys
import tempfile
import threading
from pathlib import Path
from typing import Any


class Watched:
    """A process that receives and sends JSON lines, and may end at any time."""

    def __init__(
        self, arguments: list[str], environment: dict[str, str] | None = None, folder: Path | None = None
    ) -> None:
        """Start the process.

        Args:
            arguments: the arguments of Python.
            environment: its variables; those of this process if None.
            folder: its working folder; that of this process if None.
        """
        self.errors = tempfile.TemporaryFile("w+")  # noqa: SIM115, `end` reads it
        pipe = subprocess.PIPE
        self.process = subprocess.Popen(
            [sys.executable, *arguments],
            stdin=pipe,
            stdout=pipe,
            stderr=self.errors,
            text=True,
            env=environment,
            cwd=folder,
        )
        self.lines: queue.Queue[str | None] = queue.Queue()
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        for line in self.process.stdout or ():
            self.lines.put(line)
        self.lines.put(None)

    def tell(self, **what: object) -> None:
        """Send a line to the process.

        Args:
            what: the line's contents. If the process has ended, nothing happens, and `next` reports it.
        """
        try:
            self.process.stdin.write(json.dumps(what) + "\n")
            self.process.stdin.flush()
        except OSError:
            return

    def next(self, seconds: float) -> dict[str, Any] | None:
        """Wait for a line.

        Args:
            seconds: the time limit; when it is over, the process is killed.

        Returns:
            The line's contents; None at the end of the process.

        Raises:
            TimeoutError: there was no line in time.
        """
        try:
            line = self.lines.get(timeout=seconds)
        except queue.Empty:
            self.process.kill()
            raise TimeoutError from None
        return None if line is None else json.loads(line)

    def end(self) -> tuple[int, str]:
        """Wait for the end of the process.

        Returns:
            Its exit status and the last lines of its errors.
        """
        status = self.process.wait()
        self.errors.seek(0)
        return status, "\n".join(self.errors.read().splitlines()[-5:])

    def kill(self) -> None:
        """Kill it now."""
        self.process.kill()
        self.end()


class Channel:
    """The process's side of the connection, through its output and input, which no other code may use any more."""

    def __init__(self) -> None:
        self.file = os.fdopen(os.dup(1), "w")
        os.dup2(2, 1)
        self.input = os.fdopen(os.dup(0))
        nothing = os.open(os.devnull, os.O_RDONLY)
        os.dup2(nothing, 0)
        os.close(nothing)

    def say(self, **what: object) -> None:
        """Send a line to the watching process.

        Args:
            what: its contents.
        """
        self.file.write(json.dumps(what) + "\n")
        self.file.flush()

    def heard(self) -> dict[str, Any] | None:
        """Wait for a line.

        Returns:
            Its contents; None if there are no more lines.
        """
        line = self.input.readline()
        return json.loads(line) if line else None
