"""Graphs of models: training steps, graphed modules, and torch.compile's mode "reduce-overhead"."""

import copy

import pytest
import torch
import torch.nn.functional as F
from processes import output_of, two_devices
from releases import requires_torch
from torch import nn


def captured(function):
    """Capture a function without arguments; return the graph and the function's result."""
    graph = torch.opencl.OpenCLGraph()
    with torch.opencl.graph(graph):
        result = function()
    return graph, result


def test_whole_training_steps_are_captured(device):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(16, 32), nn.BatchNorm1d(32), nn.ReLU(), nn.Linear(32, 4))
    batches = [(torch.randn(8, 16), torch.randn(8, 4)) for _ in range(6)]

    def losses(model, device, graphed):
        optimizer = torch.optim.AdamW(model.parameters(), lr=0.01, capturable=device.type == "opencl")
        x, y = torch.zeros(8, 16, device=device), torch.zeros(8, 4, device=device)

        def step():
            optimizer.zero_grad(set_to_none=True)
            loss = F.mse_loss(model(x), y)
            loss.backward()
            optimizer.step()
            return loss

        graph, found = None, []
        for number, (inputs, targets) in enumerate(batches):
            x.copy_(inputs), y.copy_(targets)
            if graphed and number == 3:
                graph, loss = captured(step)
            if graph is not None:
                graph.replay()
            else:
                side = torch.opencl.Stream() if graphed else None
                with torch.opencl.stream(side):
                    loss = step()
                if side is not None:
                    torch.opencl.synchronize()
            found.append(loss.item())
        return found

    expected = losses(copy.deepcopy(model), torch.device("cpu"), graphed=False)
    assert losses(model.to(device), device, graphed=True) == pytest.approx(expected, rel=1e-4)


@pytest.mark.parametrize("training", [True, False])
def test_graphed_modules_train_like_others(device, training):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(16, 32), nn.Tanh(), nn.Linear(32, 4)).to(device).train(training)
    reference = copy.deepcopy(model)
    sample = torch.randn(8, 16, device=device, requires_grad=True)
    graphed = torch.opencl.make_graphed_callables(model, (sample,))
    assert graphed is model
    for _ in range(3):
        x = torch.randn(8, 16, device=device, requires_grad=True)
        ours, theirs = graphed(x), reference(x.detach().requires_grad_())
        torch.testing.assert_close(ours, theirs)
        gradients = torch.autograd.grad(ours.square().sum(), [x, *model.parameters()])
        y = x.detach().requires_grad_()
        expected = torch.autograd.grad(reference(y).square().sum(), [y, *reference.parameters()])
        for found, wanted in zip(gradients, expected, strict=True):
            torch.testing.assert_close(found, wanted)
    with pytest.raises(RuntimeError, match="captured with"):
        graphed(torch.randn(9, 16, device=device))


def test_several_callables_are_graphed_in_turn(device):
    torch.manual_seed(0)
    first, second = nn.Linear(4, 8).to(device), nn.Linear(8, 2).to(device)
    plain = nn.Sequential(copy.deepcopy(first), copy.deepcopy(second))
    x = torch.randn(3, 4, device=device)
    hidden = torch.randn(3, 8, device=device, requires_grad=True)
    a, b = torch.opencl.make_graphed_callables((first, second), ((x,), (hidden,)))
    for _ in range(2):
        y = torch.randn(3, 4, device=device)
        torch.testing.assert_close(b(a(y)), plain(y))
        b(a(y)).sum().backward()
        plain(y).sum().backward()
    for found, wanted in zip([*first.parameters(), *second.parameters()], plain.parameters(), strict=True):
        torch.testing.assert_close(found.grad, wanted.grad)


def test_functions_are_graphed_and_modules_with_hooks_are_refused(device):
    function = torch.opencl.make_graphed_callables(lambda x, y: {"sum": x + y}, (torch.ones(3, device=device),) * 2)
    x = torch.arange(3.0, device=device)
    assert function(x, x)["sum"].tolist() == [0, 2, 4]
    model = nn.Linear(2, 2).to(device)
    model.register_forward_hook(lambda *_: None)
    with pytest.raises(RuntimeError, match="hooks"):
        torch.opencl.make_graphed_callables(model, (torch.ones(1, 2, device=device),))


