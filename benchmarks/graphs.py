"""The host's time for a replay of small kernels, compared with the driver's time to enqueue as many.

    python -m benchmarks.graphs

Replays and the driver alternate in random order. Eager calls come last, because commands after eager calls have been
seen to take PoCL longer. The time of the calling thread is measured. The driver is measured by a C program (enqueue.c)
with the graph's kernels: without changes, and with the first launch held by a user event, as the backend defers short
launches with PoCL. The quickest tenth of the rounds is compared: in others the driver's threads, or other processes,
take caches and locks.
"""

import ctypes
import random
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import torch

from benchmarks.opencl import OpenCLError

KERNELS = 200
ROUNDS = 200
# The greatest ratio of a replay's host time to the driver's time with the first launch held back.
MOST = 1.3


def _compiled(folder: str) -> ctypes.CDLL:
    library, source = Path(folder) / "enqueue.so", Path(__file__).with_name("enqueue.c")
    subprocess.run(["cc", "-O2", "-shared", "-fPIC", str(source), "-o", str(library), "-ldl"], check=True)
    driver = ctypes.CDLL(str(library))
    driver.enqueue.restype = ctypes.c_double
    return driver


def _time(call: Callable[[], object]) -> float:
    start = time.thread_time_ns()
    call()
    taken = (time.thread_time_ns() - start) / 1000
    torch.opencl.synchronize()
    return taken


def _chain(x: torch.Tensor) -> torch.Tensor:
    for _ in range(KERNELS):
        x = x + 1
    return x


def run() -> int:
    """Measure, and print microseconds per kernel.

    Returns:
        The exit code: 1 if a replay's ratio is over the limit.
    """
    x = torch.zeros(4, device="opencl")
    _chain(x)
    graph = torch.opencl.OpenCLGraph()
    with torch.opencl.graph(graph):
        _chain(x)
    with tempfile.TemporaryDirectory() as folder:
        driver = _compiled(folder)
        launches = graph.raw_kernels()
        kernels = (ctypes.c_void_p * KERNELS)(*(kernel for kernel, _, _ in launches))
        sizes = (ctypes.c_size_t * KERNELS)(*(size for _, (size,), _ in launches))
        groups = (ctypes.c_size_t * KERNELS)(*(group[0] if group else 0 for _, _, group in launches))
        if status := driver.prepare(ctypes.c_void_p(kernels[0])):
            raise OpenCLError(f"enqueue.c: error {status}")
        cases = {
            "driver, held back": lambda: driver.enqueue(kernels, sizes, groups, KERNELS, 1),
            "driver": lambda: driver.enqueue(kernels, sizes, groups, KERNELS, 0),
            "replay": lambda: _time(graph.replay),
        }
        times: dict[str, list[float]] = {case: [] for case in cases}
        for _ in range(ROUNDS):
            # In random order, because each affects the caches of the next one.
            for case, measure in random.sample(list(cases.items()), len(cases)):
                times[case].append(measure() / KERNELS)
    times["eager"] = [_time(lambda: _chain(x)) / KERNELS for _ in range(ROUNDS)]
    print(f"{torch.opencl.get_device_name()}, host microseconds per kernel, {ROUNDS} rounds: median, quick tenth")
    quick = {case: sorted(found)[ROUNDS // 10] for case, found in times.items()}
    for case, found in times.items():
        print(f"{case:20} {statistics.median(found):6.2f} {quick[case]:6.2f}")
    held, plain = (quick["replay"] / quick[case] for case in ("driver, held back", "driver"))
    print(f"replay over the driver, quick tenths: {held:.2f} (at most {MOST}); over the driver unheld: {plain:.2f}")
    return int(held > MOST)


if __name__ == "__main__":
    raise SystemExit(run())
