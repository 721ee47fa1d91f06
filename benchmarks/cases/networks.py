"""Whole models: an epoch, a training step, or inference."""

from collections.abc import Callable, Iterator
from functools import partial

import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.nn import functional

from benchmarks import models
from benchmarks.case import Case, Work
from benchmarks.inputs import indices, random

# name: the network, its input, and the number of its classes
Network = tuple[Callable[[], nn.Module], Callable[[torch.device], torch.Tensor], int]
NETWORKS: dict[str, Network] = {
    "ResNet-18 8x3x64x64": (models.resnet18, lambda device: random(device, 8, 3, 64, 64), 1000),
    "ResNet-50 1x3x224x224": (models.resnet50, lambda device: random(device, 1, 3, 224, 224), 1000),
    "GPT-2 1x128": (models.Decoder, lambda device: indices(device, 50257, 1, 128), 50257),
    "LSTM 32x64": (models.TextLSTM, lambda device: indices(device, 10000, 32, 64), 10),
}
TRAINED = ("ResNet-18 8x3x64x64", "GPT-2 1x128", "LSTM 32x64")
DIGITS = {"LeNet": models.lenet, "convolutions": models.digits_cnn}


def cases() -> Iterator[Case]:
    """Yield an epoch of the digits, and the other networks' training steps and inference."""
    for name, network in DIGITS.items():
        yield _case(f"digits epoch, {name}", partial(_digits_epoch, network))
    for name, network in NETWORKS.items():
        yield _case(f"{name} inference", partial(_inference, network))
        if name in TRAINED:
            yield _case(f"{name} training step", partial(_training, network))


def _case(name: str, build: Callable[[torch.device], Work]) -> Case:
    return Case(group="model", name=name, build=build, tolerance=1e-3, quick="GPT" not in name)


def _inference(network: Network, device: torch.device) -> Work:
    make_model, make_input, _ = network
    model, x = make_model().eval().to(device), make_input(device)

    def run() -> torch.Tensor:
        with torch.no_grad():
            return model(x)

    return Work(run=run)


def _training(network: Network, device: torch.device) -> Work:
    make_model, make_input, classes = network
    model, x = make_model().to(device), make_input(device)
    labels = indices(device, classes, x.numel() if classes == 50257 else len(x), index=1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    return Work(run=lambda: _step(model, optimizer, x, labels))


def _digits_epoch(make_model: Callable[[], nn.Module], device: torch.device) -> Work:
    images, labels = load_digits(return_X_y=True)
    images = torch.tensor(images / 16, dtype=torch.float32).view(-1, 1, 8, 8).to(device)
    batches = list(zip(images.split(64), torch.tensor(labels).to(device).split(64), strict=True))
    model = make_model().to(device)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    return Work(run=lambda: torch.stack([_step(model, optimizer, *batch) for batch in batches]).mean())


def _step(model: nn.Module, optimizer: torch.optim.Optimizer, x: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    optimizer.zero_grad()
    output = model(x)
    # A language model has an output for every token.
    loss = functional.cross_entropy(output.view(len(labels), -1), labels)
    loss.backward()
    optimizer.step()
    return loss.detach()
