"""Like device_class_cases.py, for indexing, sorting and segments: updates, sorts, scans, losses, segments, grids."""

from collections.abc import Callable
from itertools import product

import pytest
import torch
import torch.nn.functional as F
from device_class_cases import check
from float64 import computed


@pytest.mark.parametrize("deterministic", [False, True])
@pytest.mark.parametrize(
    "dtype", [torch.float32, torch.float16, torch.uint8, torch.int32, torch.int64, torch.complex64], ids=str
)
def test_updates_of_few_places(dtype: torch.dtype, deterministic: bool):
    """Many updates per index: sequentially, in any order by atomics, and sorted by index."""

    def numbers(*sizes: int) -> torch.Tensor:
        return torch.randint(9, sizes).to(dtype)

    def at(index: torch.Tensor, like: torch.Tensor) -> torch.Tensor:
        return index.to(like.device)

    each, rows, columns = torch.randint(7, (700,)), torch.randint(-5, 5, (9, 70)), torch.randint(3, (70,))
    wide, tall = torch.randint(40, (33, 300)), torch.randint(33, (300, 40))
    torch.use_deterministic_algorithms(deterministic)
    try:
        with torch.no_grad():
            check(lambda a, b: a.index_add(0, at(each, a), b), numbers(7), numbers(700))
            check(lambda a, b: a.index_add(0, at(each, a).int(), b), numbers(7, 33), numbers(700, 33))
            check(lambda a, b: a.index_add(1, at(each, a), b), numbers(5, 7, 3), numbers(5, 700, 3))
            check(lambda a, b: a.scatter_add(1, at(wide, a), b), numbers(33, 40), numbers(33, 300))
            check(lambda a, b: a.scatter_add(0, at(tall, a), b), numbers(33, 40), numbers(300, 40))
            check(lambda a: a.scatter_add(1, at(wide, a), a.new_ones(1, 1).expand(33, 300)), numbers(33, 40))
            check(
                lambda a, b: a.index_put((at(rows, a), at(columns, a)), b, accumulate=True),
                numbers(5, 3, 4),
                numbers(9, 70, 4),
            )
            check(lambda a, b: a.put(at(each, a), b, accumulate=True), numbers(3, 5), numbers(700))
            if deterministic and dtype != torch.complex64:
                # The last value is kept.
                check(lambda a, b: a.index_put((at(each, a),), b), numbers(7, 3), numbers(700, 3))
                check(lambda a, b: a.index_copy(0, at(each, a), b), numbers(7), numbers(700))
            if dtype != torch.complex64:
                check(lambda a, b: a.scatter_reduce(0, at(each, a), b, "amax"), numbers(7), numbers(700))
                check(lambda a, b: a.scatter_reduce(0, at(each, a), b, "prod"), numbers(7), 1 - numbers(700) // 8 * 2)
    finally:
        torch.use_deterministic_algorithms(False)


def test_sums_in_order_are_those_of_the_cpu():
    """With deterministic algorithms, results are bitwise equal."""
    index, values = torch.randint(0, 3, (100_000,)), torch.rand(100_000)
    rows, table = torch.randint(-50, 50, (3000,)), torch.randn(3000, 5)
    torch.use_deterministic_algorithms(True)
    try:
        for shape, where, what in ((3, index, values), ((50, 5), rows, table)):
            expected = torch.zeros(shape).index_put((where,), what, accumulate=True)
            start = torch.zeros(shape, device="opencl")
            got = start.index_put((where.to("opencl"),), what.to("opencl"), accumulate=True)
            assert torch.equal(got.cpu(), expected)
    finally:
        torch.use_deterministic_algorithms(False)


@pytest.mark.parametrize("share", [0, 0.01, 0.5, 1])
def test_places_of_nonzero_elements(share: float):
    for shape in [(1,), (63,), (512,), (1025,), (5151,), (33, 259), (3, 1, 17, 65), (2, 1, 2, 3, 1, 2, 5, 3, 7)]:
        x = torch.rand(shape).sub(1 - share).clamp_min(0)
        for dtype in (torch.float32, torch.complex64, torch.float16):
            check(torch.nonzero, x.to(dtype))
        check(lambda a: a.bool().nonzero(), x)
        for dtype in computed((torch.float64, torch.float32))[:1]:
            check(lambda a: a[a > 0], x.to(dtype))
    check(lambda a: torch.nonzero(a.t(), out=a.new_empty(2, 0).long().t()), torch.rand(70, 33).sub(0.5).clamp_min(0))


@pytest.mark.parametrize(
    ("rows", "length"),
    [(1, 1), (3, 2), (700, 5), (70, 16), (33, 100), (5, 515), (3, 1024), (2, 1025), (1, 5000), (3, 2048), (2, 9001)],
)
def test_sorted_rows(rows: int, length: int):
    x = torch.randn(rows, length)
    for dtype in computed((torch.float32, torch.float64, torch.bfloat16, torch.int64, torch.uint8, torch.bool)):
        # Few distinct values, so that indices show whether equal ones keep their order.
        few = (x * 2).round().to(dtype)
        for descending in (False, True):
            check(lambda a, d=descending: a.sort(dim=1, descending=d, stable=True).indices, few)
            check(lambda a, d=descending: a.sort(dim=1, descending=d, stable=True).values + 0, few)
    special = torch.where(x > 1, torch.nan, torch.where(x < -1, -torch.inf, x))
    for descending in (False, True):
        expected = special.sort(dim=1, descending=descending, stable=True)
        got = special.to("opencl").sort(dim=1, descending=descending, stable=True)
        torch.testing.assert_close(got.values.cpu(), expected.values, rtol=0, atol=0, equal_nan=True)
        assert torch.equal(got.indices.cpu(), expected.indices)


@pytest.mark.parametrize("length", [255, 256, 511, 512, 513, 9001])
def test_running_totals(length: int):
    for dtype in (torch.float32, torch.float16, torch.int64, torch.complex64):
        x = torch.randn(3, length).mul(3).to(dtype)
        with torch.no_grad():
            check(lambda a: a.cumsum(1), x)
    check(lambda a: a.logcumsumexp(1), torch.randn(3, length))
    check(lambda a: a.cumprod(1), torch.rand(3, length) / 50 + 1 - 1 / 100)


@pytest.mark.parametrize("p", [0.5, 1.0, 2.0, 3.0, float("inf")])
def test_distances_one_by_one(p: float):
    mode = "donot_use_mm_for_euclid_dist"
    points = torch.randn(2, 1, 40, 9), torch.randn(3, 50, 9)
    check(lambda x, y: torch.cdist(x, y, p, mode), *points, times=10)


def test_logarithms_of_complex_sums_are_in_order():
    """Phases are added as on the CPU, in long rows too, and infinite terms propagate."""
    check(lambda x: torch.logcumsumexp(x, 0), torch.randn(3000, 3, dtype=torch.complex64))
    parts = [0.0, 1.0, float("inf"), -float("inf"), float("nan")]
    values = [complex(real, imag) for real in parts for imag in (0.0, 1.0)]
    pairs = torch.tensor(list(product(values, values)), dtype=torch.complex64)
    actual, expected = torch.logcumsumexp(pairs.to("opencl"), 1).cpu(), torch.logcumsumexp(pairs, 1)
    torch.testing.assert_close(torch.view_as_real(actual), torch.view_as_real(expected), equal_nan=True)


@pytest.mark.parametrize("classes", [4, 300])
def test_losses_of_groups(classes: int):
    torch.manual_seed(0)
    x, several = torch.randn(70, classes), torch.randint(-1, classes, (70, classes))
    one, weight = several.abs()[:, 0], torch.rand(classes)
    check(lambda x, w: F.multi_margin_loss(x, one.to(x.device), p=2, weight=w.detach()) + 0 * w.sum(), x, weight)
    check(lambda x: F.multilabel_margin_loss(x, several.to(x.device), reduction="none"), x)


@pytest.mark.parametrize("labels", [3, 200])
def test_ctc_loss(labels: int):
    """Fewer states than a work-group has items, and more."""
    torch.manual_seed(0)
    x, targets = torch.randn(2 * labels + 9, 5, 7), torch.randint(1, 7, (5, labels))
    lengths, target_lengths = [2 * labels + 9 - k for k in range(5)], [labels, 0, 1, labels - 1, labels]
    for dtype in computed((torch.float32, torch.float64)):
        check(
            lambda x: F.ctc_loss(x.log_softmax(-1), targets.to(x.device), lengths, target_lengths, reduction="none"),
            x.to(dtype),
            times=20,  # the logarithms of long targets are some hundreds
        )


def test_segments():
    lengths = torch.tensor([5, 0, 300, 2, 93])
    for reduce in ("sum", "mean", "max", "prod"):
        check(
            lambda x, reduce=reduce: torch.segment_reduce(
                x, reduce, lengths=lengths.to(x.device), unsafe=True, initial=1
            ),
            torch.rand(400, 33) * 0.1 + 0.95,
        )


def test_windows_at_random_positions():
    samples = torch.rand(2, 3, 2)
    check(
        lambda x: F.fractional_max_pool2d(x, 3, output_size=(7, 9), _random_samples=samples.to(x)),
        torch.randn(2, 3, 20, 31),
    )


def test_indexing():
    table, index = torch.randn(50, 33), torch.randint(50, (777,))
    check(lambda w: F.embedding(index.to(w.device), w), table)
    check(lambda w: w[index.to(w.device), 3], table)
    check(lambda w: w.index_add(0, index.to(w.device), torch.ones(777, 33, dtype=w.dtype, device=w.device)), table)
    check(lambda w: (w > 0).nonzero(), table)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16])
