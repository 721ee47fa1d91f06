"""Which calls are small enough for the host, on an idle CPU device."""

import pytest
import torch

pytestmark = [
    pytest.mark.usefixtures("small_calls_on_host"),
    pytest.mark.skipif(
        torch.opencl.get_device_properties().device_class != "cpu",
        reason="the host computes small calls only on CPU devices",
    ),
]


def rms_norm_gradients(x, weight):
    x, weight = x.detach().requires_grad_(), weight.detach().requires_grad_()
    torch.nn.functional.rms_norm(x, weight.shape, weight, 1e-5).square().sum().backward()
    return x.grad, weight.grad


def depthwise_gradients(x, weight):
    x, weight = x.detach().requires_grad_(), weight.detach().requires_grad_()
    torch.nn.functional.conv2d(x, weight, padding=1, groups=weight.shape[0]).square().sum().backward()
    return x.grad, weight.grad


# Many elements for few multiplications, strides that a cast keeps, and functions with another operator on the CPU.
SMALL = {
    "matmul of long sums": (lambda a, b: a.t() @ b, [(1500, 16), (1500, 8)]),
    "matmul with a large matrix": (torch.nn.functional.linear, [(2, 256), (600, 256)]),
    "matmul into an output": (lambda a, b: torch.mm(a, b, out=torch.empty_like(a)), [(2, 256), (256, 256)]),
    "gather at rows": (
        lambda x, y: x.gather(0, torch.zeros_like(y).long()[:, :1].expand_as(y)),
        [(100, 16), (3000, 16)],
    ),
    "a column and doubles": (lambda x, y: x[:, 1:2] * y.double(), [(23, 3), (5,)]),
    "expanded rows and doubles": (lambda x, y: x[::2].expand(4, 2, 6).add(y.double()), [(4, 1), (2, 6)]),
    "gradients of RMS norm": (rms_norm_gradients, [(2, 5, 3, 8), (3, 8)]),
    "gradients of a depthwise convolution": (depthwise_gradients, [(2, 600, 6, 6), (600, 1, 3, 3)]),
}


@pytest.mark.parametrize("name", SMALL)
def test_small_work_runs_on_the_host(device, name):
    function, sizes = SMALL[name]
    inputs = [torch.randn(size) for size in sizes]
    ours = [x.to(device) for x in inputs]
    torch.opencl.synchronize()
    before = torch.opencl.launches()
    result = function(*ours)
    assert torch.opencl.launches() == before
    torch.testing.assert_close(result, function(*inputs), check_device=False, rtol=1e-4, atol=1e-4)


def test_rows_that_overlap_are_not_cast_in_place(device):
    def windows(x, steps):
        return x.as_strided((6, 3), (1, 1)) * steps

    x, steps = torch.arange(10.0), torch.arange(3, dtype=torch.float64)
    ours = x.to(device), steps.to(device)
    torch.opencl.synchronize()
    torch.testing.assert_close(windows(*ours).cpu(), windows(x, steps))


def test_much_work_on_small_arguments_runs_as_kernels(device):
    column, rows = torch.ones(2000, 1, device=device), torch.arange(2000, device=device)
    a, b, out = (torch.ones(size, device=device) for size in [(1400, 100), (100, 80), (1400, 80)])
    calls = [
        lambda: column @ column.t(),
        lambda: column[rows[:, None], rows[None] * 0],
        lambda: torch.mm(a, b, out=out),
        lambda: torch.nn.functional.conv_transpose2d(a[None, None, :20, :20], b[None, None, :1, :1], stride=50),
    ]
    for call in calls:
        torch.opencl.synchronize()
        before = torch.opencl.launches()
        call()
        assert torch.opencl.launches() > before


def test_host_and_kernels_give_the_same_gradients_of_rms_norm(device):
    backward = torch.ops.aten._fused_rms_norm_backward
    x, rstd = torch.randn(4, 6, device=device), torch.rand(4, 1, device=device)
    torch.opencl.synchronize()
    host = backward(x, x + 1, [6], rstd, None, [True, True])
    with pytest.raises(RuntimeError, match="same device"):
        backward(x[:1], x[:1], [6], torch.tensor(0.5), None, [True, True])
    torch.backends.opencl.small_calls("kernels")
    torch.testing.assert_close(backward(x, x + 1, [6], rstd, None, [True, True]), host)
