"""The context that all parts are given."""

import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from gpu_kit.check.process import Ending, Running, run


@dataclass(frozen=True, kw_only=True)
class Context:
    """Where parts run, and with what.

    Attributes:
        root: the kit's folder.
        work: a folder for caches and what parts write for each other; it may be lost.
        log: the file that all processes' output goes to.
        environment: the variables of all processes.
        jobs: how many test processes run at a time.
        patience: after how many seconds without progress a process hangs.
        save: writes the report and its page.
        accelerator: says what the vendor's own device is called in PyTorch, "none" where there is none.
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
            seconds: how long it may take.
            extra: variables beside those of all processes.
            log: where its output goes, the log of all by default.
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
        """Run Python in the kit's folder to its end, and return how it ended and what it printed."""
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
