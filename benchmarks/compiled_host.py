"""Host costs of ``torch.compile``: the wrapper of a small graph, and the first step of a model."""

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import torch

from benchmarks.caches import caches_in
from benchmarks.report import seconds_text

ROOT = Path(__file__).parents[1]
INDUCTOR_CACHE = "TORCHINDUCTOR_CACHE_DIR"
# Most seconds for the wrapper of a one-kernel graph, and for builds and first launches with empty and full caches.
MOST_FOR_WRAPPER = 5e-6
MOST_FOR_FIRST_LAUNCHES = {"empty": 2.0, "full": 0.1}
# Launches that may wait in the device's queue.
CHAIN = 1000
ROUNDS = 15
# Layers of the model.
LAYERS = 6


def print_wrapper(device: torch.device) -> None:
    """Print the host's time for a one-kernel graph: of the wrapper's function, and of the whole compiled call."""
    x = torch.ones(4, device=device)
    compiled = torch.compile(lambda x: torch.sin(x) + 1, dynamic=False)
    with torch.no_grad():
        compiled(x)
        wrapper = _last_wrapper()
        sides = {
            "wrapper of a one-kernel graph": lambda: wrapper([x]),
            "the whole compiled call": lambda: compiled(x),
        }
        for index, (name, call) in enumerate(sides.items()):
            _judge(name, _host_seconds(call, device), None if index else MOST_FOR_WRAPPER)


def _last_wrapper() -> Callable:
    from torch._inductor.codecache import PyCodeCache  # noqa: PLC0415 - importing the compiler takes seconds

    return PyCodeCache.modules[-1].call


def _host_seconds(call: Callable[[], object], device: torch.device) -> float:
    """Return the mean time to submit a call, the least of several chains of calls."""
    best = float("inf")
    for _ in range(ROUNDS):
        torch.accelerator.synchronize(device)
        start = time.perf_counter()
        for _ in range(CHAIN):
            call()
        best = min(best, (time.perf_counter() - start) / CHAIN)
    torch.accelerator.synchronize(device)
    return best


def print_first_step(device: str) -> None:
    """Print the times in a GPT's first compiled training step in new processes, with empty and with full caches."""
    with tempfile.TemporaryDirectory() as parent:
        where = caches_in(Path(parent)) | {INDUCTOR_CACHE: str(Path(parent, "inductor"))}
        for state, most in MOST_FOR_FIRST_LAUNCHES.items():
            figures = _first_step_elsewhere(device, where)
            words = f"first step of a GPT of {LAYERS} layers, {state} caches"
            print(
                f"{words:<60} {seconds_text(figures['step'])}, of which PyTorch's compiler"
                f" {seconds_text(figures['step'] - figures['build'] - figures['launches'] - figures['later'])}"
            )
            _judge("  waits for builds, and first launches", figures["build"] + figures["launches"], most)
            print(f"  {'(builds only)':<58} {seconds_text(figures['build'])}", flush=True)


def _first_step_elsewhere(device: str, variables: dict[str, str]) -> dict[str, float]:
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.compiled_host", device],
        cwd=ROOT,
        env=os.environ | variables,
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    return json.loads(done.stdout.splitlines()[-1])


def first_step(device: torch.device) -> dict[str, float]:
    """Measure this process's first compiled step, after a step in eager mode, which builds the eager kernels.

    Args:
        device: the device.

    Returns:
        Seconds: "step", the first step; "build", its waits for builds; "launches", the difference between its graphs'
        first and later runs; "later", a later step.
    """
    from torch._inductor import output_code  # noqa: PLC0415 - as above
    from torch_opencl.inductor.runtime import Library  # noqa: PLC0415 - as above

    from benchmarks.cases.compiled import VOCABULARY, gpt  # noqa: PLC0415 - as above

    torch.manual_seed(0)
    model = gpt(LAYERS).to(device)
    text = torch.randint(VOCABULARY, (4, 128)).to(device)
    loss_of = lambda text: torch.nn.functional.cross_entropy(model(text).flatten(0, 1), text.flatten())  # noqa: E731 compiled
    compiled = torch.compile(loss_of, dynamic=False)

    def step(loss_of: Callable) -> float:
        start = time.perf_counter()
        loss_of(text).backward()
        torch.accelerator.synchronize(device)
        return time.perf_counter() - start

    step(loss_of)
    model.zero_grad()
    builds: list[float] = []
    runs: dict[int, list[float]] = {}
    Library.build = _timed(Library.build, lambda _, seconds: builds.append(seconds), lambda: None)
    output_code.CompiledFxGraph.__call__ = _timed(
        output_code.CompiledFxGraph.__call__,
        lambda graph, seconds: runs.setdefault(id(graph), []).append(seconds),
        lambda: torch.accelerator.synchronize(device),
    )
    first = step(compiled)
    later = min(step(compiled) for _ in range(3))
    launches = sum(max(0.0, times[0] - min(times[1:])) for times in runs.values())
    return {"step": first, "build": sum(builds), "launches": launches, "later": later}


def _timed(function: Callable, note: Callable[[object, float], None], wait: Callable[[], None]) -> Callable:
    """Return a method that also passes its object and its time, until the device is done, to `note`."""

    def timed(self: object, *args: object) -> object:
        wait()
        start = time.perf_counter()
        result = function(self, *args)
        wait()
        note(self, time.perf_counter() - start)
        return result

    return timed


def _judge(name: str, seconds: float, most: float | None) -> None:
    verdict = (
        "" if most is None else f"   at most {seconds_text(most).strip()}: {'pass' if seconds <= most else 'SHORT'}"
    )
    print(f"{name:<60} {seconds_text(seconds)}{verdict}", flush=True)


if __name__ == "__main__":
    print(json.dumps(first_step(torch.device(sys.argv[1]))))
