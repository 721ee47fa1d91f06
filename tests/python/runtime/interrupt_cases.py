"""Waits of the host that a signal ends; test_interrupts.py runs this in a separate process.

Each case starts a kernel that takes seconds, and a wait for it. Prints, by the case's name, the time from the signal to
the exception, the exception, and whether later results were right.
"""

import functools
import json
import os
import signal
import sys
import threading
import time
from collections.abc import Callable

import torch
from torch.library import Library

DEVICE = torch.device("opencl")
# Seconds from the start of the wait to the signal, and seconds of the wait: longer if the wait is expected to finish.
DELAY, LENGTH = 0.15, 3 if "unwatched" in sys.argv else 1.2
SPIN = """
__kernel void spin(__global float *x, const long count) {
  float v = x[0];
  for (long i = 0; i < count; i++) v = v * 0.9999f + 0.5f;
  x[0] = v;
}
"""
spin = torch.opencl.compile_kernel(SPIN, "spin")
scratch = torch.zeros(1, device=DEVICE)
small, large = torch.arange(64.0, device=DEVICE), torch.arange(float(1 << 20), device=DEVICE)


def seconds_of(count: int) -> float:
    """Time a kernel with this many steps."""
    torch.opencl.synchronize()
    start = time.perf_counter()
    spin(scratch, count, elements=1)
    torch.opencl.synchronize()
    return time.perf_counter() - start


def calibrated() -> int:
    """Find how many steps take LENGTH seconds."""
    seconds_of(1000)
    count = 1 << 20
    while (seconds := min(seconds_of(count), seconds_of(count))) < 0.1:
        count *= 4
    return int(count * LENGTH / seconds)


class Alarm(Exception):
    """Raised by a handler of the user."""


def on_alarm(*_: object) -> None:
    """Raise the user's exception."""
    raise Alarm("time is up")


def interrupted(wait: Callable[[], object], is_ready: bool = False) -> dict[str, object]:
    """Wait while the device is busy, and send a signal.

    Args:
        wait: the call that waits.
        is_ready: whether the call itself takes long, and needs no kernel before it.

    Returns:
        The values to print.
    """
    if not is_ready:
        spin(scratch, STEPS, elements=1)
    sent = []

    def send() -> None:
        sent.append(time.perf_counter())
        os.kill(os.getpid(), SIGNAL)

    timer = threading.Timer(DELAY, send)
    timer.start()
    raised, seconds, returned = "nothing", None, False
    try:
        wait()
        returned = True
        timer.join()
        time.sleep(0.05)
    except (KeyboardInterrupt, Alarm) as error:
        raised, seconds = type(error).__name__, time.perf_counter() - sent[0]
        if returned:
            raised += " after the call, which did not wait"
    torch.opencl.synchronize()
    after = torch.arange(1000.0, device=DEVICE)
    is_right = (after * 2).sum().item() == 999000 and torch.equal(small.cpu(), torch.arange(64.0))
    return {"raised": raised, "seconds": seconds, "is_right": is_right}


def pinned_copy() -> None:
    """Pin memory, which waits for the stream."""
    torch.empty(1 << 22).pin_memory()


def short_of_memory() -> None:
    """Allocate more than is free, which waits for the device before cached memory is released."""
    total = torch.opencl.mem_get_info()[1]
    held = torch.opencl.memory_reserved()
    torch.opencl.set_per_process_memory_fraction((held + (8 << 20)) / total)
    try:
        torch.empty(64 << 20, dtype=torch.uint8, device=DEVICE)
    finally:
        torch.opencl.set_per_process_memory_fraction(1.0)


def event() -> None:
    """Wait for an event."""
    recorded = torch.opencl.Event()
    recorded.record()
    recorded.synchronize()


def host_computed() -> None:
    """Call an operator that the CPU computes in the device's memory."""
    torch.ops.interrupt_cases.on_cpu(small)


class Waits(torch.autograd.Function):
    """Waits for the device in the backward pass."""

    @staticmethod
    def forward(ctx, x: torch.Tensor) -> torch.Tensor:
        """Pass on."""
        return x.clone()

    @staticmethod
    def backward(ctx, grad: torch.Tensor) -> torch.Tensor:
        """Wait."""
        return grad * (grad.sum() + scratch).item()


def backward() -> None:
    """Wait in a backward pass."""
    Waits.apply(small.clone().requires_grad_()).sum().backward()


