"""Processes that measure rows in turns with their parent process: in eager mode, or on another device.

Not with tests/python/process_runner.py: `python -m benchmarks` runs without the folders of the tests in its path.
"""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

import torch

from benchmarks.case import Case
from benchmarks.cases import all_cases, gpu, measured
from benchmarks.clock import mean_seconds, share_threads, warm_up

ROOT = Path(__file__).parents[1]
MODE = "TORCH_OPENCL_SPECIALIZE"


class WorkerProcess:
    """Measures rows in a separate process.

    Args:
        device: the device to measure.
        variables: added to this process's environment variables.
    """

    def __init__(self, device: str, variables: Mapping[str, str]) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.eager", device],
            cwd=ROOT,
            env=os.environ | variables,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def prepare(self, case: Case) -> bool:
        """Build a row's work in the process and warm it up; return whether that was possible."""
        return self._ask([case.group, case.name])

    def seconds(self) -> float:
        """Measure one round of the row that was prepared last; return the mean time of a call."""
        return self._ask("round")

    def close(self) -> None:
        """End the process."""
        self._process.communicate()

    def _ask(self, question: str | list[str]) -> bool | float:
        print(json.dumps(question), file=self._process.stdin, flush=True)
        answer = self._process.stdout.readline()
        if not answer:
            raise OSError(f"The worker process has ended with exit status {self._process.wait()}")
        return json.loads(answer)


class EagerProcess(WorkerProcess):
    """Waits for every specialised program, and leaves the programs on disk for its parent process.

    Args:
        device: the device to measure.
    """

    def __init__(self, device: str) -> None:
        super().__init__(device, {MODE: "eager"})


class VendorProcess(WorkerProcess):
    """Measures another backend's device, without TF32; this backend is not loaded in the process.

    Args:
        device: such as "cuda".
    """

    def __init__(self, device: str) -> None:
        # Without the second variable, cuDNN and cuBLAS may multiply float32 with the 10 bits of TF32.
        super().__init__(device, {"TORCH_DEVICE_BACKEND_AUTOLOAD": "0", "NVIDIA_TF32_OVERRIDE": "0"})


def serve(device: torch.device) -> None:
    """Answer the requests of a :class:`WorkerProcess`, which are lines of JSON, until there are no more.

    Args:
        device: the device to measure.
    """
    # Output of libraries must not mix with the answers.
    answers, sys.stdout = sys.stdout, sys.stderr
    if device.type == "opencl":
        share_threads(device)
    cases = {(case.group, case.name): case for case in [*all_cases(), *gpu.cases(), *measured.cases()]}
    measure_round = None
    for line in sys.stdin:
        question = json.loads(line)
        if question == "round":
            answer = measure_round()
        else:
            # Free the last row's memory before the next one allocates.
            measure_round = None
            measure_round = _prepare(cases[tuple(question)], device)
            answer = measure_round is not None
        print(json.dumps(answer), file=answers, flush=True)


def _prepare(case: Case, device: torch.device) -> Callable[[], float] | None:
    """Return the function that measures a round, or None if the device cannot do the work."""
    torch.manual_seed(0)
    try:
        work = case.build(device)
        work.run()
        repeats = warm_up(work, device, case.asynchronous)
    except (RuntimeError, ImportError) as error:
        print(f"{case.name}, in the worker process: {error}", file=sys.stderr)
        return None
    return partial(mean_seconds, work, device, repeats, case.asynchronous)


if __name__ == "__main__":
    serve(torch.device(sys.argv[1]))
