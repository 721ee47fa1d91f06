"""Whole models: an epoch, a training step, or inference."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial

import torch
from torch import nn
from torch.nn import functional

from benchmarks import models
from benchmarks.case import Case, Work
from benchmarks.inputs import indices, random


@dataclass(frozen=True)
class Network:
    """A network and its inputs.

    Attributes:
        name: the row's name.
        make_model: makes the network, with random weights.
        make_input: makes its input on a device.
        labels: the number of labels in a training step.
        classes: labels are less than this.
        trained: whether a training step is a row as well.
        flops: of a forward pass, if PyTorch does not count them.
        autocast: the dtype of autocast in a training step, None without.
    """

    name: str
    make_model: Callable[[], nn.Module]
    make_input: Callable[[torch.device], torch.Tensor]
    labels: int
    classes: int
    trained: bool = True
    flops: float = 0
    autocast: torch.dtype | None = None


def image(*shape: int) -> Callable[[torch.device], torch.Tensor]:
    """Return a function that makes images of a shape on a device."""
    return lambda device: random(device, *shape)


def text(vocabulary: int, *shape: int) -> Callable[[torch.device], torch.Tensor]:
    """Return a function that makes tokens below a bound on a device."""
    return lambda device: indices(device, vocabulary, *shape)


NETWORKS = (
    Network("ResNet-18 8x3x64x64", models.resnet18, image(8, 3, 64, 64), 8, 1000),
    Network("ResNet-50 1x3x224x224", models.resnet50, image(1, 3, 224, 224), 1, 1000, trained=False),
    Network("GPT-2 1x128", models.Decoder, text(50257, 1, 128), 128, 50257),
    # Four gates with two matmuls of 256x256 each, for each of 32x64 tokens, in two layers.
    Network("LSTM 32x64", models.TextLSTM, text(10000, 32, 64), 32, 10, flops=2 * 2 * 4 * 2 * 256**2 * 32 * 64),
)
DIGITS = {"LeNet": models.lenet, "convolutions": models.digits_cnn}


def cases() -> Iterator[Case]:
    """Yield an epoch of the digits, and the other networks' training steps and inference."""
    for name, network in DIGITS.items():
        yield _case(f"digits epoch, {name}", partial(_digits_epoch, network))
    for network in NETWORKS:
        yield _case(f"{network.name} inference", partial(_inference, network))
        if network.trained:
            yield _case(f"{network.name} training step", partial(training, network))


def _case(name: str, build: Callable[[torch.device], Work]) -> Case:
    return Case(group="model", name=name, build=build, tolerance=1e-3, quick="GPT" not in name)


def _inference(network: Network, device: torch.device) -> Work:
    model, x = network.make_model().eval().to(device), network.make_input(device)

    def run() -> torch.Tensor:
        with torch.no_grad():
            return model(x)

    return Work(run=run, flops=network.flops)


def training(network: Network, device: torch.device) -> Work:
    """Return the work of a training step."""
    model, x = network.make_model().to(device), network.make_input(device)
    labels = indices(device, network.classes, network.labels, index=1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    # The backward pass computes two gradients per matmul.
    return Work(run=lambda: _step(model, optimizer, x, labels, network.autocast), flops=3 * network.flops)


def _digits_epoch(make_model: Callable[[], nn.Module], device: torch.device) -> Work:
    from sklearn.datasets import load_digits  # noqa: PLC0415 - without it, all other rows can be measured

    images, labels = load_digits(return_X_y=True)
    images = torch.tensor(images / 16, dtype=torch.float32).view(-1, 1, 8, 8).to(device)
    batches = list(zip(images.split(64), torch.tensor(labels).to(device).split(64), strict=True))
    model = make_model().to(device)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    return Work(run=lambda: torch.stack([_step(model, optimizer, *batch) for batch in batches]).mean())


def _step(
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    x: torch.Tensor,
    labels: torch.Tensor,
    autocast: torch.dtype | None = None,
) -> torch.Tensor:
    optimizer.zero_grad()
    with torch.autocast(x.device.type, autocast, enabled=autocast is not None):
        output = model(x)
        # A language model has an output for every token.
        loss = functional.cross_entropy(output.view(len(labels), -1), labels)
    loss.backward()
    optimizer.step()
    return loss.detach()
