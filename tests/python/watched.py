"""Processes that may crash or hang, and the lines of JSON by which they say what they do."""

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
    """A process that is told and says things, each a line of JSON, and may end at any time."""

    def __init__(
        self, arguments: list[str], environment: dict[str, str] | None = None, folder: Path | None = None
    ) -> None:
        """Start it.

        Args:
            arguments: of Python.
            environment: its variables; those of this process if None.
            folder: where it runs; that of this process if None.
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
        """Write a line that the process reads.

        Args:
            what: its contents. Nothing happens where the process has ended: `next` says so.
        """
        try:
            self.process.stdin.write(json.dumps(what) + "\n")
            self.process.stdin.flush()
        except OSError:
            return

    def next(self, seconds: float) -> dict[str, Any] | None:
        """Wait for a line.

        Args:
            seconds: how long; then the process is ended.

        Returns:
            The line's contents; None at the end of the process.

        Raises:
            TimeoutError: where there was none in time.
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
        """End it now."""
        self.process.kill()
        self.end()


class Channel:
    """The process's own side: its output and its input, which nothing else may use from now on."""

    def __init__(self) -> None:
        self.file = os.fdopen(os.dup(1), "w")
        os.dup2(2, 1)
        self.input = os.fdopen(os.dup(0))
        nothing = os.open(os.devnull, os.O_RDONLY)
        os.dup2(nothing, 0)
        os.close(nothing)

    def say(self, **what: object) -> None:
        """Write a line for the process that watches.

        Args:
            what: its contents.
        """
        self.file.write(json.dumps(what) + "\n")
        self.file.flush()

    def heard(self) -> dict[str, Any] | None:
        """Wait for a line.

        Returns:
            Its contents; None where there will be no other.
        """
        line = self.input.readline()
        return json.loads(line) if line else None
