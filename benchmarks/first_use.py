"""Waiting times of new processes, with empty caches and with caches that such a process has filled."""

import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path

from benchmarks.caches import caches_in
from benchmarks.report import seconds_text

ROUNDS = 3
ROOT = Path(__file__).parents[1]
IMPORT = ["-c", "import torch"]
FIRST_OP = ["-c", "import torch; (torch.ones(4, device={device!r}) + 1).cpu()"]
DIGITS = "examples/train_digits.py --cold --device {device}"
# Seconds that may be added: by the first operator to the import, and by empty caches to a training.
MOST_FOR_FIRST_OP = 1.0
MOST_FOR_EMPTY_CACHES = 10.0


def run(device: str, training: str = DIGITS) -> int:
    """Measure the import, the first operator and a training in new processes.

    Args:
        device: the device that they use.
        training: the command line of the training; "{device}" becomes the device.

    Returns:
        The exit code: 1 if a time is over its limit.
    """
    no_backends = {"TORCH_DEVICE_BACKEND_AUTOLOAD": "0"}
    _seconds(IMPORT, no_backends)  # brings the files into memory
    plain = statistics.median(_seconds(IMPORT, no_backends) for _ in range(ROUNDS))
    _print("import torch, no backends", plain)
    commands = FIRST_OP, training.split()
    first, trained = ([word.format(device=device) for word in command] for command in commands)
    with tempfile.TemporaryDirectory() as parent:
        _, warm_first = _cold_and_warm("import and first operator", first, Path(parent, "first"), ROUNDS)
        cold, warm = _cold_and_warm(f"training, {Path(trained[0]).stem}", trained, Path(parent, "training"), 1)
    judgements = (
        _judge("first operator with warm caches, over the import", warm_first - plain, MOST_FOR_FIRST_OP),
        _judge("training with empty caches, over warm ones", cold - warm, MOST_FOR_EMPTY_CACHES),
    )
    return int(not all(judgements))


def _cold_and_warm(name: str, command: list[str], caches: Path, rounds: int) -> tuple[float, float]:
    """Return the seconds with empty caches and with caches that the command has filled."""
    where = caches_in(caches)
    cold = _seconds(command, where)
    _print(f"{name}, empty caches", cold)
    warm = statistics.median(_seconds(command, where) for _ in range(rounds))
    _print(f"{name}, warm caches", warm)
    return cold, warm


def _seconds(command: list[str], variables: Mapping[str, str]) -> float:
    """Return the seconds of a Python process; if it fails, show its output and raise CalledProcessError."""
    start = time.perf_counter()
    done = subprocess.run(
        [sys.executable, *command],
        cwd=ROOT,
        env=os.environ | {"TORCH_OPENCL_SPECIALIZE": "background"} | variables,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    seconds = time.perf_counter() - start
    if done.returncode:
        print(done.stdout, file=sys.stderr)
        done.check_returncode()
    return seconds


def _print(name: str, seconds: float) -> None:
    print(f"{name:<50} {seconds_text(seconds)}", flush=True)


def _judge(name: str, seconds: float, most: float) -> bool:
    print(f"{name:<50} {seconds:6.2f} s   at most {most:g} s: {'pass' if seconds <= most else 'SHORT'}")
    return seconds <= most
