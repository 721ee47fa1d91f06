"""The operators of torch.nn.SyncBatchNorm, against formulas in float64: PyTorch's CPU backend has few of them."""

import pytest
import torch
from float64 import computed
from op_table import covers
from torch.nn import functional
from torch.nn.modules._functions import SyncBatchNorm

aten = torch.ops.aten
EPS = 1e-3
# Relative to the largest value: includes the rounding of results to the dtype, not the rounding of inputs.
TOLERANCES = {torch.float32: 4e-6, torch.float16: 1e-3, torch.bfloat16: 8e-3, torch.float64: 1e-12}
DTYPES = pytest.mark.parametrize("dtype", TOLERANCES, ids=str)
LAYOUTS = pytest.mark.parametrize(
    "layout",
    [
        ((6, 5, 7, 7), torch.contiguous_format),
        ((3, 33, 4, 5), torch.channels_last),
        ((9, 4, 300), torch.contiguous_format),
        ((70, 37), torch.contiguous_format),
    ],
    ids=str,
)


def over(values: torch.Tensor, like: torch.Tensor) -> torch.Tensor:
    """Per-channel values, reshaped to broadcast over a batch."""
    return values.view(1, -1, *[1] * (like.dim() - 2))


def dims_of(x: torch.Tensor) -> list[int]:
    return [dim for dim in range(x.dim()) if dim != 1]


def assert_near(actual: torch.Tensor, exact: torch.Tensor, dtype: torch.dtype) -> None:
    scale = exact.abs().max().clamp(min=1e-30)
    torch.testing.assert_close(actual.cpu().double() / scale, exact / scale, rtol=0, atol=TOLERANCES[dtype])


def batch(layout: tuple[tuple[int, ...], torch.memory_format], dtype: torch.dtype) -> torch.Tensor:
    shape, memory_format = layout
    return (torch.randn(shape) * 2 + 1).to(dtype).contiguous(memory_format=memory_format)


@DTYPES
@LAYOUTS
@covers("batch_norm_stats", "batch_norm_update_stats")
def test_statistics(layout, dtype, device, no_fallback):
    shape, _ = layout
    x = batch(layout, dtype)
    wide = x.double()
    variance, exact = torch.var_mean(wide, dims_of(x), correction=0)
    mean, invstd = aten.batch_norm_stats(x.to(device), EPS)
    saved = torch.float64 if dtype == torch.float64 else torch.float32
    assert mean.dtype == invstd.dtype == saved
    assert_near(mean, exact, torch.float32 if saved == torch.float32 else dtype)
    assert_near(invstd, (variance + EPS).rsqrt(), torch.float32 if saved == torch.float32 else dtype)

    count = x.numel() // shape[1]
    running = torch.rand(2, shape[1]).to(dtype)
    moved = running.to(device)
    mean, var = aten.batch_norm_update_stats(x.to(device), moved[0], moved[1], 0.3)
    assert_near(mean, exact, torch.float32 if saved == torch.float32 else dtype)
    assert_near(var, variance, torch.float32 if saved == torch.float32 else dtype)
    assert_near(moved[0], running[0].double() * 0.7 + exact * 0.3, dtype)
    assert_near(moved[1], running[1].double() * 0.7 + variance * (count / (count - 1)) * 0.3, dtype)


@DTYPES
@LAYOUTS
@pytest.mark.parametrize("affine", [True, False])
@covers("batch_norm_elemt", "batch_norm_elemt.out")
def test_normalisation(affine, layout, dtype, device, no_fallback):
    shape, memory_format = layout
    x = batch(layout, dtype)
    saved = torch.float64 if dtype == torch.float64 else torch.float32
    mean, invstd = torch.randn(shape[1], dtype=saved), torch.rand(shape[1], dtype=saved) + 0.5
    weight, bias = (torch.randn(2, shape[1], dtype=saved)) if affine else (None, None)
    exact = (x.double() - over(mean, x).double()) * over(invstd, x).double()
    if affine:
        exact = exact * over(weight, x).double() + over(bias, x).double()
    arguments = [None if t is None else t.to(device) for t in (x, weight, bias, mean, invstd)]
    actual = aten.batch_norm_elemt(*arguments, EPS)
    assert actual.dtype == dtype
    assert actual.is_contiguous(memory_format=memory_format)
    assert_near(actual, exact, dtype)
    out = torch.empty(0, dtype=dtype, device=device)
    assert aten.batch_norm_elemt(*arguments, EPS, out=out) is out
    assert torch.equal(out.cpu(), actual.cpu())


