"""Convolutions with few input channels and many output channels, as in first layers of networks."""

import pytest
import torch
from op_samples import NoFallback
from torch.nn import functional

# Images, channels, output channels, height, width.
SHAPES = [(2, 3, 64, 23, 37), (3, 1, 33, 17, 16), (1, 4, 100, 9, 50), (5, 2, 48, 8, 5)]
# Kernel sizes, and the arguments of the convolution.
WINDOWS = [
    (7, {"stride": 2, "padding": 3}),
    (3, {"padding": 1}),
    (3, {"stride": 3, "padding": 5}),
    (2, {"dilation": 3, "padding": 2, "stride": 2}),
    (4, {"stride": 4}),
]


def gradients(use, operands: list[torch.Tensor]) -> tuple[torch.Tensor, ...]:
    """Gradients of the operands, with a gradient of the result that has the result's layout."""
    operands = [operand.detach().requires_grad_() for operand in operands]
    out = use(*operands)
    # Values are equal in every dtype.
    weighing = (torch.arange(out.numel()) % 17 / 16).view(out.shape)
    return torch.autograd.grad(out, operands, torch.empty_like(out).copy_(weighing))


def check(use, operands: list[torch.Tensor], device: torch.device, tolerance: float = 2e-6) -> None:
    """Compare gradients with the CPU's in float64, relative to the largest element."""
    expected = gradients(use, [operand.double() for operand in operands])
    with NoFallback():
        actual = gradients(use, [operand.to(device) for operand in operands])
    for got, wanted in zip(actual, expected, strict=True):
        scale = wanted.abs().max()
        torch.testing.assert_close(got.cpu().double() / scale, wanted / scale, rtol=0, atol=tolerance)


@pytest.mark.parametrize("memory_format", [torch.contiguous_format, torch.channels_last], ids=str)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize(("kernel_size", "options"), WINDOWS, ids=str)
def test_gradients(kernel_size, options, shape, memory_format, device):
    images, channels, out, height, width = shape
    x = torch.randn(images, channels, height, width).contiguous(memory_format=memory_format)
    weight = torch.randn(out, channels, kernel_size, kernel_size).contiguous(memory_format=memory_format)
    check(lambda x, w: functional.conv2d(x, w, **options), [x, weight], device)


@pytest.mark.parametrize(
    ("dtype", "tolerance"), [(torch.float64, 1e-12), (torch.bfloat16, 4e-3), (torch.float16, 6e-4)], ids=str
)
def test_dtypes(dtype, tolerance, device):
    x, weight = torch.randn(2, 3, 20, 19).to(dtype), torch.randn(40, 3, 5, 5).to(dtype)
    check(lambda x, w: functional.conv2d(x, w, stride=2, padding=2), [x, weight], device, tolerance)


def test_groups(device):
    x, weight = torch.randn(2, 6, 14, 11), torch.randn(70, 3, 3, 3)
    check(lambda x, w: functional.conv2d(x, w, padding=1, groups=2), [x, weight], device)


@pytest.mark.parametrize("dims", [1, 3])
def test_other_dimensions(dims, device):
    function = {1: functional.conv1d, 3: functional.conv3d}[dims]
    x, weight = torch.randn(2, 2, *(6, 9, 300)[-dims:]), torch.randn(36, 2, *(3,) * dims)
    check(lambda x, w: function(x, w, stride=2, padding=1), [x, weight], device)


def test_a_transposed_convolution(device):
    x, weight = torch.randn(2, 40, 7, 9), torch.randn(40, 3, 4, 4)
    check(lambda x, w: functional.conv_transpose2d(x, w, stride=2, padding=1), [x, weight], device)


def test_views_surrounded_by_nan(device):
    x, weight = torch.randn(2, 3, 15, 18), torch.randn(40, 3, 3, 3)
    larger = torch.full((3, 5, 16, 21), torch.nan)
    larger[1:, 1:-1, :-1, 2:-1] = x
    larger = larger.to(device)
    options = ([1, 1], [1, 1], [1, 1], False, [0, 0], 1, [False, True, False])
    gradient = torch.randn(2, 40, 15, 18)
    expected = torch.ops.aten.convolution_backward(gradient.double(), x.double(), weight.double(), None, *options)[1]
    scale = expected.abs().max()
    for rows in (gradient, gradient.transpose(2, 3).contiguous().transpose(2, 3)):
        operands = (rows.to(device), larger[1:, 1:-1, :-1, 2:-1], weight.to(device))
        actual = torch.ops.aten.convolution_backward(*operands, None, *options)[1]
        torch.testing.assert_close(actual.cpu().double() / scale, expected / scale, rtol=0, atol=2e-6)


def test_no_images(device):
    x, weight = torch.randn(0, 3, 20, 20, device=device), torch.randn(64, 3, 7, 7, device=device, requires_grad=True)
    functional.conv2d(x, weight, stride=2).sum().backward()
    assert weight.grad.eq(0).all()