@pytest.mark.parametrize("is_deterministic", [False, True])
def test_places_of_grids(dtype: torch.dtype, is_deterministic: bool):
    """Gradients are sums of contributions from many positions, in any order or in a fixed one."""
    torch.use_deterministic_algorithms(is_deterministic)
    try:
        for mode, channels in product(("bilinear", "nearest", "bicubic"), (3, 21)):
            x, places = torch.randn(2, channels, 7, 9), torch.rand(2, 33, 5, 2) * 2.4 - 1.2
            for layout in (torch.contiguous_format, torch.channels_last):
                for padding in ("zeros", "border", "reflection"):
                    how = {"mode": mode, "padding_mode": padding, "align_corners": False}
                    moved = x.to(dtype).contiguous(memory_format=layout)
                    check(lambda x, y, how=how: F.grid_sample(x, y, **how), moved, places.to(dtype))
        x, places = torch.randn(2, 3, 4, 5, 6), torch.rand(2, 9, 4, 3, 3) * 2 - 1
        check(lambda x, y: F.grid_sample(x, y, align_corners=True), x.to(dtype), places.to(dtype))
    finally:
        torch.use_deterministic_algorithms(False)


@pytest.mark.parametrize("dtype", computed([torch.float32, torch.float16, torch.float64]), ids=str)
def test_sparse_matmuls_with_a_reduction(dtype: torch.dtype):
    matrix = torch.randn(300, 90).where(torch.rand(300, 90) < 0.2, 0)
    matrix[7] = 0
    starts, columns = matrix.to_sparse_csr().crow_indices(), matrix.to_sparse_csr().col_indices()
    values = matrix.to_sparse_csr().values().to(dtype)

    def reduce(values: torch.Tensor, dense: torch.Tensor, how: str) -> torch.Tensor:
        indices = (starts.to(values.device), columns.to(values.device))
        return torch.sparse.mm(torch.sparse_csr_tensor(*indices, values, (300, 90)), dense, how)

    for width, how in product((1, 37), ("sum", "mean", "amax", "amin")):
        check(lambda a, b, how=how: reduce(a, b, how), values, torch.randn(90, width).to(dtype))


