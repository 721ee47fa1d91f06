"""Trains a small convolutional network on scikit-learn's handwritten digits, on an OpenCL device.

Compiles the kernels first; later runs load them. Then trains the same network on the CPU, in a separate process with
PyTorch's defaults, and compares the times.
Exits with 1 if the test accuracy is below 97 %, or if an operator of the training lacks an OpenCL kernel and ran on the
CPU instead.

    python examples/train_digits.py [--device opencl:1]
"""

import argparse
import os
import sys
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context

# PyTorch's idle CPU threads spin by default, and take the processor from an OpenCL driver that runs on it.
# Must be set before torch is imported. The process that trains on the CPU keeps the default, which is faster there.
if __name__ == "__main__":
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")

import torch
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from torch import nn
from tqdm import tqdm

MINIMUM_ACCURACY = 0.97


@dataclass(frozen=True)
class Digits:
    """Images of 8x8 pixels and their labels, split for training and testing."""

    train_images: torch.Tensor
    train_labels: torch.Tensor
    test_images: torch.Tensor
    test_labels: torch.Tensor

    @staticmethod
    def load() -> "Digits":
        """Return the data set that comes with scikit-learn, the same split every time."""
        images, labels = load_digits(return_X_y=True)
        parts = train_test_split(images, labels, test_size=0.25, random_state=0, stratify=labels)
        train_images, test_images = (torch.tensor(p, dtype=torch.float32).view(-1, 1, 8, 8) / 16 for p in parts[:2])
        train_labels, test_labels = (torch.tensor(p) for p in parts[2:])
        return Digits(train_images, train_labels, test_images, test_labels)

    def to(self, device: torch.device) -> "Digits":
        """Return the same data on a device."""
        return Digits(*(tensor.to(device) for tensor in vars(self).values()))


@dataclass(frozen=True)
class Result:
    """The result of a training. The times of the epochs do not include the evaluation."""

    accuracy: float
    losses: list[float]
    seconds: list[float]


def make_model() -> nn.Module:
    """Return a network of two convolutions and two linear layers."""
    return nn.Sequential(
        nn.Conv2d(1, 32, 3, padding=1),
        nn.BatchNorm2d(32),
        nn.ReLU(),
        nn.Conv2d(32, 64, 3, padding=1),
        nn.BatchNorm2d(64),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Dropout(0.25),
        nn.Linear(64 * 4 * 4, 128),
        nn.ReLU(),
        nn.Linear(128, 10),
    )


def make_trainer(device: torch.device) -> tuple[nn.Module, Callable[[torch.Tensor, torch.Tensor], torch.Tensor]]:
    """Return a network on a device, and a function that trains it with a batch and returns the loss."""
    torch.manual_seed(0)
    model = make_model().to(device)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    loss_function = nn.CrossEntropyLoss()

    def step(images: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        optimizer.zero_grad()
        loss = loss_function(model(images), labels)
        loss.backward()
        optimizer.step()
        return loss.detach()

    return model, step


def accuracy(model: nn.Module, digits: Digits) -> float:
    """Return the share of the test images that a network recognises."""
    model.eval()
    with torch.no_grad():
        correct = model(digits.test_images).argmax(1) == digits.test_labels
    return correct.float().mean().item()


def warm_up(device: torch.device, digits: Digits, batch_size: int) -> float:
    """Compile the kernels of the training with a temporary network; return the seconds that it took."""
    model, step = make_trainer(device)
    digits = digits.to(device)
    count = len(digits.train_labels)
    last = count % batch_size or min(batch_size, count)
    # A full batch, and the last one of an epoch, which may be smaller.
    images = min(batch_size + last, count)

    def work() -> None:
        order = torch.randperm(images).to(device)
        for batch in order.split(batch_size):
            torch.zeros((), device=device).add_(step(digits.train_images[batch], digits.train_labels[batch]) * last)
        accuracy(model, digits)
        model.train()

    done = torch.opencl.warmup(work)
    print(f"Kernels: {done.compiled} programs compiled, which later runs load; {done.loaded} loaded")
    return done.seconds


def train(device: torch.device, digits: Digits, epochs: int, batch_size: int) -> Result:
    """Train a network from the same initial weights on any device.

    Args:
        device: the device.
        digits: the data.
        epochs: the number of passes over the training images.
        batch_size: the number of images in a step.

    Returns:
        The accuracy on the test images, and the mean loss and the time of each epoch.
    """
    model, step = make_trainer(device)
    digits = digits.to(device)
    count = len(digits.train_labels)
    losses, seconds = [], []

    with tqdm(total=epochs * count, unit="image", desc=str(device)) as progress:
        for _ in range(epochs):
            start = time.perf_counter()
            order = torch.randperm(count).to(device)
            total = torch.zeros((), device=device)
            for batch in order.split(batch_size):
                # Stays on the device: reading it here would make every step wait.
                total += step(digits.train_images[batch], digits.train_labels[batch]) * len(batch)
                progress.update(len(batch))
            losses.append(total.item() / count)
            seconds.append(time.perf_counter() - start)
            progress.set_postfix(loss=f"{losses[-1]:.4f}")

    return Result(accuracy(model, digits), losses, seconds)


def train_on_cpu(epochs: int, batch_size: int) -> Result:
    """Train on the CPU in a new process, whose threads wait as PyTorch's do by default."""
    os.environ.pop("OMP_WAIT_POLICY", None)
    with ProcessPoolExecutor(max_workers=1, mp_context=get_context("spawn")) as pool:
        return pool.submit(train, torch.device("cpu"), Digits.load(), epochs, batch_size).result()


def main() -> int:
    """Train on both devices and print the comparison.

    Returns:
        The exit code.
    """
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", type=torch.device, default=torch.device("opencl"))
    parser.add_argument("--epochs", type=int, default=12)
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--cold", action="store_true", help="compile kernels while training, not before it")
    options = parser.parse_args()

    digits = Digits.load()
    on_opencl = options.device.type == "opencl"
    print(f"Device: {options.device}, {torch.opencl.get_device_name(options.device) if on_opencl else 'CPU'}")
    warms_up = on_opencl and not options.cold
    preparation = warm_up(options.device, digits, options.batch_size) if warms_up else 0.0
    result = train(options.device, digits, options.epochs, options.batch_size)
    fallbacks = torch.opencl.fallbacks() if on_opencl else {}
    cpu = train_on_cpu(options.epochs, options.batch_size)

    print("\nepoch   loss   seconds   CPU: loss   seconds")
    for epoch, row in enumerate(zip(result.losses, result.seconds, cpu.losses, cpu.seconds, strict=True), 1):
        print("{:5} {:6.4f} {:9.2f} {:11.4f} {:9.2f}".format(epoch, *row))
    ours, theirs = sum(result.seconds), sum(cpu.seconds)
    print(f"\nTest accuracy: {result.accuracy:.2%} (CPU {cpu.accuracy:.2%})")
    print(f"Training time: {ours:.2f} s, on the CPU {theirs:.2f} s: {theirs / ours:.2f} times the CPU's speed")
    if warms_up:
        print(f"Kernels were prepared in {preparation:.2f} s before it; otherwise the first epoch would take longer.")
        print(f"Including that time: {theirs / (ours + preparation):.2f} times the CPU's speed")
    print(f"Operators that fell back to the CPU: {fallbacks or 'none'}")

    if result.accuracy < MINIMUM_ACCURACY:
        print(f"FAILED: the accuracy is below {MINIMUM_ACCURACY:.0%}", file=sys.stderr)
        return 1
    if fallbacks:
        print("FAILED: the training must run only on the device", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
