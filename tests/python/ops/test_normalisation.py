"""Normalisations of many rows, whose parameters' gradients are sums of parts, and of planes that are not vectors."""

import pytest
import torch
from op_samples import NoFallback, assert_near_exact
from torch.nn import functional

# The gradient of a batch is the difference of three sums: more cancellation loses more of float32's 1e-7.
DTYPES = {torch.float32: 8e-6, torch.float64: 1e-12, torch.bfloat16: 4e-3}


def results(use, operands: list[torch.Tensor]) -> list[torch.Tensor]:
    """The result and its gradients."""
    operands = [operand.detach().requires_grad_() for operand in operands]
    out = use(*operands)
    # Values are equal in every dtype.
    weighing = (torch.arange(out.numel()) % 17 / 16).view(out.shape)
    return [out.detach(), *torch.autograd.grad(out, operands, torch.empty_like(out).copy_(weighing))]


def check(use, operands: list[torch.Tensor], dtype: torch.dtype, device: torch.device) -> None:
    """Compare results with the CPU's in float64, relative to the largest element."""
    operands = [operand.to(dtype) for operand in operands]
    expected = results(use, [operand.double() for operand in operands])
    with NoFallback():
        actual = results(use, [operand.to(device) for operand in operands])
    for got, wanted in zip(actual, expected, strict=True):
        scale = wanted.abs().max().clamp(min=1e-30)
        torch.testing.assert_close(got.cpu().double() / scale, wanted / scale, rtol=0, atol=DTYPES[dtype])


def parameters(count: int) -> list[torch.Tensor]:
    return [torch.rand(count) + 0.5, torch.randn(count)]


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("shape", [(1500, 7), (1200, 64), (900, 100), (3, 5000), (1, 33)], ids=str)
def test_layer_norm(shape, dtype, device):
    operands = [torch.randn(shape) * 2 + 3, *parameters(shape[1])]
    check(lambda x, w, b: functional.layer_norm(x, w.shape, w, b), operands, dtype, device)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("shape", [(40, 12, 7, 7), (9, 24, 5, 16), (700, 24, 1, 1), (2, 6, 1, 3)], ids=str)
def test_group_norm(shape, dtype, device):
    operands = [torch.randn(shape) - 1, *parameters(shape[1])]
    check(lambda x, w, b: functional.group_norm(x, 3, w, b), operands, dtype, device)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("length", [1, 2, 7, 8, 10, 16, 17])
@pytest.mark.parametrize("count", [3, 100, 129])
@pytest.mark.parametrize("function", [functional.softmax, functional.log_softmax])
def test_softmax_of_short_rows(function, count, length, dtype, device):
    x = torch.randn(count, length) * 4
    if dtype != torch.bfloat16:  # its gradient is computed from the rounded result
        check(lambda x: function(x, 1), [x], dtype, device)
    # Rows of -inf, NaN and infinity.
    x[0] = -torch.inf
    x[1, 0], x[2, -1] = torch.nan, torch.inf
    ours = function(x.to(device, dtype), 1).cpu()
    torch.testing.assert_close(ours, function(x.to(dtype).double(), 1).to(dtype), equal_nan=True)


def test_rms_norm(device):
    operands = [torch.randn(1300, 90), parameters(90)[0]]
    check(lambda x, w: functional.rms_norm(x, w.shape, w), operands, torch.float32, device)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("memory_format", [torch.contiguous_format, torch.channels_last], ids=str)
@pytest.mark.parametrize("shape", [(6, 70, 7, 7), (3, 33, 4, 4), (5, 20, 1, 15), (8, 65, 1, 1)], ids=str)
@pytest.mark.parametrize("training", [True, False])
def test_batch_norm(training, shape, memory_format, dtype, device):
    operands = [(torch.randn(shape) + 2).contiguous(memory_format=memory_format), *parameters(shape[1])]
    mean, variance = torch.randn(shape[1]), torch.rand(shape[1]) + 0.5

    def use(x, weight, bias):
        running = [] if training else [statistic.to(x) for statistic in (mean, variance)]
        return functional.batch_norm(x, *(running or (None, None)), weight, bias, training)

    check(use, operands, dtype, device)


def test_only_the_parameters_have_gradients(device):
    x, (weight, bias) = torch.randn(900, 60), parameters(60)
    for wanted in ([0], [1], [2], [1, 2], [0, 2]):
        grads = []
        for where, dtype in ((device, torch.float32), ("cpu", torch.float32), ("cpu", torch.float64)):
            operands = [operand.to(where, dtype) for operand in (x, weight, bias)]
            for index in wanted:
                operands[index].requires_grad_()
            out = functional.layer_norm(operands[0], (60,), *operands[1:])
            loss = (out * torch.linspace(-1, 1, out.numel()).view(out.shape).to(where, dtype)).sum()
            grads.append(torch.autograd.grad(loss, [operands[index] for index in wanted]))
        assert_near_exact(*grads)


def test_non_finite_input_does_not_affect_gradients_in_evaluation(device):
    for shape in ((4, 3), (2, 3, 5, 5)):
        x = torch.randn(shape)
        x[0, 1], x[-1, 2] = torch.nan, torch.inf
        x = x.to(device).requires_grad_()
        functional.batch_norm(
            x, torch.zeros(3, device=device), torch.ones(3, device=device), None, None, False
        ).sum().backward()
        torch.testing.assert_close(x.grad.cpu(), torch.full(shape, 1 / (1 + 1e-5) ** 0.5))


@pytest.mark.parametrize("length", [65, 1025])
def test_a_row_does_not_depend_on_its_position(length, device):
    x = torch.randn(40, length, device=device)
    rows = functional.layer_norm(x, (length,))
    assert all(torch.equal(rows[i : i + 1], functional.layer_norm(x[i : i + 1], (length,))) for i in range(40))


def statistics_of_long_rows(count: int, use) -> list[torch.Tensor]:
    """Mean and reciprocal deviation of a row of `count` values."""
    x = torch.randn(count, generator=torch.Generator().manual_seed(0)) + 1
    return [statistic.cpu().double().view(-1) for statistic in use(x)[1:]]


@pytest.mark.parametrize("inner", [1, 49, 1_000_000])
def test_statistics_of_long_rows_are_as_accurate_as_those_of_short_ones(inner, device):
    channels = 4_000_000 // inner

    def use(x: torch.Tensor):
        if inner == 1:
            return torch.native_layer_norm(x, (channels,), None, None, 1e-5)
        return torch.native_group_norm(x.view(1, channels, inner), None, None, 1, channels, inner, 1, 1e-5)

    expected = statistics_of_long_rows(channels * inner, lambda x: use(x.double()))
    with NoFallback():
        actual = statistics_of_long_rows(channels * inner, lambda x: use(x.to(device)))
    for got, wanted in zip(actual, expected, strict=True):
        torch.testing.assert_close(got, wanted, rtol=3e-7, atol=0)


def test_a_weight_and_a_bias_of_different_dtypes_are_refused(device: torch.device) -> None:
    x, weight, bias = torch.ones(9, 300), torch.ones(300), torch.ones(300, dtype=torch.float16)
    with pytest.raises(RuntimeError, match=r"weight is torch.float32 and its bias torch.float16; convert"):
        torch.nn.functional.layer_norm(x.to(device), (300,), weight.to(device), bias.to(device))
