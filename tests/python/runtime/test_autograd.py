"""Autograd on the device: hooks, graphs, checkpoints, functions, threads."""

import threading
from contextlib import nullcontext

import pytest
import torch
from processes import output_of
from threads import in_threads
from torch.utils.checkpoint import checkpoint


@pytest.fixture
def x(device) -> torch.Tensor:
    return torch.tensor([1.0, 2.0, 3.0], device=device, requires_grad=True)


def test_gradients_accumulate_on_the_device(device, x):
    for _ in range(2):
        (x * x).sum().backward()
    assert x.grad.device == device
    assert x.grad.tolist() == [4, 8, 12]


def test_hooks_see_and_change_gradients(x):
    seen = []
    x.register_hook(lambda grad: grad * 10)
    x.register_post_accumulate_grad_hook(lambda tensor: seen.append(tensor.grad.tolist()))
    y = x * 2
    y.register_hook(lambda grad: seen.append(grad.tolist()))
    y.sum().backward()
    assert seen == [[1, 1, 1], [20, 20, 20]]


def test_a_graph_can_be_kept(x):
    y = (x**3).sum()
    y.backward(retain_graph=True)
    y.backward()
    assert x.grad.tolist() == [6, 24, 54]
    with pytest.raises(RuntimeError, match="second time"):
        y.backward()


def test_second_derivatives(x):
    (first,) = torch.autograd.grad((x**3).sum(), x, create_graph=True)
    (second,) = torch.autograd.grad(first.sum(), x)
    assert second.tolist() == [6, 12, 18]


def test_saved_values_must_not_change(x):
    y = x.exp()
    y.add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.sum().backward()


def test_no_grad_detach_and_views(x):
    with torch.no_grad():
        assert not (x * 2).requires_grad
    base = torch.zeros(2, 3, device=x.device)
    base[1] = x * 2
    base[1].sum().backward()
    assert x.grad.tolist() == [2, 2, 2]
    assert not x.detach().requires_grad


@pytest.mark.needs_float64
def test_a_custom_function(x):
    class Cube(torch.autograd.Function):
        @staticmethod
        def forward(ctx, value):
            ctx.save_for_backward(value)
            return value**3

        @staticmethod
        def backward(ctx, grad):
            (value,) = ctx.saved_tensors
            return grad * 3 * value**2

    Cube.apply(x).sum().backward()
    assert x.grad.tolist() == [3, 12, 27]
    assert torch.autograd.gradcheck(Cube.apply, x.detach().double().requires_grad_())


@pytest.mark.parametrize("reentrant", [True, False])
def test_checkpoints_repeat_random_numbers(device, reentrant):
    x = torch.ones(1000, device=device, requires_grad=True)
    seen = []

    def drop(value: torch.Tensor) -> torch.Tensor:
        dropped = torch.nn.functional.dropout(value, 0.5)
        seen.append(dropped.detach().cpu())
        return dropped

    checkpoint(drop, x, use_reentrant=reentrant).sum().backward()
    assert all(mask.equal(seen[0]) for mask in seen)
    assert x.grad.cpu().equal(seen[0])


def test_gradients_cross_devices(x):
    y = (x.cpu() * torch.tensor([1.0, 2.0, 3.0])).to(x.device) * 2
    y.sum().backward()
    assert x.grad.tolist() == [2, 4, 6]


def test_backward_runs_on_the_streams_of_forward(device, side_stream):
    x = torch.ones(1000, device=device, requires_grad=True)
    side_stream.wait_stream(torch.opencl.current_stream())
    with torch.opencl.stream(side_stream):
        y = (x * 3).sum()
    torch.opencl.current_stream().wait_stream(side_stream)
    y.backward()
    assert x.grad.sum().item() == 3000


def test_threads_run_backward_at_once(device):
    weight = torch.ones(50, 50, device=device, requires_grad=True)

    def work(_: int) -> None:
        for _ in range(5):
            (torch.ones(4, 50, device=device) * weight.sum(0)).sum().backward()

    in_threads(4, work)
    assert weight.grad.unique().tolist() == [4.0 * 5 * 4]


@pytest.mark.filterwarnings("ignore:(Anomaly Detection|Error detected):UserWarning")
def test_anomaly_mode_names_the_op(x):
    with pytest.raises(RuntimeError, match="SqrtBackward0"), torch.autograd.detect_anomaly(check_nan=True):
        ((x * 0).sqrt() * 0).sum().backward()


def test_a_nested_tensor_with_a_gradient_does_not_end_the_process(device: torch.device) -> None:
    parts = [torch.ones(2, 3, device=device, requires_grad=True), torch.ones(2, 4, device=device, requires_grad=True)]
    nested = torch.nested.as_nested_tensor(parts)
    assert nested.is_nested and nested.requires_grad


def test_a_process_that_ends_waits_for_the_thread_of_a_backward_pass() -> None:
    script = """
        import threading, time, torch
        from torch_opencl._lazy import _finish

        released, inside = [], threading.Event()

        def hook(gradient):
            inside.set()
            time.sleep(0.1)
            released.append(True)

        x = torch.ones(3, device="opencl", requires_grad=True)
        y = x * 2
        y.register_hook(hook)

        def backward():
            total = y.sum()  # on CPU devices, a thread's first tensor makes its backward passes run in it
            with torch.autograd.set_multithreading_enabled(True):
                total.backward()

        thread = threading.Thread(target=backward, daemon=True)
        thread.start()
        inside.wait()
        _finish()
        print(released, flush=True)
        # Otherwise Python ends a daemon thread inside PyTorch's code, which ends the process.
        thread.join()
    """
    assert output_of(script) == "[True]"


@pytest.mark.skipif(
    torch.opencl.get_device_properties().device_class != "cpu",
    reason="backward passes of other devices run in a thread of the engine",
)
def test_backward_runs_in_the_calling_thread_unless_that_is_changed(device):
    threads = []

    def run(multithreading=None):
        """Use a thread's own tensors; the second pass counts, as the first one starts the engine's threads."""
        x = torch.ones(3, device=device, requires_grad=True)
        with nullcontext() if multithreading is None else torch.autograd.set_multithreading_enabled(multithreading):
            x.sum().backward()
            x.register_hook(lambda grad: threads.append(threading.get_ident()))
            (x * 2).sum().backward()
        threads.append(threading.get_ident())

    run()
    assert threads[0] == threads[1]
    caller = threading.Thread(target=run)
    caller.start()
    caller.join()
    assert threads[2] == threads[3] != threads[0]
    run(multithreading=True)
    assert threads[4] != threads[5]
