"""A model in two stages on two devices, in one process: copies between them, streams and events, and a training step.

The devices are opencl:0 and opencl:1. Batches are split into micro-batches, so that the devices work at the same time:
while the second one computes its stage of one micro-batch, the first one computes its stage of the next. Without two
devices, PoCL can show the processor as two:

    POCL_DEVICES="pthread basic" python examples/two_devices.py
"""

import copy
import sys

import torch
from torch import nn

MICRO_BATCHES = 4


class Pipeline(nn.Module):
    """Two stages on two devices.

    Args:
        first: the first stage.
        second: the second stage, which takes the first one's result.
        devices: the devices of the stages.
    """

    def __init__(self, first: nn.Module, second: nn.Module, devices: tuple[torch.device, torch.device]) -> None:
        super().__init__()
        self.devices = devices
        self.first, self.second = first.to(devices[0]), second.to(devices[1])

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return the result on the second device. Only the copies between the devices wait for them."""
        parts = [self.first(part) for part in x.to(self.devices[0]).chunk(MICRO_BATCHES)]
        # A copy is ordered after the earlier work of both devices; autograd copies gradients back.
        return torch.cat([self.second(part.to(self.devices[1])) for part in parts])


def check_events(devices: tuple[torch.device, torch.device]) -> None:
    """Make the second device wait for an event of the first one; the host does not wait."""
    numbers = torch.arange(1000.0, device=devices[0])
    stream = torch.opencl.Stream(devices[0])
    stream.wait_stream(torch.opencl.current_stream(devices[0]))
    with torch.opencl.stream(stream):
        squares = numbers.square()
        done = torch.opencl.Event()
        done.record(stream)
    torch.opencl.current_stream(devices[1]).wait_event(done)
    on_second = squares.to(devices[1])
    torch.testing.assert_close(on_second.cpu(), torch.arange(1000.0).square())


def main() -> int:
    """Compare a training step on two devices with one on the CPU.

    Returns:
        The exit code: 2 without two devices.
    """
    if torch.opencl.device_count() < 2:
        print('This needs two devices. With PoCL: POCL_DEVICES="pthread basic"', file=sys.stderr)
        return 2
    devices = torch.device("opencl:0"), torch.device("opencl:1")
    for device in devices:
        print(f"{device}: {torch.opencl.get_device_name(device)}")

    torch.manual_seed(0)
    stages = nn.Sequential(nn.Linear(32, 64), nn.GELU()), nn.Linear(64, 10)
    reference = nn.Sequential(*copy.deepcopy(stages))
    pipeline = Pipeline(*stages, devices)
    x, labels = torch.randn(64, 32), torch.randint(10, (64,))
    for model, target in ((reference, labels), (pipeline, labels.to(devices[1]))):
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        loss = nn.functional.cross_entropy(model(x), target)
        loss.backward()
        optimizer.step()
        print(f"{type(model).__name__}: loss {loss.item():.6f}")
    for ours, theirs in zip(pipeline.parameters(), reference.parameters(), strict=True):
        torch.testing.assert_close(ours.cpu(), theirs)

    check_events(devices)
    # device="opencl" and torch.opencl's functions refer to the current device.
    with torch.opencl.device(1):
        assert torch.ones(2, device="opencl").device == devices[1]
    print("two devices: weights after a step agree with the CPU's")
    return 0


if __name__ == "__main__":
    sys.exit(main())
