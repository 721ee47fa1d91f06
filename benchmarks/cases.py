"""What is measured. A case builds the same work, from the same random numbers, on any device."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import nn

from benchmarks import models

# Runs the work once, and returns a tensor to compare with what the CPU computes.
Work = Callable[[], torch.Tensor]

MIB = 1 << 20
CHAIN = 1000


@dataclass(frozen=True, kw_only=True)
class Case:
    """One row of the table.

    Attributes:
        name: what selects it on the command line.
        build: prepares the work on a device, and returns it.
        tolerance: relative, of the comparison with the CPU's result.
        calls: how many operations the work does, where the time of one is asked for.
        asynchronous: whether the clock stops as soon as the work is submitted.
    """

    name: str
    build: Callable[[torch.device], Work]
    tolerance: float = 1e-5
    calls: int = 1
    asynchronous: bool = False


def _random(device: torch.device, *shape: int) -> torch.Tensor:
    return torch.randn(shape).to(device)


def _add(device: torch.device) -> Work:
    a, b = _random(device, 16 * MIB), _random(device, 16 * MIB)
    return lambda: a + b


def _exp(device: torch.device) -> Work:
    a = _random(device, 16 * MIB)
    return a.exp


def _sum(device: torch.device) -> Work:
    # Not centred at 0: the sum of such numbers is nothing but rounding errors.
    a = _random(device, 16 * MIB) + 1
    return a.sum


def _matmul(size: int) -> Callable[[torch.device], Work]:
    def build(device: torch.device) -> Work:
        a, b = _random(device, size, size), _random(device, size, size)
        return lambda: a @ b

    return build


def _convolution(device: torch.device) -> Work:
    x, weight = _random(device, 32, 64, 56, 56), _random(device, 64, 64, 3, 3)
    return lambda: nn.functional.conv2d(x, weight, padding=1)


def _convolution_backward(device: torch.device) -> Work:
    x, weight = _random(device, 32, 64, 56, 56), _random(device, 64, 64, 3, 3)
    gradient = _random(device, 32, 64, 56, 56)
    x.requires_grad_()
    weight.requires_grad_()

    def work() -> torch.Tensor:
        output = nn.functional.conv2d(x, weight, padding=1)
        return torch.autograd.grad(output, (x, weight), gradient)[1]

    return work


def _add_chain(device: torch.device) -> Work:
    a, b = _random(device, 4), _random(device, 4)

    def work() -> torch.Tensor:
        total = a
        for _ in range(CHAIN):
            total = total + b
        return total

    return work


def _train_step(model: nn.Module, optimizer: torch.optim.Optimizer, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    optimizer.zero_grad()
    loss = nn.functional.cross_entropy(model(x), y)
    loss.backward()
    optimizer.step()
    return loss.detach()


def _digits_epoch(device: torch.device) -> Work:
    images, labels = _random(device, 1347, 1, 8, 8), torch.randint(10, (1347,)).to(device)
    model = models.digits_cnn().to(device)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    batches = list(zip(images.split(64), labels.split(64), strict=True))

    def work() -> torch.Tensor:
        losses = [_train_step(model, optimizer, x, y) for x, y in batches]
        return torch.stack(losses).mean()

    return work


def _resnet_step(device: torch.device) -> Work:
    x, y = _random(device, 8, 3, 64, 64), torch.randint(1000, (8,)).to(device)
    model = models.resnet18().to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    return lambda: _train_step(model, optimizer, x, y)


CASES = (
    Case(name="add", build=_add),
    Case(name="exp", build=_exp),
    Case(name="sum", build=_sum),
    Case(name="matmul-1024", build=_matmul(1024), tolerance=1e-4),
    Case(name="matmul-2048", build=_matmul(2048), tolerance=1e-4),
    Case(name="conv", build=_convolution, tolerance=1e-4),
    Case(name="conv-backward", build=_convolution_backward, tolerance=1e-3),
    Case(name="add-4", build=_add_chain, calls=CHAIN, asynchronous=True),
    Case(name="add-4-done", build=_add_chain, calls=CHAIN),
    Case(name="digits-epoch", build=_digits_epoch, tolerance=1e-2),
    Case(name="resnet-step", build=_resnet_step, tolerance=1e-2),
)