@requires_torch("2.13", "torch.accelerator.Graph")
def test_torch_accelerator_graph(device):
    x = torch.zeros(10, device=device)
    stream, graph = torch.Stream(device), torch.accelerator.Graph()
    with stream, graph:
        x += 1
    graph.replay()
    graph.replay()
    assert x.tolist() == [2.0] * 10
    again = torch.accelerator.Graph(pool=graph.pool())
    with torch.Stream(device), again:
        x *= 2
    assert again.pool() == graph.pool()
    again.replay()
    assert x.tolist() == [4.0] * 10
    graph.reset()
    with pytest.raises(RuntimeError, match="captured"):
        graph.replay()


REDUCED = """
import torch, torch.nn.functional as F
from torch import nn
from torch._dynamo.utils import counters

torch._inductor.config.fallback_random = {fallback}
torch.manual_seed(0)
device = "opencl"
model = nn.Sequential(
    nn.Linear(16, 64), nn.BatchNorm1d(64), nn.GELU(), nn.Dropout({dropout}), nn.Linear(64, 8)
).to(device)
reference = nn.Sequential(
    nn.Linear(16, 64), nn.BatchNorm1d(64), nn.GELU(), nn.Dropout({dropout}), nn.Linear(64, 8)
).to(device)
reference.load_state_dict(model.state_dict())
compiled = torch.compile(model, mode="reduce-overhead")
batches = [torch.randn(32, 16, device=device) for _ in range(8)]

def train(network, module):
    torch.manual_seed(1)
    optimizer = torch.optim.SGD(module.parameters(), lr=0.05)
    found, kept = [], []
    for x in batches:
        optimizer.zero_grad()
        out = network(x)
        loss = out.square().mean()
        loss.backward()
        optimizer.step()
        found.append(loss)
        kept.append(out)
    return torch.stack(found).detach().cpu(), [each.detach().cpu() for each in kept]

losses, outs = train(compiled, model)
expected, results = train(reference, reference)
"""


@pytest.mark.slow
def test_reduced_overhead_trains_like_eager_mode():
    program = REDUCED.format(fallback=True, dropout=0.0) + (
        "torch.testing.assert_close(losses, expected, rtol=1e-4, atol=1e-5)\n"
        "for out, result in zip(outs, results): torch.testing.assert_close(out, result, rtol=1e-3, atol=1e-4)\n"
        "for a, b in zip(model.state_dict().values(), reference.state_dict().values()):\n"
        "    torch.testing.assert_close(a, b, rtol=1e-3, atol=1e-4)\n"
        "assert counters['inductor']['cudagraph_skips'] == 0, counters['inductor']\n"
        "from torch_opencl.inductor.replay import Replayed\n"
        "import gc\n"
        "parts = [each for each in gc.get_objects() if type(each) is Replayed]\n"
        "assert len(parts) == 2 and all(part.captures for part in parts), [len(part.captures) for part in parts]\n"
        "print('as eager')\n"
    )
    assert "as eager" in output_of(program)


@pytest.mark.slow
def test_reduced_overhead_draws_fresh_masks_that_both_passes_share():
    program = REDUCED.format(fallback=False, dropout=0.5) + (
        "assert counters['inductor']['cudagraph_skips'] == 0, counters['inductor']\n"
        "x = torch.ones(64, 1000, device=device, requires_grad=True)\n"
        "drop = torch.compile(lambda x: F.dropout(x, 0.25), mode='reduce-overhead')\n"
        "masks = []\n"
        "for _ in range(8):\n"
        "    y = drop(x)\n"
        "    (grad,) = torch.autograd.grad(y.sum(), x)\n"
        "    assert torch.equal(grad, y)\n"
        "    masks.append(y.detach().clone())\n"
        "    del y, grad\n"
        "assert all(abs((mask == 0).float().mean().item() - 0.25) < 0.01 for mask in masks)\n"
        "assert all(not torch.equal(a, b) for i, a in enumerate(masks) for b in masks[:i])\n"
        "print('fresh')\n"
    )
    assert "fresh" in output_of(program)


def test_reduced_overhead_keeps_referenced_results_and_runs_uncapturable_parts():
    program = (
        "import torch\n"
        "f = torch.compile(lambda x: (x + 1) * 2, mode='reduce-overhead')\n"
        "xs = [torch.full((1000,), float(i), device='opencl') for i in range(12)]\n"
        "ys = [f(x) for x in xs]\n"
        "for i, y in enumerate(ys): assert y.eq((i + 1) * 2).all(), (i, y)\n"
        "g = torch.compile(lambda x: x.add_(1), mode='reduce-overhead')\n"
        "for _ in range(6): g(xs[0])\n"
        "assert xs[0].eq(6).all()\n"
        "h = torch.compile(lambda x: torch.linalg.eigvals(x + 1).real.sum(), mode='reduce-overhead')\n"
        "x = torch.eye(4, device='opencl')\n"
        "for _ in range(6): torch.testing.assert_close(h(x).cpu(), torch.tensor(8.0))\n"
        "k = torch.compile(lambda x: x * 2, mode='reduce-overhead', dynamic=True)\n"
        "for n in (3, 4, 5, 6, 7): assert k(torch.ones(n, device='opencl')).sum().item() == 2 * n\n"
        "print('right')\n"
    )
    assert "right" in output_of(program)


