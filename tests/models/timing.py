"""Times a model on both devices, each in a process of its own, as users have them.

In one process the threads of PyTorch's CPU backend, which spin for a while after each operator, would take the
processor from an OpenCL driver that runs on it.
"""

import multiprocessing
import statistics
import time
import warnings
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Any

# Rounds, in each of which both devices take steps for so long, one after the other.
ROUNDS = 7
ROUND_SECONDS = 0.4
# The least steps of a round, and the least before the first: kernels are built, allocators and caches filled.
LEAST_STEPS = 3
WARM_UP_SECONDS = 1.0
DEVICES = ("opencl", "cpu")


def serve(name: str, device: str, requests: Connection) -> None:
    """Take steps of a model on one device whenever that is asked for.

    Args:
        name: the model.
        device: where.
        requests: gets `None` once the model is warm, then the median of each round's steps in seconds for a request.
    """
    # The comparison has shown them.
    warnings.simplefilter("ignore")
    step = _step(name, device)
    until = time.monotonic() + WARM_UP_SECONDS
    warm_ups = 0
    while warm_ups < LEAST_STEPS or time.monotonic() < until:
        step()
        warm_ups += 1
        # Steps may ask for builds of specialised programs. Those before a build do not count.
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
    """Return a training step without optimizer, or an inference of a model that is not trained."""
    # Where a process is forked from must not have asked for devices.
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
    """Time a model on both devices in turns.

    Args:
        name: the model.
        timeout: seconds that a device may take to get warm, or for a round.

    Returns:
        The medians of the rounds, and how many times as fast as the CPU the device is; a status and a message where a
        process ends or takes too long.
    """
    context = multiprocessing.get_context("forkserver")
    connections, processes = [], []
    try:
        for device in DEVICES:
            ours, theirs = context.Pipe()
            process = context.Process(target=serve, args=(name, device, theirs))
            process.start()
            theirs.close()
            connections.append(ours)
            processes.append(process)
            _received(ours, timeout)
        rounds = []
        for _ in range(ROUNDS):
            seconds = []
            for connection in connections:
                connection.send(True)
                seconds.append(_received(connection, timeout))
            rounds.append(seconds)
    except TimeoutError:
        return {"status": "timeout", "message": f"a process that was timed took more than {timeout:g} s"}
    except (EOFError, OSError):
        codes = [process.exitcode for process in processes]
        return {"status": "crash", "message": f"a process that was timed ended; exit statuses {codes}"}
    finally:
        for process in processes:
            process.kill()
            process.join()
    ours, theirs = (statistics.median(column) for column in zip(*rounds, strict=True))
    ratio = statistics.median(there / here for here, there in rounds)
    return {"milliseconds": ours * 1e3, "cpu_milliseconds": theirs * 1e3, "ratio": ratio, "rounds": len(rounds)}


def _received(connection: Connection, timeout: float) -> Any:
    if not connection.poll(timeout):
        raise TimeoutError
    return connection.recv()
