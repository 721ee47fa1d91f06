"""Runs cargo, and shows its progress in one line instead of the hundreds that it writes."""

import os
import re
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO

from build_support.checks import ROOT

# Seconds between two updates: on a terminal, where the line is rewritten, and on other outputs.
INTERVAL, SELDOM = 0.5, 60.0
# Seconds of a build from nothing on two cores: for each crate, for each C++ file, and for this project's crate, which
# comes last; and the number of C++ files, until they have been generated.
CRATE, CPP_FILE, LAST = 0.35, 3.5, 45.0
CPP_FILES = 80
_BAR = re.compile(r"^\s*Building \[.*?\] (\d+)/(\d+)")
_STATUS = re.compile(
    r"^\s*(Adding|Blocking|Building|Compiling|Dirty|Downloaded|Downloading|Finished|Fresh|Locking|Running|Updating) "
)
_COLOUR = re.compile(r"\x1b\[[0-9;]*[mK]")


class Progress:
    """Cargo's output so far, and the files that its build has written.

    Args:
        target: cargo's folder for a release build.
    """

    def __init__(self, target: Path) -> None:
        self.start = time.time()
        self.crates = (0, 0)
        self.state = "asking cargo"
        self.messages: list[str] = []
        self._target = target
        # If objects exist already, it is not known how many of them this build replaces.
        self._from_nothing = not any(target.glob("build/torch-opencl-*/out/objects/*.o"))

    def read(self, errors: IO[bytes]) -> None:
        """Read cargo's standard error to its end.

        Args:
            errors: the pipe.
        """
        rest = ""
        while piece := os.read(errors.fileno(), 65536):
            # The bar ends with a carriage return, and the next message follows it in the same line.
            *lines, rest = re.split(r"[\r\n]", rest + piece.decode(errors="replace"))
            for line in lines:
                self._note(line)
        if rest:
            self._note(rest)

    def _note(self, line: str) -> None:
        plain = _COLOUR.sub("", line).rstrip()
        if bar := _BAR.match(plain):
            self.crates = int(bar[1]), int(bar[2])
            self.state = "compiling"
        elif status := _STATUS.match(plain):
            # Such as a lock that another build holds.
            self.state = plain.strip() if status[1] in ("Blocking", "Downloading", "Updating") else self.state
        elif plain or self.messages:
            self.messages.append(line.rstrip())

    def line(self) -> str:
        """Describe the progress of the build.

        Returns:
            One line, with an estimate of the time left if the build began from nothing.
        """
        seconds = time.time() - self.start
        done, total = self.crates
        if total == 0:
            return f"{self.state}, {_duration(seconds)}"
        parts = [f"compiling: {done} of {total} Rust units"]
        files, all_files = self._cpp_files()
        if files:
            parts.append(f"{files} of {all_files} C++ files" if self._from_nothing else f"{files} C++ files")
        parts.append(_duration(seconds))
        whole = CRATE * total + CPP_FILE * all_files + LAST
        computed = CRATE * done + CPP_FILE * files
        if self._from_nothing and computed > 0.02 * whole:
            parts.append(f"about {_duration(seconds * max(0.0, whole - computed) / computed)} left")
        return ", ".join(parts)

    def _cpp_files(self) -> tuple[int, int]:
        """Return the number of objects that this build has written, and the number of its sources."""
        written, generated = 0, 0
        for folder in self._target.glob("build/torch-opencl-*/out"):
            written += sum(_is_newer(path, self.start) for path in [*folder.glob("*.o"), *folder.glob("objects/*.o")])
            sources = ("units/*.cpp", "registrations_*.cpp", "cxxbridge/sources/**/*.cc")
            generated = max(generated, sum(len([*folder.glob(pattern)]) for pattern in sources))
        return written, max(written, generated or CPP_FILES)


def run_cargo(command: Sequence[str], environment: Mapping[str, str], target: Path) -> str:
    """Run a cargo build, and show its progress.

    Args:
        command: cargo's command line, with messages in JSON.
        environment: its environment.
        target: its folder for a release build.

    Returns:
        Its standard output.

    Raises:
        SystemExit: the build failed; cargo's messages have been printed.
    """
    progress = Progress(target)
    always = {"CARGO_TERM_PROGRESS_WHEN": "always", "CARGO_TERM_PROGRESS_WIDTH": "100"}
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with subprocess.Popen(command, cwd=ROOT, env={**environment, **always}, **pipes) as cargo:
        output: list[bytes] = []
        readers = [
            threading.Thread(target=lambda: output.append(cargo.stdout.read())),
            threading.Thread(target=progress.read, args=(cargo.stderr,)),
        ]
        for reader in readers:
            reader.start()
        _show_until_done(progress, readers)
    for message in progress.messages:
        print(message, file=sys.stderr)
    if cargo.returncode != 0:
        raise SystemExit(f"`{' '.join(command)}` failed; its messages are above.")
    return b"".join(output).decode()


def _show_until_done(progress: Progress, readers: Sequence[threading.Thread]) -> None:
    is_terminal = sys.stdout.isatty()
    width = 0
    shown = time.time()
    while any(reader.is_alive() for reader in readers):
        for reader in readers:
            reader.join(INTERVAL / len(readers))
        if not is_terminal and time.time() - shown < SELDOM:
            continue
        shown = time.time()
        text = f"==> {progress.line()}"
        # Blanks cover the rest of a longer line.
        print(f"\r{text:<{width}}" if is_terminal else text, end="" if is_terminal else "\n", flush=True)
        width = len(text)
    if is_terminal and width:
        print(f"\r{'':{width}}\r", end="", flush=True)
    elif (seconds := time.time() - progress.start) > SELDOM:
        print(f"==> cargo has ended after {_duration(seconds)}", flush=True)


def _is_newer(path: Path, than: float) -> bool:
    try:
        return path.stat().st_mtime >= than
    except OSError:
        # The file has been renamed or removed meanwhile.
        return False


def _duration(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 100 else f"{seconds / 60:.0f} min"
