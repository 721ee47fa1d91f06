"""When the host waits for the device: only where the user reads."""

import warnings

import pytest
import torch
from torch import nn


@pytest.fixture
def mode():
    """Set the mode, and put it back."""
    before = torch.opencl.get_sync_debug_mode()
    yield torch.opencl.set_sync_debug_mode
    torch.opencl.set_sync_debug_mode(before)


def waits(run) -> int:
    """Count the waits that are warned of."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        run()
    return sum("synchronizing OpenCL operation" in str(warning.message) for warning in caught)


class Model(nn.Module):
    """Convolution, normalisation, attention, dropout."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.GELU(), nn.MaxPool2d(2))
        self.layer = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.1, batch_first=True)
        self.head = nn.Linear(8, 5)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """Classify."""
        tokens = self.stem(images).flatten(2).transpose(1, 2)
        return self.head(self.layer(tokens).mean(1))


@pytest.mark.parametrize("make", ["SGD", "Adam", "AdamW"])
def test_a_training_step_waits_only_where_the_user_reads(make: str, mode, device: torch.device) -> None:
    model = Model().to(device)
    optimizer = getattr(torch.optim, make)(model.parameters(), lr=1e-2)
    images, labels = torch.randn(4, 3, 8, 8).to(device), torch.randint(5, (4,)).to(device)
    losses = []

    def step() -> None:
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(images), labels)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        losses.append(loss.detach())

    step()  # the first one builds what is missing
    mode("error")
    step()
    mode("warn")
    assert waits(step) == 0
    assert waits(losses[-1].item) == 1


def test_modes(mode, device: torch.device) -> None:
    tensor = torch.ones(3, device=device)
    for name, number in (("default", 0), ("warn", 1), ("error", 2)):
        mode(name)
        assert torch.opencl.get_sync_debug_mode() == number
    with pytest.raises(RuntimeError, match="called a synchronizing OpenCL operation"):
        tensor.cpu()
    torch.opencl.synchronize()
    mode(1)
    assert waits(tensor.cpu) == 1
    assert waits(lambda: tensor + 1) == 0
    mode(0)
    assert waits(tensor.cpu) == 0
    with pytest.raises(RuntimeError, match="expected one of"):
        mode("loud")
    with pytest.raises(RuntimeError, match="expected 0, 1 or 2"):
        mode(3)
    with pytest.raises(TypeError, match="not NoneType"):
        mode(None)
