"""Memory layouts of tensors: strided, broadcast, offset, channels-last, of many dimensions, overlapping, large."""

from collections.abc import Callable

import pytest
import torch
from op_samples import NoFallback, assert_near_exact, mirror
from op_table import INTEGRAL
from torch import Tensor

# One op for each kind of kernel: pointwise with each number of operands and class, copies, index, scan, sort.
OPS: dict[str, Callable[[Tensor], Tensor]] = {
    "clone": torch.clone,
    "neg": torch.neg,
    "sqrt": lambda t: t.abs().sqrt(),
    "add": lambda t: t + t.flip(-1),
    "mul_scalar": lambda t: t * 3,
    "lt": lambda t: t < 2,
    "where": lambda t: torch.where(t > 1, t, -t),
    "addcmul": lambda t: torch.addcmul(t, t, t, value=2),
    "to_int64": lambda t: t.to(torch.int64),
    "to_float16": lambda t: t.to(torch.float16),
    "flip": lambda t: t.flip(tuple({0, t.dim() - 1})),
    "roll": lambda t: t.roll(1, -1),
    "cat": lambda t: torch.cat([t, t], dim=-1),
    "cumsum": lambda t: t.cumsum(-1),
    "sort": lambda t: t.sort(dim=0, stable=True).indices,
    "index_select": lambda t: t.index_select(0, torch.tensor([1, 0, 1], device=t.device)),
    "nonzero": torch.nonzero,
    "tril": lambda t: torch.atleast_2d(t).tril(),
}
DTYPES = (torch.int8, torch.int32, torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.complex64)
UNORDERED = {"lt", "where", "sort"}  # complex numbers have no order


def numbers(dtype: torch.dtype, *shape: int) -> Tensor:
    """Small integers, so that every dtype represents them and no op rounds."""
    generator = torch.Generator().manual_seed(0)
    return torch.randint(-4 if dtype.is_signed else 0, 5, shape, generator=generator).to(dtype)


LAYOUTS: dict[str, Callable[[torch.dtype], Tensor]] = {
    "dense": lambda dtype: numbers(dtype, 6, 5, 4),
    "every_other": lambda dtype: numbers(dtype, 12, 5, 8)[::2, :, 1::2],
    "offset": lambda dtype: numbers(dtype, 7, 5, 4)[1:],
    "odd_offset": lambda dtype: numbers(dtype, 61)[1:].view(3, 20),
    "transposed": lambda dtype: numbers(dtype, 6, 5, 4).transpose(0, 2),
    "expanded": lambda dtype: numbers(dtype, 6, 1, 4).expand(6, 5, 4),
    "one_number": lambda dtype: numbers(dtype, 1).expand(3, 7),
    "overlapping_windows": lambda dtype: numbers(dtype, 20).unfold(0, 5, 2),
    "channels_last": lambda dtype: numbers(dtype, 2, 3, 4, 5).to(memory_format=torch.channels_last),
    "channels_last_3d": lambda dtype: numbers(dtype, 2, 3, 2, 4, 5).to(memory_format=torch.channels_last_3d),
    "column": lambda dtype: numbers(dtype, 40, 3)[:, 1],
    "ten_dimensions": lambda dtype: numbers(dtype, *[2] * 10).permute(*range(9, -1, -2), *range(0, 10, 2)),
    "empty": lambda dtype: numbers(dtype, 2, 0, 3),
}


def assert_same(actual: Tensor, expected: Tensor) -> None:
    assert actual.device.type == "opencl"
    torch.testing.assert_close(actual.cpu(), expected, equal_nan=True)


REDUCTIONS: dict[str, Callable[[Tensor, tuple[int, ...]], Tensor | tuple[Tensor, ...]]] = {
    "sum": lambda t, dims: t.sum(dims),
    "mean": lambda t, dims: t.mean(dims),
    "amax": lambda t, dims: t.amax(dims),
    "any": lambda t, dims: (t > 1).any(dims[-1]),
    "vector_norm": lambda t, dims: torch.linalg.vector_norm(t, 3, dims),
    "var_mean": torch.var_mean,
    "argmax": lambda t, dims: t.argmax(dims[0]),
    "max": lambda t, dims: t.max(dims[-1], keepdim=True).values,
    "out": lambda t, dims: torch.sum(t, dims, out=torch.empty(0, dtype=t.dtype, device=t.device)),
}


