"""What each host of test_distributed_hosts.py runs: `distributed_hosts_program.py CASE FOLDER`, by torchrun."""

import os
import signal
import sys
import time
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from distributed_models import Gpt, losses, text
from torch import nn
from torch.distributed.checkpoint.state_dict import get_model_state_dict
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor
from torch.nn.parallel import DistributedDataParallel

DEVICE = torch.device("opencl")


def trains(folder: Path) -> None:
    """Train with DDP, each host on half of a batch, and save the losses and the parameters."""
    model = DistributedDataParallel(Gpt().to(DEVICE))
    inputs, targets = (each.chunk(2)[dist.get_rank()].to(DEVICE) for each in text())
    found = losses(model, inputs, targets)
    dist.all_reduce(found, op=dist.ReduceOp.AVG)
    if dist.get_rank() == 0:
        parameters = {name: each.cpu() for name, each in model.module.state_dict().items()}
        torch.save((found.cpu(), parameters), folder / "trained")


def shards(folder: Path) -> None:
    """Train a model with FSDP2, and save a checkpoint and the whole parameters."""
    model: nn.Module = Gpt().to(DEVICE)
    for block in [*model.blocks, model]:  # type: ignore[misc]
        fully_shard(block)
    inputs, targets = (each.chunk(2)[dist.get_rank()].to(DEVICE) for each in text())
    losses(model, inputs, targets)
    state = get_model_state_dict(model)
    dcp.save(state, checkpoint_id=folder / "checkpoint")
    tensors = {name: each.full_tensor() if isinstance(each, DTensor) else each for name, each in state.items()}
    whole = {name: each.cpu() for name, each in tensors.items()}
    if dist.get_rank() == 0:
        torch.save(whole, folder / "whole")


def waits(folder: Path) -> None:
    """Reduce until the link is cut, and note after how many seconds the error is raised."""
    x = torch.ones(1 << 16, device=DEVICE)
    start = time.monotonic()
    try:
        while True:
            start = time.monotonic()
            dist.all_reduce(x)
            torch.opencl.synchronize()
            x.fill_(1)
            (folder / f"started {dist.get_rank()}").touch()
    except RuntimeError as error:
        (folder / f"raised {dist.get_rank()}").write_text(f"{time.monotonic() - start:.1f} {error}")


def restarts(folder: Path) -> None:
    """Kill one process in the first attempt, and finish in the second."""
    x = torch.full((4,), dist.get_rank() + 1.0, device=DEVICE)
    dist.all_reduce(x)
    # Not TORCHELASTIC_RESTART_COUNT, which counts only the failures of a host's own processes.
    killed = folder / "killed"
    if dist.get_rank() == 1 and not killed.exists():
        killed.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    dist.all_reduce(x)  # raises in the first attempt
    (folder / f"finished {dist.get_rank()}").write_text(str(x.sum().item()))


if __name__ == "__main__":
    case, place = sys.argv[1:]
    dist.init_process_group(timeout=timedelta(seconds=5 if case == "waits" else 60))
    {"trains": trains, "shards": shards, "waits": waits, "restarts": restarts}[case](Path(place))
    if case != "waits":
        dist.destroy_process_group()