@DTYPES
@LAYOUTS
@covers("batch_norm_backward_reduce", "batch_norm_backward_elemt")
def test_gradients(layout, dtype, device, no_fallback):
    shape, _ = layout
    x, grad = (batch(layout, dtype) for _ in range(2))
    saved = torch.float64 if dtype == torch.float64 else torch.float32
    mean, invstd = torch.randn(shape[1], dtype=saved), torch.rand(shape[1], dtype=saved) + 0.5
    weight = torch.randn(shape[1], dtype=saved)
    centred = x.double() - over(mean, x).double()
    sum_dy, sum_dy_xmu = grad.double().sum(dims_of(x)), (grad.double() * centred).sum(dims_of(x))
    moved = [tensor.to(device) for tensor in (grad, x, mean, invstd, weight)]
    sums = aten.batch_norm_backward_reduce(*moved, True, True, True)
    for actual, exact in zip(sums, (sum_dy, sum_dy_xmu, sum_dy_xmu * invstd.double(), sum_dy), strict=True):
        assert actual.dtype == saved
        # Sums of many rounded values cancel.
        scale = grad.double().abs().sum(dims_of(x)).max()
        assert (actual.cpu().double() - exact).abs().max() < (1e-12 if saved == torch.float64 else 2e-6) * scale
    assert [t is None for t in aten.batch_norm_backward_reduce(*moved, False, True, False)] == [True, True, False, True]

    # The element counts of two processes.
    counts = torch.tensor([x.numel() // shape[1], 7], dtype=torch.int32)
    n = counts.sum().item()
    exact = (grad.double() - over(sum_dy, x) / n - centred * over(invstd.double().square() * sum_dy_xmu, x) / n) * over(
        (invstd * weight).double(), x
    )
    grad_input = aten.batch_norm_backward_elemt(*moved, sums[0], sums[1], counts.to(device))
    assert grad_input.dtype == dtype
    assert_near(grad_input, exact, dtype)
    plain = aten.batch_norm_backward_elemt(*moved[:4], None, sums[0], sums[1], counts.to(device))
    assert_near(plain, exact / over(weight, x).double(), dtype)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@covers("batch_norm_gather_stats", "batch_norm_gather_stats_with_counts")
def test_statistics_of_parts_are_joined(dtype, device, no_fallback):
    x = torch.randn(20, 6, 5, dtype=dtype) * 3 + 1
    parts = x.split([3, 10, 7])
    variance, exact = torch.var_mean(x.double(), [0, 2], correction=0)
    stats = [aten.batch_norm_stats(part.to(device), EPS) for part in parts]
    mean, invstd = (torch.stack(list(values)) for values in zip(*stats, strict=True))
    counts = torch.tensor([part.numel() // 6 for part in parts], dtype=dtype, device=device)
    running = torch.zeros(6, dtype=dtype, device=device), torch.ones(6, dtype=dtype, device=device)
    joined = aten.batch_norm_gather_stats_with_counts(x.to(device), mean, invstd, *running, 0.1, EPS, counts)
    assert_near(joined[0], exact, dtype)
    assert_near(joined[1], (variance + EPS).rsqrt(), dtype)
    assert_near(running[0], exact * 0.1, dtype)
    assert_near(running[1], 0.9 + 0.1 * variance * (100 / 99), dtype)

    halves = [aten.batch_norm_stats(part.to(device), EPS) for part in x.chunk(2)]
    mean, invstd = (torch.stack(list(values)) for values in zip(*halves, strict=True))
    joined = aten.batch_norm_gather_stats(x.to(device), mean, invstd, None, None, 0.1, EPS, 50)
    assert_near(joined[0], exact, dtype)
    assert_near(joined[1], (variance + EPS).rsqrt(), dtype)


class Alone:
    """A process group of one process, without initialising torch.distributed."""

    def _get_backend_name(self) -> str:
        return "gloo"


@pytest.mark.parametrize("memory_format", [torch.contiguous_format, torch.channels_last], ids=str)
def test_the_layer_equals_batch_norm_for_equal_batches(memory_format, device, monkeypatch, no_fallback):
    """Two processes with the same batch have the statistics and gradients of one process."""
    monkeypatch.setattr(
        torch.distributed, "all_gather", lambda parts, own, group, async_op: [p.copy_(own) for p in parts]
    )
    monkeypatch.setattr(torch.distributed, "all_reduce", lambda sums, op, group, async_op: sums.mul_(2))
    x = torch.randn(4, 6, 5, 3).contiguous(memory_format=memory_format)
    weight, bias, grad = torch.rand(6) + 0.5, torch.randn(6), torch.randn(4, 6, 5, 3)

    def run(where, dtype, use):
        leaves = [tensor.detach().to(where, dtype).requires_grad_() for tensor in (x, weight, bias)]
        running = torch.zeros(6, device=where, dtype=dtype), torch.ones(6, device=where, dtype=dtype)
        result = use(*leaves, *running)
        return [result, *torch.autograd.grad(result, leaves, grad.to(where, dtype)), running[0]]

    actual = run(device, torch.float32, lambda *tensors: SyncBatchNorm.apply(*tensors, EPS, 0.1, Alone(), 2))
    exact = run(
        "cpu",
        torch.float64,
        lambda x, weight, bias, mean, var: functional.batch_norm(x, mean, var, weight, bias, True, 0.1, EPS),
    )
    for mine, wanted in zip(actual, exact, strict=True):
        assert_near(mine, wanted, torch.float32)


@pytest.mark.parametrize("dtype", computed([torch.float32, torch.float64]), ids=str)
@covers("_batch_norm_with_update.out")
def test_statistics_are_written_to_given_tensors(dtype, device, no_fallback):
    x, weight, bias = torch.randn(5, 4, 6, dtype=dtype), torch.randn(4, dtype=dtype), torch.randn(4, dtype=dtype)

    def run(where):
        running = torch.zeros(4, dtype=dtype, device=where), torch.ones(4, dtype=dtype, device=where)
        given = [torch.empty(0, dtype=dtype, device=where) for _ in range(3)]
        reserve = torch.empty(0, dtype=torch.uint8, device=where)
        names = dict(zip(("out", "save_mean", "save_invstd", "reserve"), (*given, reserve), strict=True))
        aten._batch_norm_with_update.out(*(t.to(where) for t in (x, weight, bias)), *running, 0.1, EPS, **names)
        return [*given, *running]

    for mine, wanted in zip(run(device), run("cpu"), strict=True):
        assert_near(mine, wanted.double(), dtype)


def test_bad_arguments_are_refused(device):
    x, vector = torch.randn(4, 3, 5, device=device), torch.ones(3, device=device)
    with pytest.raises(RuntimeError, match="at least 2 dimensions"):
        aten.batch_norm_stats(vector, EPS)
    with pytest.raises(RuntimeError, match="mean to have 3 elements"):
        aten.batch_norm_elemt(x, None, None, torch.ones(2, device=device), vector, EPS)
    with pytest.raises(RuntimeError, match="grad_out to have shape"):
        aten.batch_norm_backward_reduce(x[:2], x, vector, vector, None, True, True, True)
    with pytest.raises(RuntimeError, match="same data types"):
        aten.batch_norm_backward_reduce(x, x, vector, vector.half(), None, True, True, True)
