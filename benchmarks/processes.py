"""Throughput of DistributedDataParallel in two processes compared with one, each process on a separate core.

python -m benchmarks.processes prints images per second of ResNet-18 on 3x64x64, with 8 images per process, on the
device and on the CPU. Runs of one and of two processes alternate; the results are medians of the rounds.
"""

import os
import statistics
import subprocess
import sys
import tempfile
import time

import torch
import torch.distributed as dist
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel

from benchmarks.models import resnet18

ROUNDS = 5
IMAGES = 8
STEPS = 10


def train(rank: int, processes: int, device: str, store: str) -> float:
    """Return images per second of all processes together, on process 0."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    model = resnet18().to(device)
    if processes > 1:
        dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=processes)
        model = DistributedDataParallel(model)
    images, labels = torch.randn(IMAGES, 3, 64, 64, device=device), torch.zeros(IMAGES, dtype=torch.long, device=device)
    optimizer = torch.optim.SGD(model.parameters(), 0.01)

    def step() -> None:
        optimizer.zero_grad()
        cross_entropy(model(images), labels).backward()
        optimizer.step()

    # All processes need the same number of steps; kernels that are built later are stored for the next round.
    for _ in range(8):
        step()
    if device == "opencl":
        torch.opencl.synchronize()
    if processes > 1:
        dist.barrier()
    start = time.perf_counter()
    for _ in range(STEPS):
        step()
    if device == "opencl":
        torch.opencl.synchronize()
    return processes * IMAGES * STEPS / (time.perf_counter() - start)


def measure(processes: int, device: str) -> float:
    """Run that many processes, and return their images per second."""
    store = tempfile.mktemp()
    environment = {**os.environ, "POCL_MAX_PTHREAD_COUNT": "1", "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-W", "ignore", "-m", "benchmarks.processes"]
    children = []
    for rank, core in zip(range(processes), sorted(os.sched_getaffinity(0)), strict=False):
        # Pinned before the driver counts the cores for its threads.
        pinned = ["taskset", "--cpu-list", str(core), *command, str(rank), str(processes), device, store]
        children.append(subprocess.Popen(pinned, env=environment, stdout=subprocess.PIPE))
    outputs = [child.communicate()[0] for child in children]
    return float(outputs[0])


def main() -> None:
    """Measure, or run as one of the measured processes."""
    if len(sys.argv) > 1:
        rank, processes, device, store = sys.argv[1:]
        print(train(int(rank), int(processes), device, store))
        return
    for device in ("opencl", "cpu"):
        rounds = [[measure(processes, device) for processes in (1, 2)] for _ in range(ROUNDS)]
        one, two = (statistics.median(column) for column in zip(*rounds, strict=True))
        ratio = statistics.median(two / one for one, two in rounds)
        print(f"{device}: 1 process {one:.1f} images/s, 2 processes {two:.1f} images/s, {ratio:.2f} times", flush=True)


if __name__ == "__main__":
    main()
