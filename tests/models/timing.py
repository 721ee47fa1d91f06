"""Times a model on both devices, each in its own process, as in real use.

In one process the threads of PyTorch's CPU backend, which spin for a while after each operator, would take cores from
an OpenCL driver that runs on the CPU.
"""

import statistics
import time
import warnings
from collections.abc import Callable
from contextlib import ExitStack, closing
from multiprocessing.connection import Connection
from typing import Any

from process_runner import DiedError, Worker

# Rounds; in each, the two devices take turns running steps for this long.
ROUNDS = 7
ROUND_SECONDS = 0.4
# The fewest steps of a round, and of the warm-up, in which kernels are built, and allocators and caches filled.
LEAST_STEPS = 3
WARM_UP_SECONDS = 1.0
DEVICES = ("opencl", "cpu")


def serve(requests: Connection, name: str, device: str) -> None:
    """Run steps of a model on one device on request.

    Args:
        requests: receives `None` when the model is warm, then the median step time of a round in seconds for each
            request.
        name: the model.
        device: the device.
    """
    # The comparison has already shown them.
    warnings.simplefilter("ignore")
    step = _step(name, device)
    until = time.monotonic() + WARM_UP_SECONDS
    warm_ups = 0
    while warm_ups < LEAST_STEPS or time.monotonic() < until:
        step()
        warm_ups += 1
        # Steps may request builds of specialised programs. Steps before a build do not count.
        if _waited_for_builds(device):
            warm_ups = 0
    requests.send(None)
    while requests.recv():
        seconds: list[float] = []
        until = time.monotonic() + ROUND_SECONDS
        while len(seconds) < LEAST_STEPS or time.monotonic() < until:
            start = time.perf_counter()
            step()
            seconds.append(time.perf_counter() - start)
        requests.send(statistics.median(seconds))


def _step(name: str, device: str) -> Callable[[], None]:
    """Return a training step without optimizer, or an inference step for a model that is not trained."""
    # Imported here because the process that this one is forked from must not have queried devices.
    import torch

    from models.catalogue import case as find
    from models.compare import called, differentiated, without_dropout
    from models.distance import moved

    case = find(name)
    torch.manual_seed(0)
    model = without_dropout(case.build()).to(device).train(case.trains)
    inputs = moved(case.inputs(), lambda tensor: tensor.to(device))

    def step() -> None:
        if case.trains:
            differentiated(case, model, inputs)
        else:
            with torch.no_grad():
                called(model, inputs)
        if device != "cpu":
            torch.opencl.synchronize()

    return step


def _waited_for_builds(device: str) -> bool:
    import torch

    if device == "cpu" or not torch.opencl.kernel_cache_info()["pending"]:
        return False
    torch.ops.torch_opencl.wait_for_builds(60.0)
    return True


def measure(name: str, timeout: float) -> dict[str, Any]:
    """Time a model on both devices alternately.

    Args:
        name: the model.
        timeout: time limit in seconds for a device to warm up, and for a round.

    Returns:
        The medians of the rounds, and how many times as fast as the CPU the device is; a status and a message if a
        process ends or exceeds the time limit.
    """
    workers: list[Worker] = []
    with ExitStack() as stack:
        try:
            for device in DEVICES:
                workers.append(stack.enter_context(closing(Worker("models.timing:serve", name, device))))
                workers[-1].receive(timeout)
            rounds = []
            for _ in range(ROUNDS):
                seconds = []
                for worker in workers:
                    worker.send(True)
                    seconds.append(worker.receive(timeout))
                rounds.append(seconds)
        except DiedError as died:
            if died.kind == "hang":
                return {"status": "timeout", "message": f"a timed process took more than {timeout:g} s"}
            statuses = [worker.status for worker in workers]
            message = f"a timed process ended; exit statuses {statuses}: {' '.join(died.lines[-3:])}"
            return {"status": "crash", "message": message}
    ours, theirs = (statistics.median(column) for column in zip(*rounds, strict=True))
    ratio = statistics.median(there / here for here, there in rounds)
    return {"milliseconds": ours * 1e3, "cpu_milliseconds": theirs * 1e3, "ratio": ratio, "rounds": len(rounds)}
