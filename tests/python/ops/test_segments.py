"""Reductions of segments of rows, histograms, and other operators that divide elements into groups."""

from collections.abc import Callable

import pytest
import torch
from float64 import computed
from op_samples import NoFallback
from op_table import FLOATING, INTEGRAL, covers
from torch import Tensor

REDUCTIONS = ("max", "mean", "min", "sum", "prod")


def segment(data: Tensor, given: dict, reduce: str, **more) -> Tensor:
    return torch.segment_reduce(data, reduce, **{name: value.to(data.device) for name, value in given.items()}, **more)


def assert_as_on_cpu(data: Tensor, given: dict, reduce: str, device: torch.device, **more) -> None:
    """Compare a segment reduction and its gradient with the CPU's in a wider dtype."""
    exact = data.float() if data.dtype.itemsize == 2 else data
    results = []
    for tensor in (exact, data.to(device)):
        leaf = tensor.detach().requires_grad_()
        with NoFallback():
            result = segment(leaf, given, reduce, **more)
            (grad,) = torch.autograd.grad(
                result, leaf, torch.linspace(0.1, 2, result.numel()).view(result.shape).to(result)
            )
        results.append((result.detach().cpu().to(data.dtype), grad.cpu().to(data.dtype)))
    for ours, theirs in zip(results[1], results[0], strict=True):
        torch.testing.assert_close(ours, theirs, equal_nan=True)


@pytest.mark.parametrize("dtype", computed(FLOATING), ids=str)
@pytest.mark.parametrize("reduce", REDUCTIONS)
@covers("segment_reduce", "_segment_reduce_backward")
def test_segments_of_rows(reduce: str, dtype: torch.dtype, device: torch.device) -> None:
    torch.manual_seed(0)
    # Distinct values: with ties, rounding would decide which is the largest.
    data = (torch.randperm(11 * 3).view(11, 3) / 16 + 0.25).to(dtype)
    lengths = torch.tensor([2, 0, 5, 4])
    for given in (
        {"lengths": lengths},
        {"lengths": lengths.int()},
        {"offsets": torch.tensor([0, 2, 2, 7, 11])},
        {"offsets": torch.tensor([1, 4, 9])},
    ):
        for more in ({}, {"initial": 2.0}, {"unsafe": True}):
            assert_as_on_cpu(data, given, reduce, device, **more)


@pytest.mark.parametrize("reduce", REDUCTIONS)
def test_segments_of_batches_and_of_large_tensors(reduce: str, device: torch.device) -> None:
    torch.manual_seed(0)
    rows = torch.tensor([[1, 4, 1], [0, 0, 6]])
    assert_as_on_cpu(torch.randn(2, 6, 5), {"lengths": rows}, reduce, device, axis=1)
    assert_as_on_cpu(torch.randn(5, 2, 6).permute(1, 2, 0), {"lengths": rows}, reduce, device, axis=1)
    lengths = torch.full((300,), 70)
    assert_as_on_cpu(torch.rand(21000, 4) * 0.2 + 0.9, {"lengths": lengths}, reduce, device)


def test_segments_with_zeros_nan_and_ties(device: torch.device) -> None:
    data = torch.tensor([0.0, 2, 0, 3, float("nan"), 1, 5, 5, 0, 4])
    for reduce in REDUCTIONS:
        assert_as_on_cpu(data, {"lengths": torch.tensor([2, 2, 2, 2, 2])}, reduce, device)
        assert_as_on_cpu(data, {"lengths": torch.tensor([3, 1, 0, 6])}, reduce, device, initial=3)
        assert_as_on_cpu(data[:0], {"lengths": torch.tensor([0, 0])}, reduce, device)


@pytest.mark.parametrize(
    ("given", "more"),
    [
        ({"lengths": [2, -1, 2]}, {}),
        ({"lengths": [2, 2]}, {}),
        ({"lengths": [3], "indices": [0, 0, 0]}, {}),
        ({}, {}),
        ({"lengths": [[3]]}, {}),
        ({"lengths": [3]}, {"reduce": "median"}),
    ],
)
def test_segments_that_the_cpu_refuses(given: dict, more: dict, device: torch.device) -> None:
    data = torch.ones(3)
    given = {name: torch.tensor(value) for name, value in given.items()}
    reduce = more.get("reduce", "sum")
    with pytest.raises(RuntimeError) as expected:
        segment(data, given, reduce)
    with pytest.raises(RuntimeError) as raised:
        segment(data.to(device), given, reduce)
    assert str(raised.value).splitlines()[0] == str(expected.value).splitlines()[0]


