"""Jobs for several watched processes, with a progress bar, and a file of results to which later runs append."""

import json
import sys
import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

import torch
import torch_opencl
from tqdm import tqdm
from watched import Watched


@dataclass
class Crew:
    """Threads, each with a worker.

    Attributes:
        start: starts a worker.
        serve: makes a worker do a job; returns true if the worker has ended and a part of the job is left.
        done: called with each finished job, by one thread at a time; returns a line to print, or nothing.
        size: the number of workers.
        seconds: no job is started after this time.
        unit: the unit of the progress bar.
        jobs_of_a_worker: a worker is replaced after this many jobs, because its compiled programs stay in memory.
    """

    start: Callable[[], Watched]
    serve: Callable[[Watched, Any], bool]
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
        queue, lock, stop = deque(jobs), threading.Lock(), threading.Event()
        timer = threading.Timer(min(self.seconds, threading.TIMEOUT_MAX), stop.set)
        timer.daemon = True
        timer.start()
        is_terminal = sys.stderr.isatty()
        interval = 0.5 if is_terminal else 30
        with tqdm(total=len(jobs), unit=self.unit, mininterval=interval, ascii=not is_terminal) as bar:

            def done(job: Any) -> None:
                with lock:
                    if line := self.done(job):
                        bar.write(line, file=sys.stderr)
                    bar.update()

            threads = [threading.Thread(target=self._attend, args=(queue, stop, done)) for _ in range(self.size)]
            for thread in threads:
                thread.start()
            try:
                for thread in threads:
                    thread.join()
            except KeyboardInterrupt:
                stop.set()
        timer.cancel()

    def _attend(self, queue: deque[Any], stop: threading.Event, done: Callable[[Any], None]) -> None:
        """Have a worker do jobs, and replace it if it ends."""
        worker, served = None, 0
        while queue and not stop.is_set():
            try:
                job = queue.popleft()
            except IndexError:
                break
            is_left = True
            while is_left:
                if worker is None:
                    worker, served = self.start(), 0
                is_left = self.serve(worker, job)
                served += 1
                if is_left or served >= self.jobs_of_a_worker or worker.process.poll() is not None:
                    worker.kill()
                    worker = None
            done(job)
        if worker is not None:
            worker.kill()


class Journal:
    """A file of JSON lines to which runs append; the first line names the build that the others are about."""

    def __init__(self, path: Path, keeps: bool) -> None:
        """Read the existing lines.

        Args:
            path: the file; it need not exist. A truncated last line is ignored.
            keeps: whether lines about another build are kept; otherwise that file is renamed.
        """
        self.path = path
        self.entries: list[dict[str, Any]] = []
        for line in path.read_text().splitlines() if path.exists() else ():
            try:
                self.entries.append(json.loads(line))
            except json.JSONDecodeError:
                continue
        header = self.entries.pop(0) if self.entries else None
        if header is not None and header != build() and not keeps:
            aside = path.with_suffix(".old.jsonl")
            print(f"{path} is about another build: renamed to {aside.name}")
            path.rename(aside)
            header, self.entries = None, []
        if header is None:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(json.dumps(build()) + "\n")

    def add(self, entry: dict[str, Any]) -> None:
        """Write a line.

        Args:
            entry: its contents.
        """
        with self.path.open("a") as file:
            file.write(json.dumps(entry) + "\n")


def build() -> dict[str, str]:
    """Identify a build.

    Returns:
        A hash of the native library, and the release of torch.
    """
    libraries = sorted((Path(torch_opencl.__file__).parent / "lib").rglob("*.so"))
    digest = sha256(b"".join(path.read_bytes() for path in libraries)).hexdigest()[:16]
    return {"library": digest, "torch": torch.__version__}
