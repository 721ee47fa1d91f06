"""Tensors sent to other processes, as copies through the host's memory, by queues and data loaders."""

import pytest
import torch
import torch.multiprocessing as mp
from processes import run_python

PLACES = 40


class OnTheDevice(torch.utils.data.Dataset):
    """Returns tensors that the worker creates on the device."""

    def __len__(self) -> int:
        return PLACES

    def __getitem__(self, place: int) -> tuple[torch.Tensor, int]:
        return torch.full((3,), float(place), device="opencl"), place


def change_and_return(received: mp.Queue, answers: mp.Queue) -> None:
    """Add 1 to the received tensors, and send them back with parts of them."""
    tensor, view, *others = received.get()
    tensor += 1
    answers.put((tensor, view, *others))
    received.get()  # the sent tensors must live until they are received


@pytest.fixture
def there_and_back():
    """Sends tensors to another process, which adds 1 to the first, and returns the answer."""
    spawn = mp.get_context("spawn")
    to, back = spawn.Queue(), spawn.Queue()
    process = spawn.Process(target=change_and_return, args=(to, back))
    process.start()

    def send(*tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
        to.put(tensors)
        answer = back.get(timeout=120)
        to.put(None)
        process.join()
        return answer

    yield send
    process.terminate()


def test_batches_of_spawned_workers_are_pinned_and_copied_asynchronously(device):
    data = torch.utils.data.TensorDataset(torch.arange(16.0))
    loader = torch.utils.data.DataLoader(
        data, 4, num_workers=1, multiprocessing_context="spawn", pin_memory=True, timeout=120
    )
    total = torch.zeros((), device=device)
    for (batch,) in loader:
        assert batch.is_pinned()
        total += batch.to(device, non_blocking=True).sum()
    assert total.item() == 120


def test_workers_of_a_data_loader_may_return_tensors_of_the_device(device):
    loader = torch.utils.data.DataLoader(OnTheDevice(), 8, num_workers=2, multiprocessing_context="spawn", timeout=120)
    seen = []
    for values, places in loader:
        assert values.device == device
        assert values[:, 2].tolist() == places.tolist()
        seen += places.tolist()
    assert sorted(seen) == list(range(PLACES))


def test_tensors_arrive_as_copies_and_views_stay_views(device, there_and_back):
    tensor = torch.arange(12, dtype=torch.float16, device=device).view(3, 4)
    parameter = torch.nn.Parameter(torch.ones(2, device=device))
    empty = torch.empty(0, 3, device=device)
    on_the_host = torch.ones(3)
    came, view, *others = there_and_back(tensor, tensor.t()[1], parameter, empty, on_the_host)
    assert tensor[0].tolist() == [0, 1, 2, 3], "the sender's tensor is unchanged"
    assert came.device == device and came.tolist() == (tensor + 1).tolist()
    assert view.tolist() == [2, 6, 10] and view.stride() == (4,)
    assert view.untyped_storage().data_ptr() == came.untyped_storage().data_ptr()
    assert isinstance(others[0], torch.nn.Parameter) and others[0].requires_grad
    assert others[1].shape == (0, 3) and others[1].device == device
    assert others[2].device.type == "cpu" and others[2].tolist() == [1, 1, 1]


def test_share_memory_does_not_move_a_tensor(device):
    tensor = torch.ones(3, device=device)
    assert tensor.share_memory_() is tensor and tensor.device == device


def test_a_forked_worker_says_that_it_cannot_use_opencl():
    code = """
        import torch
        class Data(torch.utils.data.Dataset):
            def __len__(self):
                return 2
            def __getitem__(self, place):
                return torch.ones(1, device="opencl")
        torch.ones(1, device="opencl")
        list(torch.utils.data.DataLoader(Data(), num_workers=1, multiprocessing_context="fork", timeout=60))
    """
    done = run_python(code)
    assert done.returncode == 1
    assert "use the 'spawn' start method" in done.stderr