def both(work: Callable[..., object], *inputs: Tensor, device: torch.device) -> None:
    """Compare with the CPU, without a fallback."""
    torch.opencl.reset_fallbacks()
    actual = work(*(tensor.to(device) for tensor in inputs))
    assert not torch.opencl.fallbacks()
    expected = work(*inputs)
    torch.testing.assert_close(torch.utils._pytree.tree_map_only(Tensor, Tensor.cpu, actual), expected)


@pytest.mark.parametrize("dtype", computed((torch.float32, torch.float64)), ids=str)
@covers(
    "histogram.bins_tensor",
    "histogram.bin_ct",
    "_histogramdd_bin_edges",
    "_histogramdd_from_bin_cts",
    "_histogramdd_from_bin_tensors",
)
def test_histograms(dtype: torch.dtype, device: torch.device) -> None:
    torch.manual_seed(0)
    # Multiples of a power of two: each value is either on an edge or far from it.
    x = (torch.randn(5000) * 64).round().to(dtype) / 64
    weight = torch.randint(16, (5000,)).to(dtype) / 16
    edges = torch.tensor([-2, -0.5, 0, 0.25, 1.5], dtype=dtype)
    points, pair = x.view(-1, 2), (edges, edges[:3])
    for density in (False, True):
        both(lambda x, density=density: torch.histogram(x, 16, range=(-2, 2), density=density), x, device=device)
        both(
            lambda x, w, density=density: torch.histogram(x, 8, weight=w, range=(-4, 4), density=density),
            x,
            weight,
            device=device,
        )
        both(lambda x, e, density=density: torch.histogram(x, e, density=density), x, edges, device=device)
        both(
            lambda x, density=density: torch.histogramdd(x, [4, 8], range=[-2, 2, -4, 4], density=density),
            points,
            device=device,
        )
        both(lambda x, *e, density=density: torch.histogramdd(x, e, density=density), points, *pair, device=device)
    both(lambda x: torch.histogram(x, 1), x[:0], device=device)
    both(lambda x: torch.histogram(x, 3), torch.full((5,), 2.0, dtype=dtype), device=device)
    # The smallest and the greatest value are in the first and last bin.
    both(lambda x: torch.histogram(x, 4).bin_edges, x, device=device)
    assert torch.histogram(x.to(device), 100).hist.sum() == 5000
    assert torch.histogramdd(points.to(device), [7, 9]).hist.sum() == 2500


def test_histograms_that_the_cpu_refuses(device: torch.device) -> None:
    def refused(work: Callable[[Tensor], object], x: Tensor) -> None:
        with pytest.raises((RuntimeError, NotImplementedError)) as expected:
            work(x)
        with pytest.raises(type(expected.value)) as raised:
            work(x.to(device))
        assert str(raised.value).splitlines()[0] == str(expected.value).splitlines()[0]

    x = torch.tensor([1.0, float("inf")])
    refused(lambda x: torch.histogram(x, 3), x)
    refused(lambda x: torch.histogram(x, 0), x[:1])
    refused(lambda x: torch.histogram(x, 3, range=(2, 1)), x)
    refused(lambda x: torch.histogram(x, 3, weight=x[:1]), x)
    refused(lambda x: torch.histogram(x, 3), x.long())
    refused(lambda x: torch.histogramdd(x, [3]), x)


@pytest.mark.parametrize("dtype", INTEGRAL, ids=str)
def test_counts_of_integers(dtype: torch.dtype, device: torch.device) -> None:
    x = torch.randint(0, 40, (3000,), dtype=dtype)
    both(lambda x: torch.bincount(x, minlength=50), x, device=device)
    torch.opencl.reset_fallbacks()
    counts = torch.histc(x.to(device), 40, 0, 39)
    assert not torch.opencl.fallbacks()
    # The bins of CUDA, which supports integers.
    bins = (x.long() * 40 // 39).clamp(max=39)
    assert torch.equal(counts.cpu(), torch.bincount(bins, minlength=40).to(dtype))


@pytest.mark.parametrize("dtype", [torch.bool, *INTEGRAL, *FLOATING], ids=str)
@covers("_unique", "_aminmax")
def test_groups_of_equal_elements(dtype: torch.dtype, device: torch.device) -> None:
    torch.manual_seed(0)
    x = torch.randint(0, 2 if dtype == torch.bool else 9, (40, 30)).to(dtype)
    for inverse in (False, True):
        both(lambda x, inverse=inverse: torch._unique(x, return_inverse=inverse), x, device=device)
    both(torch._aminmax, x, device=device)
    both(lambda x: torch._aminmax(x, 1, True), x, device=device)
    both(lambda x: torch.unique_consecutive(x, return_inverse=True, return_counts=True), x, device=device)
    if dtype != torch.bool:  # neither device supports it
        both(torch.isin, x, x[0, :2], device=device)
        both(lambda x: torch.isin(x, 1), x, device=device)