def test_reduced_overhead_accumulates_gradients_and_keeps_results_of_other_functions():
    program = (
        "import torch\n"
        "def deep(x): return (((x @ x).sin() @ x).cos() @ x).relu()\n"
        "f, g = (torch.compile(function, mode='reduce-overhead') for function in (deep, lambda x: deep(x + 1) * 2))\n"
        "x = torch.randn(64, 64, device='opencl') / 8\n"
        "for _ in range(6):\n"
        "    y = f(x); kept = y.clone(); z = g(x * 2)\n"
        "    torch.testing.assert_close(y, kept, rtol=0, atol=0)\n"
        "torch.manual_seed(0)\n"
        "layers = torch.nn.Sequential(*(torch.nn.Linear(32, 32) for _ in range(4))).to('opencl')\n"
        "h = torch.compile(lambda x: layers(x.sin()).cos().square().mean(), mode='reduce-overhead')\n"
        "for _ in range(6):\n"
        "    grads = []\n"
        "    for call in (h, lambda x: layers(x.sin()).cos().square().mean()):\n"
        "        layers.zero_grad()\n"
        "        for i in range(2): call(torch.full((8, 32), 0.5 + i, device='opencl')).backward()\n"
        "        grads.append([p.grad.clone() for p in layers.parameters()])\n"
        "    torch.testing.assert_close(*grads, rtol=1e-4, atol=1e-5)\n"
        "print('right')\n"
    )
    assert "right" in output_of(program)


def test_reduced_overhead_runs_on_the_device_of_its_tensors():
    program = (
        "import torch\n"
        "f = torch.compile(lambda x: (x + 1) * 2, mode='reduce-overhead')\n"
        "for i in range(8):\n"
        "    x = torch.full((100,), float(i), device='opencl:1')\n"
        "    assert f(x).eq((i + 1) * 2).all(), i\n"
        "print('right')\n"
    )
    assert "right" in output_of(program, **two_devices())


def test_tensors_of_the_cpu_are_refused_as_samples_and_results(device):
    with pytest.raises(RuntimeError, match="sample_args hold a tensor on cpu"):
        torch.opencl.make_graphed_callables(lambda x: x + 1, (torch.ones(3),))
    host = torch.ones(3)
    with pytest.raises(RuntimeError, match="results hold a tensor on cpu"):
        torch.opencl.make_graphed_callables(lambda x: (x + 1, host * 2), (torch.ones(3, device=device),))
    function = torch.opencl.make_graphed_callables(lambda x: x + 1, (torch.ones(3, device=device),))
    assert function(torch.full((3,), 4.0, device=device)).tolist() == [5.0] * 3


def test_optimizers_that_count_steps_on_the_host_are_refused_in_a_capture(device):
    weight = torch.ones(3, device=device, requires_grad=True)
    weight.grad = torch.ones(3, device=device)
    for kind, options in ((torch.optim.Adam, {}), (torch.optim.RMSprop, {"lr": 0.1})):
        optimizer = kind([weight], **options)
        optimizer.step()
        with pytest.raises(RuntimeError, match=rf"same step of {kind.__name__}.*capturable=True"):
            captured(optimizer.step)
        optimizer.step()
    # SGD has no step count.
    captured(torch.optim.SGD([weight], lr=0.1).step)[0].replay()


def test_a_second_forward_pass_before_the_backward_pass_is_refused(device):
    x, y, first, second = (torch.full((3,), value, device=device, requires_grad=True) for value in (2.0, 5.0, 0.0, 0.0))

    def square(x):
        return x * x

    one = torch.opencl.make_graphed_callables(square, (first,))
    late = one(x).sum()
    one(y).sum().backward()
    assert y.grad.tolist() == [10.0] * 3
    with pytest.raises(RuntimeError, match="called again before the backward pass"):
        late.backward()
    one, other = torch.opencl.make_graphed_callables((square, square), ((first,), (second,)))
    (one(x) + other(y)).sum().backward()
    assert x.grad.tolist() == [4.0] * 3 and y.grad.tolist() == [20.0] * 3
