"""The context that is passed to all parts."""

import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from gpu_kit.check.process import Ending, Running, run


@dataclass(frozen=True, kw_only=True)
class Context:
    """Folders, variables and settings for all parts.

    Attributes:
        root: the kit's folder.
        work: a folder for caches and files that parts share; it may be deleted.
        log: the file for the output of all processes.
        environment: the variables of all processes.
        jobs: the number of test processes at a time.
        patience: the seconds without progress after which a process counts as hung.
        save: writes the report and its page.
        accelerator: returns the name of the vendor's device in PyTorch, "none" without one.
        python: the interpreter.
    """

    root: Path
    work: Path
    log: Path
    environment: Mapping[str, str]
    jobs: int
    patience: float
    save: Callable[[], None]
    accelerator: Callable[[], str]
    python: str = sys.executable

    def start(
        self,
        arguments: list[str],
        seconds: float,
        *,
        extra: Mapping[str, str] | None = None,
        log: Path | None = None,
        progress: Callable[[], object] | None = None,
    ) -> Running:
        """Start Python in the kit's folder.

        Args:
            arguments: its command line.
            seconds: its time limit.
            extra: variables in addition to the variables that all processes get.
            log: the file for its output, by default the log of all processes.
            progress: see :class:`Running`.
        """
        variables = {**self.environment, **(extra or {})}
        command = [self.python, *arguments]
        return Running(
            command,
            variables,
            self.root,
            log or self.log,
            seconds=seconds,
            patience=self.patience,
            progress=progress,
        )

    def run(self, arguments: list[str], seconds: float) -> tuple[Ending, list[str]]:
        """Run Python in the kit's folder to its end, and return how it ended and its output."""
        log = self.work / f"output-{time.monotonic_ns()}.txt"
        try:
            ending = run(self.start(arguments, seconds, log=log))
        finally:
            text = log.read_bytes() if log.exists() else b""
            with self.log.open("ab") as file:
                file.write(text)
            log.unlink(missing_ok=True)
        lines = text.decode(errors="replace").replace("\r", "\n").splitlines()
        return ending, [line.rstrip() for line in lines[2:] if line.strip()]
