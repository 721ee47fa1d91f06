"""Sums of several 16-bit floats into one element: accumulated in float32, and rounded once.

test_device_class.py also runs this with the kernels of the other device class.
"""

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from op_table import covers

SIXTEEN_BITS = [torch.float16, torch.bfloat16]
# Rows, columns and updates: a small table is copied to float32; updates of a large one are sorted.
TABLES = {"small": (3, 5, 3000), "large": (5000, 40, 1500)}
# The number of rows that updates write to.
MET = 3


def assert_rounded_once(work: Callable[..., torch.Tensor], *inputs: torch.Tensor) -> None:
    """Compare with the rounded float64 result: the order of float32 additions may change the last bit."""
    dtype = next(tensor.dtype for tensor in inputs if tensor.is_floating_point())
    wide = [tensor.double() if tensor.is_floating_point() else tensor for tensor in inputs]
    expected = work(*wide).to(dtype)
    found = work(*(tensor.to("opencl") for tensor in inputs)).cpu()
    assert found.dtype == dtype
    torch.testing.assert_close(found, expected, rtol=torch.finfo(dtype).eps, atol=1e-6)


def gradient(work: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
    """Return a function that computes the gradient of the first argument; the last one is the result's gradient."""

    def of(x: torch.Tensor, *others: torch.Tensor) -> torch.Tensor:
        *others, grad = others
        x = x.detach().requires_grad_()
        result = work(x, *others)
        return torch.autograd.grad(result, x, grad.reshape(result.shape))[0]

    return of


def factors(terms: torch.Tensor) -> torch.Tensor:
    """Return values near 1 that have few bits."""
    return torch.where(terms < 1, 1.0625, 0.9375).to(terms)


def weighted_bags(x: torch.Tensor, index: torch.Tensor) -> torch.Tensor:
    return F.embedding_bag(index, x, mode="sum", per_sample_weights=(index + 1).to(x))


UPDATES = {
    "index_add": lambda x, i, s: x.index_add(0, i, s),
    "index_add alpha": lambda x, i, s: x.index_add(0, i, s, alpha=2),
    "index_add across": lambda x, i, s: x.t().index_add(1, i, s.t()),
    "index_add of every second column": lambda x, i, s: x[:, ::2].index_add(0, i, s[:, ::2]),
    "index_add of one column": lambda x, i, s: x[:, 1].index_add(0, i, s[:, 1]),
    "scatter_add": lambda x, i, s: x.scatter_add(0, i[:, None].expand_as(s), s),
    "scatter_reduce": lambda x, i, s: x.scatter_reduce(0, i[:, None].expand_as(s), s, "sum", include_self=False),
    "mean": lambda x, i, s: x.scatter_reduce(0, i[:, None].expand_as(s), s, "mean"),
    "index_reduce": lambda x, i, s: x.index_reduce(0, i, s, "mean", include_self=False),
    "prod": lambda x, i, s: x.scatter_reduce(0, i[:, None].expand_as(s), factors(s), "prod"),
    "index_put rows": lambda x, i, s: x.index_put((i,), s, accumulate=True),
    "index_put pairs": lambda x, i, s: x.index_put((i, i % 2), s[:, 0], accumulate=True),
    "index_put columns": lambda x, i, s: x.t().index_put((i % 4,), s[0, 0], accumulate=True),
    "put_": lambda x, i, s: x.clone().put_(i, s[:, 0], accumulate=True),
    "index_select": gradient(lambda x, i: x.index_select(0, i)),
    "gather": gradient(lambda x, i: x.gather(0, i[:, None].expand(-1, x.shape[1]))),
    "take": gradient(lambda x, i: x.take(i[:, None].expand(-1, x.shape[1]))),
    "embedding": gradient(lambda x, i: F.embedding(i, x, padding_idx=1)),
    "embedding by frequency": gradient(lambda x, i: F.embedding(i, x, scale_grad_by_freq=True)),
    "bags": gradient(lambda x, i: F.embedding_bag(i.view(-1, 1), x, mode="sum")),
    "weighted bags": gradient(lambda x, i: weighted_bags(x, i.view(-1, 1))),
    "largest of bags": gradient(lambda x, i: F.embedding_bag(i.view(-1, 1), x, mode="max")),
}  # fmt: skip


@pytest.mark.parametrize("table", TABLES)
@pytest.mark.parametrize("dtype", SIXTEEN_BITS, ids=str)
@pytest.mark.parametrize("name", UPDATES)
@covers("index_add")
def test_updates_by_index(name: str, dtype: torch.dtype, table: str) -> None:
    rows, columns, updates = TABLES[table]
    generator = torch.Generator().manual_seed(0)
    x = torch.rand(rows, columns, generator=generator).to(dtype)
    index = torch.randint(MET, (updates,), generator=generator)
    terms = torch.rand(updates, columns, generator=generator).add(0.5).to(dtype)
    assert_rounded_once(UPDATES[name], x, index, terms)


@pytest.mark.parametrize("deterministic", [False, True])
def test_ones_are_counted(deterministic: bool, device: torch.device) -> None:
    torch.use_deterministic_algorithms(deterministic)
    try:
        for dtype, count in ((torch.float16, 5000.0), (torch.bfloat16, 4992.0), (torch.complex32, 5000.0)):
            zeros = torch.zeros(5000, dtype=torch.long, device=device)
            ones = torch.ones(5000, 3, dtype=dtype, device=device)
            table = torch.zeros(4, 3, dtype=dtype, device=device)
            assert table.index_add(0, zeros, ones)[0].tolist() == [count] * 3
            assert table[:, 0].index_add(0, zeros, ones[:, 0])[0].item() == count
            assert table.index_put((zeros,), ones, accumulate=True)[0].tolist() == [count] * 3
    finally:
        torch.use_deterministic_algorithms(False)


@pytest.mark.parametrize("deterministic", [False, True])
@pytest.mark.parametrize("dtype", [*SIXTEEN_BITS, torch.float32, torch.complex64], ids=str)
def test_rows_that_share_memory_get_all_updates(dtype: torch.dtype, deterministic: bool, device: torch.device) -> None:
    """ATen does not check for such overlap; in 16 bits the CPU loses updates. Work-items that race lose one in 200."""
    index = torch.arange(4, device=device).repeat(8)
    updates = torch.ones(32, 3, dtype=dtype, device=device)
    torch.use_deterministic_algorithms(deterministic)
    try:
        for _ in range(300):
            x = torch.zeros(10, dtype=dtype, device=device)
            x.as_strided((4, 3), (1, 1)).index_add_(0, index, updates)
            assert x.tolist() == [8, 16, 24, 24, 16, 8, 0, 0, 0, 0]
    finally:
        torch.use_deterministic_algorithms(False)


@pytest.mark.parametrize("dims", [7, 8, 9])
def test_ordered_updates_of_elements_that_share_memory_in_many_dimensions(dims: int, device: torch.device) -> None:
    """A work-item that makes all updates needs a dimension of its own, and layouts have 8."""
    sizes, strides = (4, 3) + (2,) * (dims - 2), (1, 1, *(8 * 3**n for n in range(dims - 2)))
    results = []
    torch.use_deterministic_algorithms(True)
    try:
        for where in (device, torch.device("cpu")):
            x, index = torch.zeros(4 * strides[-1] + 40, device=where), torch.arange(4, device=where).repeat(8)
            x.as_strided(sizes, strides).index_add_(0, index, torch.ones(32, *sizes[1:], device=where))
            results.append(x.cpu())
    finally:
        torch.use_deterministic_algorithms(False)
    assert torch.equal(*results)


def test_a_table_without_updates_is_unchanged(device: torch.device) -> None:
    values = torch.tensor([float("nan"), float("inf"), -0.0, 1e-7, 65504.0], dtype=torch.float16, device=device)
    index, ones = torch.full((40,), 4, device=device), torch.zeros(40, dtype=torch.float16, device=device)
    found = values.index_add(0, index, ones).cpu()
    torch.testing.assert_close(found, values.cpu(), rtol=0, atol=0, equal_nan=True)
    assert torch.equal(found.signbit(), values.cpu().signbit())


POOLS = {
    "max": lambda x: F.max_pool2d(x, (1, 65), 1, (0, 32)),
    "adaptive max": lambda x: F.adaptive_max_pool2d(x, (7, 900)),
    "average": lambda x: F.avg_pool2d(x, (1, 65), 1, (0, 32), divisor_override=1),
    "adaptive average": lambda x: F.adaptive_avg_pool2d(x, (7, 900)),
    "adaptive average in 3 dimensions": lambda x: F.adaptive_avg_pool3d(x[:, :, None], (2, 70, 900)),
    "replication": lambda x: F.pad(x, (900, 0, 0, 90), mode="replicate"),
    "windows": lambda x: x.unfold(3, 60, 1),
    "unfold": lambda x: F.unfold(x, (3, 60)),
    "nearest": lambda x: F.interpolate(x, (70, 900)),
}


@pytest.mark.parametrize("format", [torch.contiguous_format, torch.channels_last], ids=str)
@pytest.mark.parametrize("dtype", SIXTEEN_BITS, ids=str)
@pytest.mark.parametrize("name", POOLS)
def test_gradients_of_windows(name: str, dtype: torch.dtype, format: torch.memory_format) -> None:
    generator = torch.Generator().manual_seed(0)
    # Distinct values, some of which are the largest in many windows.
    x = (torch.randperm(2 * 4 * 3 * 75, generator=generator) % 251).view(2, 4, 3, 75).to(dtype)
    grad = torch.rand(POOLS[name](x.float()).shape, generator=generator).add(0.5).to(dtype)
    work = gradient(POOLS[name])
    assert_rounded_once(lambda x, grad: work(x.contiguous(memory_format=format), grad), x, grad)


@pytest.mark.parametrize("dtype", SIXTEEN_BITS, ids=str)
def test_sums_of_segments_and_of_overlapping_blocks(dtype: torch.dtype) -> None:
    generator = torch.Generator().manual_seed(0)
    # As many elements as CPU devices leave to the host.
    terms = torch.rand(70_000, generator=generator).add(0.5).to(dtype)
    lengths = torch.tensor([3000, 67_000])
    if dtype == torch.bfloat16:
        assert_rounded_once(lambda x, n: torch.segment_reduce(x, "sum", lengths=n), terms, lengths)
    assert_rounded_once(lambda x, n: torch.segment_reduce(x, "mean", lengths=n), terms, lengths)
    assert_rounded_once(lambda x: F.fold(x[:5000].view(1, 50, 100), (1, 149), (1, 50)), terms)


def test_means_of_terms_whose_sum_is_too_large(device: torch.device) -> None:
    terms = torch.full((3000,), 60.0, dtype=torch.float16, device=device)
    zeros = torch.zeros(3000, dtype=torch.long, device=device)
    table = torch.zeros(2, dtype=torch.float16, device=device)
    assert table.scatter_reduce(0, zeros, terms, "mean", include_self=False).tolist() == [60, 0]
    assert table.index_reduce(0, zeros, terms, "mean", include_self=False).tolist() == [60, 0]


COMPILED = {
    "index_add": lambda x, i, s: x.index_add(0, i, s * 2),
    "scatter_add": lambda x, i, s: x.scatter_add(0, i[:, None].expand_as(s), s * 2),
    "scatter": lambda x, i, s: (s * 2).scatter(0, i[:, None].expand_as(s), 1.0, reduce="add"),
    "index_put": lambda x, i, s: (x * 2).index_put((i,), s, accumulate=True),
    "index_select": gradient(lambda x, i: (x * 2).index_select(0, i)),
    "embedding": gradient(lambda x, i: F.embedding(i, x * 2)),
}


@pytest.mark.parametrize("name", COMPILED)
def test_compiled_graphs(name: str) -> None:
    torch._dynamo.reset()
    rows, columns, updates = TABLES["small"]
    generator = torch.Generator().manual_seed(0)
    x = torch.rand(rows, columns, generator=generator).bfloat16()
    index = torch.randint(MET, (updates,), generator=generator)
    terms = torch.rand(updates, columns, generator=generator).add(0.5).bfloat16()
    compiled = torch.compile(COMPILED[name])
    assert_rounded_once(lambda *a: (compiled if a[0].device.type == "opencl" else COMPILED[name])(*a), x, index, terms)