@pytest.mark.parametrize("dtype", computed([torch.float32, torch.float16, torch.float64]), ids=str)
def test_fake_quantisation(dtype: torch.dtype):
    for size in (7, 40001):
        # Far from the midpoint of two integers, so that a wider dtype does not round differently.
        x = ((torch.randint(-40, 40, (3, size)) + 0.2) / 4).to(dtype)
        scale, zero_point = torch.full((3,), 0.25), torch.tensor([0, -3, 4], dtype=torch.int32)
        check(lambda x: torch.fake_quantize_per_tensor_affine(x, 0.25, 3, -16, 15), x)
        with torch.no_grad():
            check(
                lambda x, z, scale=scale: torch.fake_quantize_per_channel_affine(x, scale.to(x.device), z, 0, -16, 15),
                x,
                zero_point,
            )


def test_hashes():
    for dtype in (torch.float32, torch.float16, torch.int64, torch.uint8):
        x = torch.testing.make_tensor((3, 7001), dtype=dtype, device="cpu")
        with torch.no_grad():
            for dims in ((), (0,), (1,)):
                check(lambda x, dims=dims: torch.hash_tensor(x, dims).view(torch.int64), x)


@pytest.mark.parametrize("dtype", [torch.bool, torch.bfloat16, torch.float32, torch.int64, torch.complex128], ids=str)
def test_parts_of_a_concatenation_are_copied_together(dtype: torch.dtype):
    """Whole tensors and slices, in words of any width, more than one launch takes, and layouts without rows."""
    x = torch.randint(9, (7, 60, 33)).to(dtype)
    if dtype not in computed([dtype]):
        pytest.skip("the device does not compute in it")

    def joined(parts: Callable[[torch.Tensor], list[torch.Tensor]], dim: int) -> None:
        assert torch.equal(torch.cat(parts(x.to("opencl")), dim).cpu(), torch.cat(parts(x), dim))

    for dim in range(3):
        joined(lambda x: [x[:, :, 3:17], x[:, :, 5:19], x[:, :, :14]], dim)
        joined(lambda x: [*x[:, :32, :32].split(8, 1)] * 6, dim)
        joined(lambda x: [x.mT, x.mT], dim)
    joined(lambda x: [x[0], x[1, :, 2:3], x[2, :, :1]], 1)
    joined(lambda x: x[0, :, ::7, None].unbind(1) * 5, 1)
    joined(lambda x: [x[1:4], x[:0], x[2:3], x[3:6, ::2].repeat(1, 2, 1)], 0)
    images = x[:, :, :32].reshape(7, 4, 15, 32).contiguous(memory_format=torch.channels_last)
    assert torch.equal(torch.cat([images.to("opencl")] * 3, 1).cpu(), torch.cat([images] * 3, 1))
    long = torch.randint(9, (3, 50001)).to(dtype)
    assert torch.equal(torch.cat([long.to("opencl"), long[:1].to("opencl")]).cpu(), torch.cat([long, long[:1]]))
