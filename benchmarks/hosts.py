"""Data-parallel training on two hosts: the share of a step that is communication, and how much of it is hidden.

python -m benchmarks.hosts [RATE ...] trains ResNet-18 on 3x64x64 with DistributedDataParallel in two network namespaces
of this machine, which are two hosts to gloo: one process on one core each, 8 images a process. The cable between them
has the rates given (default: 100mbit 1gbit). Without overlap one `all_reduce` of all gradients follows the
backward pass. It needs root, and ip and tc (Debian: iproute2).
"""

import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch
import torch.distributed as dist
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel

from benchmarks.models import resnet18

ADDRESSES = ["10.78.0.1", "10.78.0.2"]
NAMES = [f"hosts{os.getpid()}{letter}" for letter in "ab"]
IMAGES = 8
ROUNDS = 7


def ip(*words: str) -> None:
    """Run ip; an error ends the program with ip's message."""
    subprocess.run(["ip", *words], check=True)


@contextmanager
def two_hosts(rate: str) -> Iterator[None]:
    """Two network namespaces, joined by a virtual cable that sends at most `rate` in each direction."""
    ends = [f"v{name[-9:]}" for name in NAMES]
    try:
        for name in NAMES:
            ip("netns", "add", name)
        ip("link", "add", ends[0], "type", "veth", "peer", "name", ends[1])
        for name, end, address in zip(NAMES, ends, ADDRESSES, strict=True):
            ip("link", "set", end, "netns", name, "name", "cable")
            ip("-n", name, "addr", "add", f"{address}/24", "dev", "cable")
            for link in ("cable", "lo"):
                ip("-n", name, "link", "set", link, "up")
            limit = ["tbf", "rate", rate, "burst", "256kb", "latency", "50ms"]
            subprocess.run(["tc", "-n", name, "qdisc", "add", "dev", "cable", "root", *limit], check=True)
        yield
    finally:
        for name in NAMES:
            subprocess.run(["ip", "netns", "del", name], check=False, stderr=subprocess.DEVNULL)


def train(rank: int) -> None:
    """Print the median seconds of steps as JSON: without communication, overlapped with it, and followed by it."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    dist.init_process_group("gloo", init_method=f"tcp://{ADDRESSES[0]}:29500", rank=rank, world_size=2)
    model = DistributedDataParallel(resnet18().to("opencl"))
    images, labels = torch.randn(IMAGES, 3, 64, 64, device="opencl"), torch.zeros(IMAGES, dtype=torch.long).to("opencl")
    optimizer = torch.optim.SGD(model.parameters(), 0.01)

    def overlapped() -> None:
        optimizer.zero_grad()
        cross_entropy(model(images), labels).backward()
        optimizer.step()

    def alone() -> None:
        with model.no_sync():
            overlapped()

    def after() -> None:
        optimizer.zero_grad()
        with model.no_sync():
            cross_entropy(model(images), labels).backward()
        gradients = [parameter.grad for parameter in model.parameters()]
        flat = torch.cat([gradient.reshape(-1) for gradient in gradients])
        dist.all_reduce(flat)
        for gradient, reduced in zip(gradients, flat.split([each.numel() for each in gradients]), strict=True):
            gradient.copy_(reduced.view_as(gradient))
        optimizer.step()

    steps: dict[str, Callable[[], None]] = {"alone": alone, "overlapped": overlapped, "after": after}
    for step in steps.values():
        step()
    times: dict[str, list[float]] = {name: [] for name in steps}
    for _ in range(ROUNDS):
        for name, step in steps.items():
            torch.opencl.synchronize()
            dist.barrier()
            start = time.perf_counter()
            step()
            torch.opencl.synchronize()
            times[name].append(time.perf_counter() - start)
    print(json.dumps({name: statistics.median(values) for name, values in times.items()}))


def measure(rate: str) -> dict[str, float]:
    """Return what `train` prints in the first of two hosts.

    Raises:
        RuntimeError: there are fewer than two cores, or a host has failed.
    """
    cores = sorted(os.sched_getaffinity(0))[:2]
    if len(cores) < 2:
        raise RuntimeError("benchmarks.hosts: two cores are needed, one for each host")
    environment = {**os.environ, "POCL_MAX_PTHREAD_COUNT": "1", "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "cable"}
    children = []
    with two_hosts(rate):
        for rank, (name, core) in enumerate(zip(NAMES, cores, strict=True)):
            pinned = ["ip", "netns", "exec", name, "taskset", "--cpu-list", str(core), sys.executable, "-W", "ignore"]
            command = [*pinned, "-m", "benchmarks.hosts", "--rank", str(rank)]
            children.append(subprocess.Popen(command, env=environment, stdout=subprocess.PIPE))
        outputs = [child.communicate()[0] for child in children]
    if any(child.returncode for child in children):
        raise RuntimeError("benchmarks.hosts: a host has failed, see its error above")
    return json.loads(outputs[0])


def main() -> None:
    """Measure, or run as one of the measured processes."""
    if sys.argv[1:2] == ["--rank"]:
        train(int(sys.argv[2]))
        return
    for rate in sys.argv[1:] or ["100mbit", "1gbit"]:
        found = measure(rate)
        share = 1 - found["alone"] / found["overlapped"]
        hidden = (found["after"] - found["overlapped"]) / (found["after"] - found["alone"])
        seconds = ", ".join(f"{name} {value:.2f} s" for name, value in found.items())
        print(f"{rate}: {seconds}; {share:.0%} of a step waits for communication; {hidden:.0%} of the latter is hidden")


if __name__ == "__main__":
    main()
