"""Convolutions through the operators of ATen's implementations, and integer convolutions, against the CPU."""

from collections.abc import Callable

import pytest
import torch
from op_samples import assert_same
from op_table import INTEGRAL, covers

aten = torch.ops.aten
DTYPES = pytest.mark.parametrize("dtype", [torch.float32, torch.int64], ids=str)


def some(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    low, high = (-1, 1) if dtype.is_floating_point else (-4, 5)
    return torch.testing.make_tensor(shape, dtype=dtype, device="cpu", low=low, high=high)


def both(call: Callable[..., torch.Tensor], device: torch.device, *tensors: torch.Tensor) -> None:
    """Compare the result and gradients with the CPU's."""

    def run(where: torch.device | str) -> list[torch.Tensor]:
        leaves = [tensor.detach().to(where) for tensor in tensors]
        if leaves[0].is_floating_point():
            leaves = [leaf.requires_grad_() for leaf in leaves]
        result = call(*leaves)
        if not result.requires_grad:
            return [result]
        return [result, *torch.autograd.grad(result, leaves, torch.ones_like(result))]

    assert_same(run(device), run("cpu"))


@DTYPES
@covers("slow_conv_dilated2d", "slow_conv_dilated3d")
def test_dilated(dtype, device, no_fallback):
    x, weight, bias = some(2, 3, 9, 8, dtype=dtype), some(4, 3, 2, 3, dtype=dtype), some(4, dtype=dtype)
    both(lambda x, w, b: aten.slow_conv_dilated2d(x, w, [2, 3], b, [1, 2], [1, 0], [2, 3]), device, x, weight, bias)
    x, weight = some(3, 5, 9, 8, dtype=dtype), some(4, 3, 2, 3, 2, dtype=dtype)
    call = lambda x, w: aten.slow_conv_dilated3d(x, w, [2, 3, 2], None, [1, 2, 1], [1, 0, 1], [2, 2, 3])  # noqa: E731
    with torch.no_grad():
        assert_same(call(x.to(device), weight.to(device)), call(x, weight))
    both(call, device, x.unsqueeze(0), weight)


@DTYPES
@covers("slow_conv_transpose2d", "slow_conv_transpose3d", "slow_conv_transpose3d.out")
def test_transposed(dtype, device, no_fallback):
    x, weight, bias = some(2, 3, 5, 6, dtype=dtype), some(3, 4, 2, 3, dtype=dtype), some(4, dtype=dtype)
    both(
        lambda x, w, b: aten.slow_conv_transpose2d(x, w, [2, 3], b, [2, 1], [1, 0], [1, 0], [1, 2]),
        device,
        x,
        weight,
        bias,
    )
    x, weight = some(2, 3, 4, 5, 3, dtype=dtype), some(3, 4, 2, 3, 2, dtype=dtype)

    def volume(x: torch.Tensor, w: torch.Tensor, **given: torch.Tensor) -> torch.Tensor:
        return aten.slow_conv_transpose3d(x, w, [2, 3, 2], None, [2, 1, 2], [1, 0, 1], [1, 0, 1], [1, 2, 1], **given)

    both(volume, device, x, weight)
    out = torch.empty(0, dtype=dtype, device=device)
    assert volume(x.to(device), weight.to(device), out=out) is out
    assert_same(out, volume(x, weight))
    assert_same(volume(x[0].to(device), weight.to(device)), volume(x[0], weight))
    assert_same(
        aten.slow_conv_transpose2d(x[0, :, 0].to(device), weight[..., 0].to(device), [2, 3]),
        aten.slow_conv_transpose2d(x[0, :, 0].contiguous(), weight[..., 0].contiguous(), [2, 3]),
    )


@DTYPES
@covers("_slow_conv2d_forward", "_slow_conv2d_forward.output", "slow_conv3d_forward", "slow_conv3d_forward.output")
def test_plain(dtype, device, no_fallback):
    x, weight, bias = some(2, 3, 9, 8, dtype=dtype), some(4, 3, 2, 3, dtype=dtype), some(4, dtype=dtype)
    expected = aten._slow_conv2d_forward(x, weight, [2, 3], bias, [1, 2], [1, 0])
    here = [tensor.to(device) for tensor in (x, weight, bias)]
    for kernel in (here[1], here[1].flatten(1)):
        assert_same(aten._slow_conv2d_forward(here[0], kernel, [2, 3], here[2], [1, 2], [1, 0]), expected)
    out = torch.empty(0, dtype=dtype, device=device)
    aten._slow_conv2d_forward.output(here[0], here[1], [2, 3], here[2], [1, 2], [1, 0], output=out)
    assert_same(out, expected)
    assert_same(torch._C._nn.thnn_conv2d(*here[:2], [2, 3], here[2], [1, 2], [1, 0]), expected)

    x, weight = some(2, 3, 4, 5, 6, dtype=dtype), some(4, 3, 2, 3, 2, dtype=dtype)
    expected = torch.conv3d(x, weight, None, [1, 2, 1], [1, 0, 1])
    here = [x.to(device), weight.to(device)]
    assert_same(aten.slow_conv3d_forward(*here, [2, 3, 2], None, [1, 2, 1], [1, 0, 1]), expected)
    out = torch.empty(0, dtype=dtype, device=device)
    aten.slow_conv3d_forward.output(*here, [2, 3, 2], None, [1, 2, 1], [1, 0, 1], output=out)
    assert_same(out, expected)
    assert_same(torch._C._nn.slow_conv3d(*here, [2, 3, 2], None, [1, 2, 1], [1, 0, 1]), expected)


@covers("_slow_conv2d_backward.output_mask", "_slow_conv2d_backward.grad_input")
def test_gradients_of_plain(device, no_fallback):
    x, weight, bias = some(2, 3, 9, 8), some(4, 3, 2, 3), some(4)
    both(lambda x, w, b: aten._slow_conv2d_forward(x, w, [2, 3], b, [1, 2], [1, 0]), device, x, weight, bias)
    grad = some(2, 4, 10, 3)
    expected = aten._slow_conv2d_backward(grad, x, weight, [2, 3], [1, 2], [1, 0], [True, True, True])
    given = [torch.empty_like(tensor, device=device) for tensor in (x, weight, bias)]
    aten._slow_conv2d_backward.grad_input(
        *(tensor.to(device) for tensor in (grad, x, weight)), [2, 3], [1, 2], [1, 0],
        grad_input=given[0], grad_weight=given[1], grad_bias=given[2],
    )  # fmt: skip
    assert_same(given, list(expected))
    masked = aten._slow_conv2d_backward(
        *(tensor.to(device) for tensor in (grad, x, weight)), [2, 3], [1, 2], [1, 0], [False, True, False]
    )
    assert masked[0] is None
    assert masked[2] is None
    assert_same(masked[1], expected[1])


@DTYPES
@covers("_conv_depthwise2d", "_conv_depthwise2d.out", "conv_depthwise3d")
def test_depthwise(dtype, device, no_fallback):
    """PyTorch's CPU backend lacks these operators; the reference is a grouped convolution."""
    x, weight, bias = some(2, 3, 9, 8, dtype=dtype), some(6, 1, 2, 3, dtype=dtype), some(6, dtype=dtype)
    expected = torch.conv2d(x, weight, bias, [1, 2], [1, 0], groups=3)
    here = [tensor.to(device) for tensor in (x, weight, bias)]
    assert_same(aten._conv_depthwise2d(here[0], here[1], [2, 3], here[2], [1, 2], [1, 0], [1, 1]), expected)
    out = torch.empty(0, dtype=dtype, device=device)
    aten._conv_depthwise2d.out(here[0], here[1], [2, 3], here[2], [1, 2], [1, 0], [1, 1], out=out)
    assert_same(out, expected)
    x, weight = some(2, 3, 4, 5, 6, dtype=dtype), some(3, 1, 2, 3, 2, dtype=dtype)
    expected = torch.conv3d(x, weight, None, [1, 2, 1], [1, 0, 1], groups=3)
    for image, wanted in ((x, expected), (x[0], expected[0])):
        actual = aten.conv_depthwise3d(
            image.to(device), weight.to(device), [2, 3, 2], None, [1, 2, 1], [1, 0, 1], [1, 1, 1]
        )
        assert_same(actual, wanted)


@pytest.mark.parametrize("dtype", INTEGRAL, ids=str)
def test_integers_wrap(dtype, device, no_fallback):
    """Products and sums wrap as in the dtype, for kernels with strides, groups and special paths."""
    high = min(torch.iinfo(dtype).max, 1 << 40)

    def some(*shape: int) -> torch.Tensor:
        return torch.randint(0 if dtype == torch.uint8 else -high, high, shape).to(dtype)

    for x, weight, options in (
        (some(2, 3, 12, 11), some(5, 3, 3, 3), {"padding": 1}),
        (some(2, 4, 12, 11), some(6, 2, 3, 2), {"groups": 2, "stride": (2, 1)}),
        (some(2, 4, 12, 11), some(4, 1, 3, 3), {"groups": 4, "padding": 1}),
        (some(1, 40, 20, 20), some(48, 40, 1, 1), {}),
        (some(1, 20, 33, 30), some(24, 20, 3, 3), {"padding": 1}),
    ):
        bias = some(len(weight))
        assert torch.equal(
            torch.conv2d(x.to(device), weight.to(device), bias.to(device), **options).cpu(),
            torch.conv2d(x, weight, bias, **options),
        )
    assert torch.equal(
        torch.conv1d(some_1d := some(2, 3, 30), kernel := some(4, 3, 5)),
        torch.conv1d(some_1d.to(device), kernel.to(device)).cpu(),
    )
    if dtype == torch.int64:
        x, weight = some(2, 3, 6, 5), some(3, 4, 3, 2)
        assert torch.equal(
            torch.conv_transpose2d(x.to(device), weight.to(device), stride=2).cpu(),
            torch.conv_transpose2d(x, weight, stride=2),
        )


def test_bad_arguments_are_refused(device):
    x, weight = torch.randn(2, 3, 5, 5, device=device), torch.randn(4, 3, 2, 2, device=device)
    with pytest.raises(RuntimeError, match="Expected 4D input tensor"):
        aten._slow_conv2d_forward(x[0], weight, [2, 2], None, [1, 1], [0, 0])
    with pytest.raises(RuntimeError, match="greater than zero"):
        aten._slow_conv2d_forward(x, weight, [0, 2], None, [1, 1], [0, 0])
    with pytest.raises(RuntimeError, match="kernel of size"):
        aten._slow_conv2d_forward(x, weight, [3, 3], None, [1, 1], [0, 0])
    with pytest.raises(RuntimeError, match="1 input channel"):
        aten._conv_depthwise2d(x, weight, [2, 2], None, [1, 1], [0, 0], [1, 1])
    with pytest.raises(RuntimeError, match="dilation should be greater than zero"):
        aten.slow_conv_dilated2d(x, weight, [2, 2], None, [1, 1], [0, 0], [0, 1])
