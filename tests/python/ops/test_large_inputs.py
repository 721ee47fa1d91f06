"""Operators that run on the host for large tensors if the device is a CPU: PyTorch's samples are small."""

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from float64 import computed

SIDE = 300
COUNT = 70_000


def floats(*shape: int) -> torch.Tensor:
    return torch.randn(shape)


def below(bound: int, *shape: int) -> torch.Tensor:
    return torch.randint(bound, shape)


def ctc_loss(log_probs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    return F.ctc_loss(log_probs.log_softmax(2), targets, [70] * 20, [20] * 20)


CALLS: dict[str, tuple[Callable, Callable]] = {
    "scatter_add": (lambda x, i, v: x.scatter_add(0, i, v), lambda: (floats(9), below(9, COUNT), floats(COUNT))),
    **{
        f"scatter_reduce {reduce}": (
            lambda x, i, v, reduce=reduce: x.scatter_reduce(0, i, v, reduce, include_self=False),
            lambda: (floats(COUNT), below(COUNT, COUNT), floats(COUNT)),
        )
        for reduce in ("sum", "mean", "prod", "amax", "amin")
    },
    "index_add": (lambda x, i, v: x.index_add(0, i, v), lambda: (floats(99, 30), below(99, 5000), floats(5000, 30))),
    "index_copy": (
        lambda x, i, v: x.index_copy(0, i, v),
        lambda: (floats(SIDE, SIDE), torch.randperm(SIDE), floats(SIDE, SIDE)),
    ),
    "index_reduce": (
        lambda x, i, v: x.index_reduce(0, i, v, "amax"),
        lambda: (floats(99, 30), below(99, 5000), floats(5000, 30)),
    ),
    "index_fill": (lambda x, i: x.index_fill(0, i, 2.0), lambda: (floats(SIDE, SIDE), below(SIDE, 50))),
    "bags of embeddings": (
        lambda w, i: F.embedding_bag(i, w.detach(), mode="mean") + F.embedding_bag(i, w, mode="sum"),
        lambda: (floats(3000, 30), below(3000, 700, 5)),
    ),
    "masked_scatter": (lambda x, v: x.masked_scatter(x > 0, v), lambda: (floats(SIDE, SIDE), floats(SIDE, SIDE))),
    "flip": (lambda x: x.flip(0, 1), lambda: (floats(SIDE, SIDE),)),
    "tril": (lambda x: x.tril(2), lambda: (floats(SIDE, SIDE),)),
    "triu": (lambda x: x.mT.triu(-2), lambda: (floats(4, SIDE, SIDE),)),
    "cross": (torch.linalg.cross, lambda: (floats(COUNT, 3), floats(COUNT, 3))),
    "logcumsumexp": (lambda x: x.logcumsumexp(1), lambda: (floats(SIDE, SIDE),)),
    "cumsum of columns": (lambda x: x.cumsum(0), lambda: (floats(SIDE, 2 * SIDE + 1),)),
    "cumprod of rows": (lambda x: x.cumprod(1), lambda: (floats(SIDE, SIDE) * 0.1 + 1,)),
    "cumsum of all": (lambda x: x.cumsum(0), lambda: (floats(COUNT + 3),)),
    "norm of order 3": (lambda x: x.norm(3, 1), lambda: (floats(SIDE, SIDE),)),
    "norm of order 2.5": (lambda x: x.norm(2.5, 0), lambda: (floats(SIDE, SIDE),)),
    "grid_sample": (
        lambda x, grid: F.grid_sample(x, grid.tanh(), align_corners=False),
        lambda: (floats(2, 3, 110, 110), floats(2, 110, 110, 2)),
    ),
    "grid_sample of volumes": (
        lambda x, grid: F.grid_sample(x, grid.tanh(), align_corners=False),
        lambda: (floats(2, 2, 27, 27, 27), floats(2, 24, 24, 24, 3)),
    ),
    "adaptive_avg_pool3d": (lambda x: F.adaptive_avg_pool3d(x, (5, 6, 7)), lambda: (floats(2, 3, 24, 24, 24),)),
    "avg_pool3d of one channel": (lambda x: F.avg_pool3d(x, (3, 1, 1), stride=1), lambda: (floats(2, 1, 12, 60, 60),)),
    "local_response_norm": (lambda x: F.local_response_norm(x, 3), lambda: (floats(2, 10, 60, 60),)),
    **{
        f"{mode} padding of {rank} dimensions": (
            lambda x, mode=mode, rank=rank: F.pad(x, (3, 2) * rank, mode=mode),
            lambda rank=rank: (floats(2, 5, *{1: (8000,), 2: (90, 90), 3: (20, 20, 20)}[rank]),),
        )
        for mode in ("reflect", "replicate")
        for rank in (1, 2, 3)
    },
    "fractional_max_pool2d": (
        lambda x, s: F.fractional_max_pool2d(x, 3, output_size=40, _random_samples=s.detach()),
        lambda: (floats(2, 5, 90, 90), torch.rand(2, 5, 2)),
    ),
    "ctc_loss": (ctc_loss, lambda: (floats(70, 20, 60), below(59, 20, 20) + 1)),
    "segment_reduce": (
        lambda x, lengths: torch.segment_reduce(x, "max", lengths=lengths),
        lambda: (floats(COUNT), torch.tensor([COUNT - 9, 0, 9])),
    ),
    "pow in float64": (
        lambda x, y: torch.float_power(x.abs() + 0.1, y) + torch.float_power(x.abs() + 0.1, 1.7),
        lambda: (floats(COUNT), floats(COUNT)),
    ),
    "erfc": (torch.erfc, lambda: (3 * floats(COUNT),)),
    "angle of complex numbers": (lambda x, y: torch.complex(x, y).angle(), lambda: (floats(COUNT), floats(COUNT))),
    "abs of complex numbers": (lambda x, y: torch.complex(x, y).abs(), lambda: (floats(COUNT), floats(COUNT))),
    **{
        f"{function.__name__} of complex numbers": (
            lambda x, y, function=function: torch.view_as_real(function(torch.complex(x, y))),
            lambda: (floats(COUNT), floats(COUNT)),
        )
        for function in (torch.exp, torch.exp2, torch.expm1, torch.reciprocal, torch.sgn, torch.sigmoid, torch.tanh)
    },
    **{
        f"interpolation of one dimension, {mode}": (
            lambda x, mode=mode: F.interpolate(x, scale_factor=2.5, mode=mode),
            lambda: (floats(2, 5, 8000),),
        )
        for mode in ("nearest", "nearest-exact", "linear")
    },
    "polar": (lambda x, y: torch.view_as_real(torch.polar(x, y)), lambda: (floats(COUNT), floats(COUNT))),
    "unique_consecutive": (lambda x: x.unique_consecutive(return_counts=True)[1], lambda: (below(3, COUNT),)),
    "histogram": (lambda x: torch.histogram(x, 30, range=(-3.0, 3.0))[0], lambda: (floats(COUNT),)),
    "histogramdd": (lambda x: torch.histogramdd(x, [5, 6])[0], lambda: (floats(COUNT // 2, 2),)),
    "fft": (lambda x: torch.view_as_real(torch.fft.fft(x, dim=0)), lambda: (floats(SIDE, SIDE),)),
    "convolution of integers": (
        lambda x, w: F.conv2d(x, w, padding=1),
        lambda: (below(9, 3, 5, 80, 80).byte(), below(9, 7, 5, 3, 3).byte()),
    ),
}
WITHOUT_GRADIENTS = ("index_reduce", "histogram", "histogramdd", "scatter_reduce prod")


@pytest.mark.parametrize("name", CALLS)
def test_large_inputs_give_the_results_and_gradients_of_the_cpu(name: str):
    torch.manual_seed(0)
    call, make = CALLS[name]
    if name == "pow in float64" and not computed([torch.float64]):
        pytest.skip("the device has no float64")
    inputs = make()

    def run(device: str) -> list[torch.Tensor]:
        tensors = [tensor.to(device) for tensor in inputs]
        leaves = [t.requires_grad_() for t in tensors if t.is_floating_point() and name not in WITHOUT_GRADIENTS]
        result = call(*tensors)
        assert result.device.type == device
        if not result.requires_grad:
            return [result]
        weight = torch.linspace(-1, 1, result.numel()).reshape(result.shape).to(result)
        grads = torch.autograd.grad(result, leaves, weight, allow_unused=True)
        return [result.detach(), *(grad for grad in grads if grad is not None)]

    torch.opencl.reset_fallbacks()
    ours, theirs = run("opencl"), run("cpu")
    assert not torch.opencl.fallbacks()
    for actual, expected in zip(ours, theirs, strict=True):
        atol = 1e-4 * (1 + expected.abs().max().item())
        torch.testing.assert_close(actual.cpu(), expected, rtol=0, atol=atol)
        # The result is device memory: kernels compute with it.
        torch.testing.assert_close((actual + actual).cpu(), expected + expected, rtol=0, atol=2 * atol)


def test_large_results_of_the_host_are_memory_of_the_device():
    x = torch.randn(512, 512, dtype=torch.complex64, device="opencl")
    torch.fft.fft(x)
    before = torch.opencl.memory_allocated()
    result = torch.fft.fft(x)
    assert result.untyped_storage().device.type == "opencl"
    assert torch.opencl.memory_allocated() == before + result.nbytes
    view = torch.fft.rfft(x.real)[1:, 3:].mT
    torch.testing.assert_close(view.cpu(), torch.fft.rfft(x.real.cpu())[1:, 3:].mT, rtol=1e-4, atol=1e-4)
    del result, view
    assert torch.opencl.memory_allocated() == before


def test_large_results_may_outgrow_their_storage():
    x = torch.randn(512, 300, device="opencl")
    result = torch.fft.rfft(x)
    result.resize_(600, 600)
    assert result.untyped_storage().nbytes() == 600 * 600 * 8
    out = torch.empty(0, device="opencl")
    torch.tril(torch.ones(SIDE, SIDE, device="opencl"), out=out)
    torch.testing.assert_close(out.cpu(), torch.ones(SIDE, SIDE).tril())


def test_large_inputs_raise_the_errors_of_the_cpu():
    x, index = torch.zeros(9, 30), torch.full((5000,), 9)
    for device in ("cpu", "opencl"):
        with pytest.raises((IndexError, RuntimeError), match="out of"):
            x.to(device).index_add(0, index.to(device), torch.ones(5000, 30, device=device)).cpu()
    assert torch.ones(3, device="opencl").sum().item() == 3


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int32, torch.bool], ids=str)
@pytest.mark.usefixtures("no_fallback")
def test_rows_of_any_short_length_are_reduced(device, dtype):
    torch.manual_seed(0)
    for length in (2, 3, 7, 8, 10, 15, 16, 17, 33):
        # A row length that is not a multiple of any vector width, and strided rows.
        x = (4 * torch.randn(COUNT // length + 3, length + 2)).to(dtype)[:, 1:-1]
        for call in (
            lambda x: x.sum(1),
            lambda x: x.amax(1),
            lambda x: x.any(1),
            lambda x: x[:5].sum(1),
            lambda x: x.mT.contiguous().mT.sum(1),
            lambda x: x.mean(1, dtype=torch.float32),
        ):
            torch.testing.assert_close(
                call(x.to(device)).cpu(), call(x), rtol=2e-2 if dtype.itemsize == 2 else 1e-5, atol=1e-5
            )


@pytest.mark.parametrize("out_int32", [False, True])
@pytest.mark.parametrize("right", [False, True])
@pytest.mark.usefixtures("no_fallback")
def test_searches_among_any_number_of_boundaries(device, right, out_int32):
    torch.manual_seed(0)
    for length in (0, 1, 2, 3, 5, 31, 1000):
        boundaries = below(length // 2 + 2, length).sort().values.float()
        values = torch.cat(
            [below(length + 2, COUNT).float() - 0.5 * below(2, COUNT), torch.tensor([torch.nan, torch.inf])]
        )
        found = torch.searchsorted(boundaries.to(device), values.to(device), right=right, out_int32=out_int32)
        assert torch.equal(found.cpu(), torch.searchsorted(boundaries, values, right=right, out_int32=out_int32))
    # Also with unsorted boundaries, the search takes the steps of the CPU.
    boundaries, values = floats(1, 37), floats(3, 500)
    found = torch.searchsorted(boundaries.expand(3, 37).to(device), values.to(device), right=right, out_int32=out_int32)
    assert torch.equal(
        found.cpu(), torch.searchsorted(boundaries.expand(3, 37), values, right=right, out_int32=out_int32)
    )
    rows, among = below(99, 130, 40), below(99, 130, 543)
    sorter = rows.argsort(dim=1)
    found = torch.searchsorted(rows.to(device), among.to(device), right=right, sorter=sorter.to(device))
    assert torch.equal(found.cpu(), torch.searchsorted(rows, among, right=right, sorter=sorter))


@pytest.mark.usefixtures("no_fallback")
def test_sequences_of_any_length(device):
    for count in (1, 2, 17, COUNT, 65537):
        for dtype in computed([torch.float32, torch.float64, torch.bfloat16, torch.int64, torch.complex64]):
            ours, theirs = (torch.linspace(-3, 99, count, dtype=dtype, device=where) for where in (device, "cpu"))
            # The CPU rounds the step to 16 bits.
            rtol, atol = (2**-7, 0.1) if dtype == torch.bfloat16 else (0, 1e-4)
            torch.testing.assert_close(ours.cpu(), theirs, rtol=rtol, atol=atol)
        for dtype in computed([torch.float32, torch.float64, torch.int16, torch.uint8, torch.int64]):
            ours, theirs = (torch.arange(3, 3 + count, dtype=dtype, device=where) for where in (device, "cpu"))
            assert torch.equal(ours.cpu(), theirs)
        ours, theirs = (torch.arange(-1.5, 0.1 * count - 1.5, 0.1, device=where) for where in (device, "cpu"))
        torch.testing.assert_close(ours.cpu(), theirs)
