"""Trains a convolutional network on handwritten digits in several processes, with DistributedDataParallel.

Each process has a part of every batch. Batch statistics are those of the whole batch, and gradients are averaged during
the backward pass. After each epoch process 0 writes a checkpoint: if one process is killed and torchrun restarts them,
they continue from there (docs/distributed.md).

    torchrun --standalone --nproc-per-node 2 examples/ddp_digits.py
"""

import argparse
import os
import sys
import time
from pathlib import Path

# PyTorch's idle CPU threads spin by default, and take the processor from an OpenCL driver that runs on it.
# Must be set before torch is imported.
os.environ.setdefault("OMP_WAIT_POLICY", "passive")

import torch
import torch.distributed as dist
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

MINIMUM_ACCURACY = 0.95


def load() -> tuple[TensorDataset, TensorDataset]:
    """Return the images (8x8, from 0 to 1) and labels for training, and those for testing."""
    images, labels = load_digits(return_X_y=True)
    parts = train_test_split(images, labels, test_size=0.25, random_state=0, stratify=labels)
    train_images, test_images = (torch.tensor(part, dtype=torch.float32).view(-1, 1, 8, 8) / 16 for part in parts[:2])
    train_labels, test_labels = (torch.tensor(part) for part in parts[2:])
    return TensorDataset(train_images, train_labels), TensorDataset(test_images, test_labels)


def make_model() -> nn.Module:
    """Return a network of two convolutions and two linear layers, the same in every process."""
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(1, 32, 3, padding=1),
        nn.BatchNorm2d(32),
        nn.ReLU(),
        nn.Conv2d(32, 64, 3, padding=1),
        nn.BatchNorm2d(64),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(64 * 4 * 4, 128),
        nn.ReLU(),
        nn.Linear(128, 10),
    )


def accuracy(model: nn.Module, data: TensorDataset, device: torch.device) -> float:
    """Return the share of the images that a model classifies correctly; the processes share the work."""
    rank, processes = dist.get_rank(), dist.get_world_size()
    images, labels = (tensor[rank::processes].to(device) for tensor in data.tensors)
    model.eval()
    with torch.no_grad():
        correct = (model(images).argmax(1) == labels).sum()
    model.train()
    dist.all_reduce(correct)
    return correct.item() / len(data)


def main() -> int:
    """Train, and print the accuracy.

    Returns:
        The exit code.
    """
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--epochs", type=int, default=8)
    parser.add_argument("--batch-size", type=int, default=64, help="of all processes together")
    parser.add_argument("--checkpoint", type=Path, help="file to write after each epoch, and to continue from")
    options = parser.parse_args()

    # Rank, size and address come from torchrun. No backend is named: opencl and CPU tensors both get gloo.
    dist.init_process_group()
    rank, processes = dist.get_rank(), dist.get_world_size()
    # With several devices in a machine, each process of the machine takes its own.
    device = torch.device("opencl", int(os.environ["LOCAL_RANK"]) % torch.opencl.device_count())
    torch.opencl.set_device(device)

    train_data, test_data = load()
    sampler = DistributedSampler(train_data)
    loader = DataLoader(train_data, options.batch_size // processes, sampler=sampler)
    model = DistributedDataParallel(nn.SyncBatchNorm.convert_sync_batchnorm(make_model()).to(device))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    first = 0
    if options.checkpoint and options.checkpoint.exists():
        state = torch.load(options.checkpoint, map_location=device)
        model.module.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        first = state["epoch"] + 1
    if rank == 0:
        print(f"{processes} processes, from epoch {first} on, {torch.opencl.get_device_name(device)}", flush=True)

    for epoch in range(first, options.epochs):
        start = time.perf_counter()
        sampler.set_epoch(epoch)  # another order in each epoch
        total = torch.zeros((), device=device)
        for images, labels in loader:
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(model(images.to(device)), labels.to(device))
            loss.backward()
            optimizer.step()
            total += loss.detach()
        dist.all_reduce(total, dist.ReduceOp.AVG)
        if rank == 0:
            seconds = time.perf_counter() - start
            print(f"epoch {epoch}: loss {total.item() / len(loader):.4f}, {seconds:.2f} s", flush=True)
            if options.checkpoint:
                state = {"model": model.module.state_dict(), "optimizer": optimizer.state_dict(), "epoch": epoch}
                # Written to another file and renamed, so that a checkpoint is never incomplete.
                torch.save(state, scratch := options.checkpoint.with_suffix(".new"))
                scratch.replace(options.checkpoint)

    result = accuracy(model, test_data, device)
    if rank == 0:
        print(f"Test accuracy: {result:.2%}")
    dist.destroy_process_group()
    if result < MINIMUM_ACCURACY:
        print(f"FAILED: the accuracy is below {MINIMUM_ACCURACY:.0%}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
