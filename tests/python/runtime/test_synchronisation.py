"""When the host waits for the device: only if the user reads a value."""

import json
import warnings

import pytest
import torch
from processes import output_of
from threads import in_threads
from torch import nn


@pytest.fixture
def mode():
    """Set the mode, and restore it."""
    before = torch.opencl.get_sync_debug_mode()
    yield torch.opencl.set_sync_debug_mode
    torch.opencl.set_sync_debug_mode(before)


def waits(run) -> int:
    """Count the waits that cause a warning."""
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
def test_a_training_step_waits_only_when_the_user_reads(make: str, mode, device: torch.device) -> None:
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

    step()  # the first step builds missing programs
    mode("error")
    step()
    mode("warn")
    assert waits(step) == 0
    assert waits(losses[-1].item) == 1


def test_writes_by_an_index_tensor_wait_for_its_first_check_alone(mode, device: torch.device) -> None:
    x, rows = torch.zeros(9, 4, device=device), torch.tensor([2, -1, 5]).to(device)
    values = torch.ones(3, 4, device=device)

    def write() -> None:
        x[rows] = values

    mode("warn")
    assert waits(write) == 1
    assert waits(write) == 0
    rows.add_(1)
    assert waits(write) == 1
    expected = torch.zeros(9, 4)
    expected[[2, 8, 5, 3, 0, 6]] = 1
    assert torch.equal(x.cpu(), expected)
    rows.add_(9)
    with pytest.raises(IndexError):
        write()


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


# In a separate process: if other code has used a stream's handle, every wait asks the driver.
TIMED = """
import json, statistics, time
import torch

def median_time(run):
    times = []
    for _ in range(300):
        start = time.perf_counter()
        run()
        times.append(time.perf_counter() - start)
    return statistics.median(times)

counter, host = torch.zeros((), device="opencl"), torch.ones(())
stream = torch.opencl.current_stream()

def launch_and_wait():
    counter.add_(1)
    torch.opencl.synchronize()

launch_and_wait()
waiting = median_time(launch_and_wait)
event = stream.record_event()
torch.opencl.synchronize()
waits = [torch.opencl.synchronize, stream.synchronize, torch.accelerator.synchronize, stream.query, event.synchronize]
copies = [counter.item, counter.cpu, lambda: counter.copy_(host)]
print(json.dumps([[median_time(run) / waiting for run in runs] for runs in (waits, copies)]))
"""


def test_waiting_for_an_idle_stream_does_not_call_the_driver() -> None:
    waits, copies = json.loads(output_of(TIMED))
    assert max(waits) < 1 / 3
    # A driver that is known to share memory with the host.
    if "PoCL" in torch.opencl.get_device_properties(0).version:
        assert max(copies) < 1 / 2


def test_an_event_that_has_completed_is_known_to_have() -> None:
    event = torch.opencl.current_stream().record_event()
    torch.opencl.synchronize()
    event.synchronize()
    assert event.query()


def test_every_wait_is_for_all_that_was_enqueued_before(device: torch.device) -> None:
    values = torch.zeros(1 << 18, device=device)
    stream = torch.opencl.current_stream()
    event = torch.opencl.Event()

    def wait_for_event() -> None:
        event.record()
        event.synchronize()

    def query_until_idle() -> None:
        while not stream.query():
            pass

    waits = (torch.opencl.synchronize, stream.synchronize, wait_for_event, query_until_idle)
    for step in range(1, 41):
        values.add_(1)
        waits[step % len(waits)]()
        torch.opencl.synchronize()
        # Twice: nothing is enqueued between the two.
        assert values[-1].item() == step
        assert values.cpu().sum().item() == step << 18
        values[0] = step  # the host writes, and the next launch reads
        assert values.amax().item() == step


def test_threads_that_share_a_stream_read_what_they_enqueued(device: torch.device) -> None:
    def count(thread: int) -> None:
        values = torch.full((64,), float(thread), device=device)
        for step in range(1, 150):
            values.add_(1)
            if step % 3 == 0:
                torch.opencl.synchronize()
            assert values[step % 64].item() == thread + step

    in_threads(4, count)


def test_a_fault_is_raised_once_by_the_next_wait_of_any_kind(device: torch.device) -> None:
    stream = torch.opencl.current_stream()
    scores = torch.zeros(2, 3, device=device).log_softmax(1)

    def wait_for_event(_: torch.Tensor) -> None:
        stream.record_event().synchronize()
        # The event has shown that the stream is idle; the fault of its kernels has not been raised yet.
        torch.opencl.synchronize()

    def wait_when_idle(_: torch.Tensor) -> None:
        while not stream.query():
            pass
        stream.synchronize()

    waits = (torch.Tensor.item, torch.Tensor.cpu, wait_for_event, wait_when_idle, lambda _: torch.opencl.synchronize())
    for wait in waits:
        loss = nn.functional.nll_loss(scores, torch.tensor([0, 7], device=device))
        with pytest.raises(IndexError, match="Target 7 is out of bounds"):
            wait(loss)
        torch.opencl.synchronize()
        assert scores.cpu().shape == (2, 3)