@pytest.mark.parametrize("name", REDUCTIONS)
def test_reductions_of_dimensions_that_do_not_join(name: str, device: torch.device) -> None:
    """Nine or more dimensions to keep, to reduce, or both, permuted so that no two can be merged."""
    values = torch.randn([2] * 19, generator=torch.Generator().manual_seed(0))
    shuffled = values.permute(*range(0, 19, 2), *range(1, 19, 2))
    for dims in (tuple(range(0, 19, 2)), (3, 12), tuple(set(range(19)) - {4, 11})):
        with NoFallback():
            actual = REDUCTIONS[name](mirror(shuffled, device), dims)
        if name in ("any", "argmax"):
            assert_same(actual, REDUCTIONS[name](shuffled, dims))
        else:
            assert_near_exact(actual, REDUCTIONS[name](shuffled, dims), REDUCTIONS[name](shuffled.double(), dims))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("name", OPS)
def test_layouts(name: str, dtype: torch.dtype, device: torch.device) -> None:
    if dtype.is_complex and name in UNORDERED:
        pytest.skip("complex numbers have no order")
    for make in LAYOUTS.values():
        given = make(dtype)
        if name == "index_select" and given.numel() == 0:
            continue
        expected = OPS[name](given)
        with NoFallback():
            actual = OPS[name](mirror(given, device))
        assert_same(actual, expected)
        if name != "nonzero":  # the CPU makes its columns contiguous
            assert actual.stride() == expected.stride()


@pytest.mark.parametrize("dtype", [torch.float32, torch.int64, torch.bool], ids=str)
@pytest.mark.parametrize(
    "shapes", [((3, 1, 5), (4, 1)), ((1,), (2, 3)), ((), (4, 5)), ((2, 1, 3, 1), (5, 1, 7))], ids=str
)
def test_broadcast(shapes: tuple, dtype: torch.dtype, device: torch.device) -> None:
    a, b = (numbers(dtype, *shape) for shape in shapes)
    assert_same(a.to(device) + b.to(device), a + b)
    assert_same(torch.where(a.to(device) == b.to(device), a.to(device), b.to(device)), torch.where(a == b, a, b))


@pytest.mark.parametrize("other", [torch.uint8, torch.int64, torch.float16, torch.float64, torch.complex64], ids=str)
@pytest.mark.parametrize("dtype", [torch.bool, torch.int16, torch.bfloat16, torch.float32], ids=str)
def test_promotion(dtype: torch.dtype, other: torch.dtype, device: torch.device) -> None:
    a, b = numbers(dtype, 4, 5), numbers(other, 5)
    assert_same(a.to(device) * b.to(device), a * b)
    assert_same(a.to(device) + 2.5, a + 2.5)
    # The dtype of a 0-d host tensor affects the result's dtype only if it is of a higher category.
    assert_same(a.to(device) + torch.tensor(3, dtype=other), a + torch.tensor(3, dtype=other))


def test_gaps_stay_untouched(device: torch.device) -> None:
    base = torch.full((6, 10), -1.0, device=device)
    view = base[1::2, 2::3]
    torch.add(torch.zeros(3, 3, device=device), 5, out=view)
    expected = torch.full((6, 10), -1.0)
    expected[1::2, 2::3] = 5
    assert_same(base, expected)


def test_out_is_an_input(device: torch.device) -> None:
    a = numbers(torch.float32, 50, 3)
    given = a.to(device)
    torch.mul(given, given, out=given)
    assert_same(given, a * a)
    assert_same(given.t_().add_(1), (a * a).t() + 1)