def many() -> None:
    """Enqueue far more than the device computes in the meantime."""
    for _ in range(64):
        spin(scratch, STEPS // 4, elements=1)


def graph_of(steps: int) -> torch.opencl.OpenCLGraph:
    """Capture a few kernels with this many steps."""
    captured = torch.opencl.OpenCLGraph()
    with torch.opencl.graph(captured):
        for _ in range(8):
            spin(scratch, steps, elements=1)
    return captured


def replay_often(captured: torch.opencl.OpenCLGraph) -> None:
    """Enqueue more than the device computes in the meantime."""
    for _ in range(8):
        captured.replay()


def handler_that_resets() -> dict[str, object]:
    """Use a graph in a signal handler during its replay: that raises an error, and the replay continues."""
    captured, said = graph_of(STEPS // 16), []

    def handler(*_: object) -> None:
        try:
            captured.reset()
        except RuntimeError as error:
            said.append(str(error))

    before = signal.signal(SIGNAL, handler)
    result = interrupted(lambda: replay_often(captured), is_ready=True)
    signal.signal(SIGNAL, before)
    is_refused = len(said) == 1 and "the graph that is being replayed" in said[0]
    captured.replay()
    return result | {"is_right": result["is_right"] and is_refused}


def compile_large() -> None:
    """Compile a kernel of many statements, which is in no cache."""
    seed = int.from_bytes(os.urandom(4), "little") % 1000000
    body = "\n".join(f"v = v * {1 + i * 1e-6:.7f}f + {seed + i}.5f; x[{i}] = v;" for i in range(60000))
    source = f"__kernel void large(__global float *x) {{ float v = x[0];\n{body}\n}}"
    torch.opencl.compile_kernel(source, "large").compile()


def writes_after_an_interrupt() -> dict[str, object]:
    """Interrupt copies, and reuse their host memory at once: the driver must not write there any more."""
    found = []
    for size in (64, 1 << 22):
        source = torch.arange(float(size), device=DEVICE)
        kept = torch.full((size,), -1.0)
        found.append(interrupted(lambda kept=kept, source=source: kept.copy_(source)))
        kept.fill_(7)
        torch.opencl.synchronize()
        time.sleep(0.1)
        found[-1]["is_right"] = found[-1]["is_right"] and bool((kept == 7).all())
        host = torch.arange(float(size))
        target = torch.zeros(size, device=DEVICE)
        found.append(interrupted(lambda host=host, target=target: target.copy_(host)))
        host.fill_(7)
        torch.opencl.synchronize()
        values = target.cpu()
        is_whole = bool((values == 0).all()) or torch.equal(values, torch.arange(float(size)))
        found[-1]["is_right"] = found[-1]["is_right"] and is_whole
    return {
        "raised": found[0]["raised"] if len({each["raised"] for each in found}) == 1 else str(found),
        "seconds": max(each["seconds"] or 1e9 for each in found),
        "is_right": all(each["is_right"] for each in found),
    }


def passed_over() -> dict[str, object]:
    """Let the handler return: the wait continues, and its result is right."""
    calls = []
    before = signal.signal(SIGNAL, lambda *_: calls.append(time.perf_counter()))
    value = []
    start = time.perf_counter()
    result = interrupted(lambda: value.append((small.sum() + scratch * 0).item()))
    signal.signal(SIGNAL, before)
    called = bool(calls) and calls[0] - start < DELAY + 1
    return result | {"is_right": result["is_right"] and value == [2016.0] and called}


CASES: dict[str, Callable[[], dict[str, object]]] = {
    "item": lambda: interrupted(lambda: (small + scratch).sum().item()),
    "cpu, small": lambda: interrupted((small + 1).cpu),
    "cpu, large": lambda: interrupted((large + 1).cpu),
    "to device, small": lambda: interrupted(lambda: torch.ones(64).to(DEVICE)),
    "to device, large": lambda: interrupted(lambda: torch.ones(1 << 20).to(DEVICE)),
    "tolist": lambda: interrupted((small + 1).tolist),
    "nonzero": lambda: interrupted((small + scratch).nonzero),
    "synchronize": lambda: interrupted(torch.opencl.synchronize),
    "accelerator.synchronize": lambda: interrupted(torch.accelerator.synchronize),
    "stream": lambda: interrupted(torch.opencl.current_stream().synchronize),
    "event": lambda: interrupted(event),
    "pin_memory": lambda: interrupted(pinned_copy),
    "memory": lambda: interrupted(short_of_memory),
    "empty_cache": lambda: interrupted(torch.opencl.empty_cache),
    "computed by the host": lambda: interrupted(host_computed),
    "backward": lambda: interrupted(backward),
    "enqueueing": lambda: interrupted(many, is_ready=True),
    "graph": lambda: interrupted(functools.partial(replay_often, graph_of(STEPS // 4)), is_ready=True),
    "compiling": lambda: interrupted(compile_large, is_ready=True),
    "copies": writes_after_an_interrupt,
    "a handler that returns": passed_over,
    "a handler that resets a graph": handler_that_resets,
}
# Cases in which the host waits because a CPU has about a second of pending work.
ON_CPUS = {"enqueueing", "graph", "a handler that resets a graph"}
if torch.opencl.get_device_properties().type != "cpu":
    CASES = {name: case for name, case in CASES.items() if name not in ON_CPUS}


if __name__ == "__main__":
    library = Library("interrupt_cases", "FRAGMENT")
    library.define("on_cpu(Tensor x) -> Tensor")
    library.impl("on_cpu", lambda x: x + 1, "CPU")
    SIGNAL = signal.SIGALRM if "alarm" in sys.argv else signal.SIGINT
    signal.signal(signal.SIGALRM, on_alarm)
    if "unwatched" in sys.argv:
        torch.ops.torch_opencl.watch_signals(False)
        # Builds the kernels: a signal would be handled after a build, before the wait.
        (small + scratch).sum().item()
    STEPS = calibrated()
    names = [name for name in sys.argv[1:] if name in CASES] or list(CASES)
    print(json.dumps({name: CASES[name]() for name in names}))
