"""torch.compile: operators that graphs do not decompose, because their eager kernels are faster."""

import os
import subprocess
import sys

import pytest
import torch
from torch.nn import functional

LAST = {4: torch.channels_last, 5: torch.channels_last_3d}
SCALES = {"whole": {"scale_factor": 2.0}, "fractional": {"scale_factor": 1.7}, "size": {"size": 9}}
MODES = [
    ("nearest", 3),
    ("nearest", 4),
    ("nearest", 5),
    ("nearest-exact", 4),
    ("linear", 3),
    ("bilinear", 4),
    ("trilinear", 5),
    ("bicubic", 4),
]


@pytest.fixture(autouse=True)
def fresh():
    torch._dynamo.reset()
    torch.manual_seed(0)


def check(function, x, dynamic):
    """Compare a compiled function's value and gradient with eager mode, also without autograd."""
    compiled = torch.compile(function, dynamic=dynamic, fullgraph=True)
    x.requires_grad_()
    grads = torch.randn_like(function(x))
    for call in (compiled, function):
        value = call(x)
        results = (value, *torch.autograd.grad(value, x, grads))
        if call is compiled:
            first = results
    torch.testing.assert_close(first, results, rtol=1e-5, atol=1e-5)
    for mode in (torch.no_grad, torch.inference_mode):
        with mode():
            torch.testing.assert_close(compiled(x), results[0].detach(), rtol=1e-5, atol=1e-5)


def sample(dims, device, is_last=False):
    x = torch.randn((2, 3, 6, 7, 5)[:dims], device=device)
    return x.contiguous(memory_format=LAST[dims]) if is_last else x


@pytest.mark.parametrize(
    ("scale", "dynamic"), [("whole", False), ("fractional", True), ("size", False), ("size", True)]
)
@pytest.mark.parametrize(("mode", "dims"), MODES, ids=[f"{mode}-{dims}d" for mode, dims in MODES])
def test_interpolation(device, mode, dims, scale, dynamic):
    corners = {} if "nearest" in mode else {"align_corners": scale == "size"}

    def function(x):
        return functional.interpolate(x * 2, mode=mode, **SCALES[scale], **corners).relu()

    check(function, sample(dims, device, is_last=dims > 3 and scale != "whole"), dynamic)


@pytest.mark.parametrize("dynamic", [False, True], ids=["static", "dynamic"])
@pytest.mark.parametrize("is_last", [False, True], ids=["contiguous", "channels-last"])
@pytest.mark.parametrize("mode", ["reflect", "replicate"])
def test_padding(device, mode, is_last, dynamic):
    check(lambda x: functional.pad(x * 2, (2, 1, 0, 3), mode=mode).relu(), sample(4, device, is_last), dynamic)


@pytest.mark.parametrize("dynamic", [False, True], ids=["static", "dynamic"])
@pytest.mark.parametrize("is_last", [False, True], ids=["contiguous", "channels-last"])
def test_positions_that_are_computed(device, is_last, dynamic):
    x = sample(4, device, is_last)

    def sampled(x):
        grid = torch.tanh(x[:, :2]).permute(0, 2, 3, 1)
        return functional.grid_sample(x * 2, grid, align_corners=False)

    check(sampled, x, dynamic)
    check(lambda x: functional.fold(functional.unfold(x, 3) * 2, x.shape[2:], 3), x, dynamic)
    check(lambda x: (x * 2).roll((1, 3), (1, 2)) + 1, x, dynamic)
    check(lambda x: functional.adaptive_avg_pool2d(x * 2, (2, 3)), x, dynamic)


@pytest.mark.parametrize("dynamic", [False, True], ids=["static", "dynamic"])
def test_additions_at_loaded_positions(device, dynamic):
    index = torch.randint(0, 6, (40,), device=device)
    x = torch.randn(40, 8, device=device)
    wide = index[:, None].expand(-1, 8)
    check(lambda x: x.new_zeros(6, 8).index_add(0, index, x * 2), x, dynamic)
    check(lambda x: x.new_zeros(6, 8).scatter_add(0, wide, x * 2) + 1, x, dynamic)
    check(lambda x: x.new_zeros(6, 8).scatter_reduce(0, wide, x * 2, "mean"), x, dynamic)
    check(lambda x: x.new_zeros(6, 8).index_put((index,), x * 2, accumulate=True).relu(), x, dynamic)
    check(lambda x: (x * 2)[index].relu(), x, dynamic)
    check(lambda x: x.gather(0, wide).relu(), x, dynamic)


def test_a_loss_of_channels_last_classes(device):
    target = torch.randint(0, 3, (2, 6, 7), device=device)
    check(lambda x: functional.nll_loss(x * 2, target), sample(4, device, is_last=True), False)


def test_sizes_that_depend_on_data(device):
    def function(x, mask):
        return functional.interpolate(x[mask.nonzero()[:, 0]][None, None] * 2, size=(4, 4), mode="bilinear")

    x, mask = torch.rand(5, 7, device=device, requires_grad=True), torch.tensor([1, 0, 1, 1, 0], device=device)
    with torch._dynamo.config.patch(capture_dynamic_output_shape_ops=True):
        value = torch.compile(function, fullgraph=True)(x, mask)
    (grad,) = torch.autograd.grad(value.sum(), x)
    expected = function(x, mask)
    torch.testing.assert_close(value, expected)
    torch.testing.assert_close(grad, *torch.autograd.grad(expected.sum(), x))


def test_exported_graphs_are_those_of_other_devices(device):
    class Model(torch.nn.Module):
        def forward(self, x):
            return functional.interpolate(x * 2, scale_factor=2.0, mode="bilinear")

    def operators(x):
        exported = torch.export.export(Model(), (x,)).run_decompositions()
        return [str(node.target) for node in exported.graph.nodes if node.op == "call_function"]

    x = sample(4, device)
    torch.testing.assert_close(torch.compile(Model())(x), Model()(x))
    assert operators(x) == operators(x.cpu())


def test_additions_if_inductor_is_imported_first(device):
    program = """
import torch, torch._inductor.compile_fx
import torch_opencl
index, values = torch.zeros(40, dtype=torch.int64, device="opencl"), torch.ones(40, device="opencl")
add = lambda index, values: values.new_zeros(3).index_put((index,), values * 2, accumulate=True)
print(torch.compile(add)(index, values).tolist())
"""
    environment = {**os.environ, "TORCH_DEVICE_BACKEND_AUTOLOAD": "0"}
    command = [sys.executable, "-W", "ignore", "-c", program]
    result = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=300)
    assert result.stdout.strip() == "[80.0, 0.0, 0.0]", result.stderr