@pytest.mark.parametrize(
    "write",
    [
        lambda t: torch.add(t[:-1], 1, out=t[1:]),
        lambda t: t.expand(2, *t.shape).add_(1),
        lambda t: t[1:].copy_(t[:-1]),
        lambda t: torch.index_select(t, 0, torch.tensor([1, 0], device=t.device), out=t[:2]),
        lambda t: torch.cat([t[:1], t[2:3]], out=t[1:3]),
    ],
    ids=["out", "expanded", "copy", "index_select", "cat"],
)
def test_overlap_is_refused(write: Callable, device: torch.device) -> None:
    """Refused if the result would depend on the order of writes, with the CPU's message."""
    with pytest.raises(RuntimeError) as on_cpu:
        write(numbers(torch.float32, 8, 2))
    with pytest.raises(RuntimeError) as on_device:
        write(numbers(torch.float32, 8, 2).to(device))
    assert str(on_device.value) == str(on_cpu.value)


# More than 2^16 elements: from this size kernels are specialised for op and dtypes, and take other code paths.
LARGE = {
    "dense": lambda dtype: numbers(dtype, 70001),
    "every_other": lambda dtype: numbers(dtype, 300, 601)[:, ::2],
    "broadcast": lambda dtype: numbers(dtype, 300, 1).expand(300, 257),
    "transposed": lambda dtype: numbers(dtype, 259, 300).t(),
    "ten_dimensions": lambda dtype: numbers(dtype, 2, 3, 2, 3, 2, 3, 2, 3, 8, 9).permute(9, 7, 5, 3, 1, 0, 2, 4, 6, 8),
}


@pytest.mark.parametrize("layout", LARGE)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_large(dtype: torch.dtype, layout: str, device: torch.device) -> None:
    given = LARGE[layout](dtype)
    on_device = mirror(given, device)
    for name in ("clone", "add", "mul_scalar", "to_float16", "flip", "cumsum"):
        if name == "cumsum" and dtype in (torch.float16, torch.bfloat16):
            continue  # the sums are not exact integers in these dtypes
        assert_same(OPS[name](on_device), OPS[name](given))
    if not dtype.is_complex:
        assert_same(OPS["where"](on_device), OPS["where"](given))
        assert_same(on_device.masked_select(on_device > 0), given.masked_select(given > 0))
    index = torch.arange(given.shape[0]).flip(0)[::3]
    assert_same(on_device.index_select(0, index.to(device)), given.index_select(0, index))


@pytest.mark.parametrize("dtype", [*INTEGRAL, torch.float32], ids=str)
def test_large_sort(dtype: torch.dtype, device: torch.device) -> None:
    given = numbers(dtype, 70001)
    values, indices = given.to(device).sort(stable=True)
    expected = given.sort(stable=True)
    assert_same(values, expected.values)
    assert_same(indices, expected.indices)


@pytest.mark.parametrize(
    "fill",
    [
        lambda out: torch.arange(4, out=out),
        lambda out: torch.range(0, 3, out=out),
        lambda out: torch.linspace(0, 3, 4, out=out),
        lambda out: torch.logspace(0, 3, 4, base=2, out=out),
    ],
    ids=["arange", "range", "linspace", "logspace"],
)
@pytest.mark.parametrize("dtype", [torch.float32, torch.int64], ids=str)
@pytest.mark.filterwarnings("ignore:torch.range is deprecated")
def test_sequences_fill_the_shape_of_their_output(fill: Callable, dtype: torch.dtype, device: torch.device) -> None:
    expected, given = torch.zeros(2, 3, dtype=dtype), torch.zeros(2, 3, dtype=dtype, device=device)
    for base in (expected, given):
        assert fill(base.narrow(1, 1, 2)).shape == (2, 2)
    assert_same(given, expected)


def test_two_tensors_may_be_the_same_memory(device: torch.device) -> None:
    base = torch.zeros(4, 3, device=device)
    same, other = torch.empty(0, device=device).set_(base), torch.zeros(4, 3, device=device)
    with NoFallback():
        assert base.is_set_to(same) and same.is_set_to(base)
        assert not base.is_set_to(other) and not base.is_set_to(base[1:]) and not base.is_set_to(base.view(3, 4))
