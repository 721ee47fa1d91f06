"""Dtypes that few operators support: wide unsigned integers, float8, complex32, and those that only store bits."""

import copy
import io

import pytest
import torch
from float64 import computed
from op_table import FLOAT8, UNSIGNED

RARE = (*UNSIGNED, *FLOAT8, torch.complex32)
# PyTorch supports only creating tensors of these, and views of them.
OPAQUE = (torch.uint1, torch.uint7, torch.int3, torch.bits8, torch.bits16, torch.float4_e2m1fn_x2)

pytestmark = pytest.mark.filterwarnings("ignore:ComplexHalf support")


def bits(tensor: torch.Tensor) -> list[int]:
    """The bytes of a tensor's elements."""
    return tensor.cpu().contiguous().view(torch.uint8).flatten().tolist()


@pytest.fixture(autouse=True)
def counted():
    torch.opencl.reset_fallbacks()


@pytest.mark.parametrize("dtype", RARE)
def test_writes_to_a_view_change_the_base_tensor(device, dtype):
    x = torch.zeros(6, dtype=dtype, device=device)
    x[2] = 2
    x.chunk(2)[0][1].copy_(torch.tensor(4.0))
    x.view(2, 3)[1, 1] = 1
    x.as_strided((2,), (3,), 2)[1].fill_(8)
    x.unfold(0, 2, 2)[0, 0] = 2
    assert bits(x) == bits(torch.tensor([2.0, 4, 2, 0, 1, 8]).to(dtype))
    assert x.view(-1).data_ptr() == x.data_ptr() and x[1:].data_ptr() == x.data_ptr() + x.element_size()
    assert torch.opencl.fallbacks() == {}


@pytest.mark.parametrize("dtype", OPAQUE)
def test_views_and_sizes_of_dtypes_without_operators(device, dtype):
    x = torch.empty(4, 2, dtype=dtype, device=device)
    assert x.view(8)[2:].data_ptr() == x.data_ptr() + 2 * x.element_size()
    assert x.t().shape == (2, 4)
    assert torch.empty_strided((2, 2), (1, 2), dtype=dtype, device=device).stride() == (1, 2)
    assert x.resize_(3).shape == (3,) and torch.empty(0, dtype=dtype, device=device).set_(x).shape == (3,)
    assert torch.opencl.fallbacks() == {}


def test_parts_of_half_complex_numbers_are_views(device):
    x = torch.zeros(3, dtype=torch.complex32, device=device)
    torch.view_as_real(x)[1, 0] = 3
    x.imag[2] = 4
    assert x.cpu().to(torch.complex64).tolist() == [0, 3, 4j]
    pairs = torch.zeros(2, 2, dtype=torch.float16, device=device)
    torch.view_as_complex(pairs)[1] = 1 + 2j
    assert pairs.tolist() == [[0, 0], [1, 2]]


@pytest.mark.parametrize("dtype", RARE)
def test_copies_pickles_and_growth(device, dtype):
    x = torch.tensor([1.0, 2.0, 4.0]).to(dtype).to(device)
    expected = bits(x)
    file = io.BytesIO()
    torch.save(x, file)
    file.seek(0)
    for copied in (copy.deepcopy(x), torch.load(file), x.clone(), torch.empty(0, dtype=dtype, device=device).set_(x)):
        assert copied.device == device and copied.dtype == dtype and bits(copied) == expected
    assert bits(x.resize_(5)[:3]) == expected


@pytest.mark.parametrize("dtype", (torch.float8_e4m3fn, torch.float8_e5m2))
def test_a_cache_of_keys_fills(device, dtype):
    cache, keys = torch.zeros(2, 8, 4, dtype=dtype, device=device), torch.randn(2, 2, 4)
    for place in range(0, 8, 2):
        cache[:, place : place + 2].copy_(keys.to(device))
    assert bits(cache) == bits(keys.repeat(1, 4, 1).to(dtype))


def edge_numbers() -> torch.Tensor:
    """Float32 values around every float8 code: its value, midpoints between codes, and the neighbours of these."""
    codes = torch.arange(256).to(torch.uint8)
    exact = torch.cat([codes.view(dtype).to(torch.float32) for dtype in FLOAT8])
    exact = exact[exact.isfinite()].unique()
    ties = (exact[1:] + exact[:-1]) / 2
    edges = torch.cat([exact, ties])
    up, down = torch.full((), torch.inf), torch.full((), -torch.inf)
    torch.manual_seed(0)
    spread = torch.randn(5000) * torch.exp2(torch.randint(-30, 20, (5000,)))
    rest = torch.tensor([0.0, -0.0, torch.inf, -torch.inf, torch.nan, 3e38, -3e38, 1e-40, -1e-40, 2.0**-133, 2.0**-149])
    return torch.cat([edges, edges.nextafter(up), edges.nextafter(down), spread, rest])


@pytest.mark.parametrize("dtype", FLOAT8)
def test_float8_rounds_and_saturates_as_on_the_cpu(device, dtype):
    numbers = edge_numbers()
    assert bits(numbers.to(device).to(dtype)) == bits(numbers.to(dtype))
    for source in computed((torch.float64, torch.float16, torch.bfloat16)):
        assert bits(numbers.to(source).to(device).to(dtype)) == bits(numbers.to(source).to(dtype))
    whole = torch.arange(-600, 600)
    assert bits(whole.to(device).to(dtype)) == bits(whole.to(dtype))
    assert torch.opencl.fallbacks() == {}


@pytest.mark.parametrize("dtype", FLOAT8)
def test_every_float8_code_has_the_right_value(device, dtype):
    here = torch.arange(256).to(torch.uint8).view(dtype)
    there = here.to(device)
    for target in computed((torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.complex64, *FLOAT8)):
        actual, expected = there.to(target).cpu(), here.to(target)
        if target not in FLOAT8:
            torch.testing.assert_close(actual, expected, rtol=0, atol=0, equal_nan=True)
        else:
            assert bits(actual) == bits(expected)
    assert bits(there.clone()) == bits(here) and bits(there[::3].contiguous()) == bits(here[::3])
    assert torch.equal((there == there.clone()).cpu(), here == here.clone())
    assert torch.opencl.fallbacks() == {}


WIDE = [0, 1, 255, 65535, 65536, 2**31, 2**32 - 1, 2**53 + 1, 2**63 - 1, 2**63, 2**63 + 1, 2**64 - 1]


@pytest.mark.parametrize("dtype", UNSIGNED)
def test_unsigned_integers_of_every_size(device, dtype):
    values = [value for value in WIDE if value <= torch.iinfo(dtype).max]
    here = torch.tensor(values, dtype=dtype)
    there = here.to(device)
    assert there.tolist() == values and [number.item() for number in there] == values
    targets = (*UNSIGNED, torch.int64, torch.int8, torch.bool, torch.float16, torch.float32, torch.float64)
    for target in computed(targets):
        torch.testing.assert_close(there.to(target).cpu(), here.to(target), rtol=0, atol=0)
    for source in computed((torch.float32, torch.float64, torch.int64)):
        numbers = torch.tensor([0, 1, 254.7, 65535, 2.0**31, 2.0**32, 2.0**62]).to(source)
        assert bits(numbers.to(device).to(dtype)) == bits(numbers.to(dtype))
    assert torch.full((3,), values[-1], dtype=dtype, device=device).tolist() == [values[-1]] * 3
    modulus = values[-1] + 1
    others = list(reversed(values))
    a, b = there, torch.tensor(others, dtype=dtype).to(device)
    assert (a + b).tolist() == [(x + y) % modulus for x, y in zip(values, others, strict=True)]
    assert (a - b).tolist() == [(x - y) % modulus for x, y in zip(values, others, strict=True)]
    assert (a * b).tolist() == [(x * y) % modulus for x, y in zip(values, others, strict=True)]
    assert (a & b).tolist() == [x & y for x, y in zip(values, others, strict=True)]
    assert (a ^ b).tolist() == [x ^ y for x, y in zip(values, others, strict=True)]
    assert (a < b).tolist() == [x < y for x, y in zip(values, others, strict=True)]
    assert (a >= b).tolist() == [x >= y for x, y in zip(values, others, strict=True)]
    assert (a == values[-1]).tolist() == [x == values[-1] for x in values]
    assert torch.where(a > b, a, b).tolist() == [max(x, y) for x, y in zip(values, others, strict=True)]
    torch.testing.assert_close((a / b[:1]).cpu(), here / here[-1:])
    assert (there == here.to(device)).all() and not (there != here.to(device)).any()
    if dtype is not torch.uint64:
        sums = torch.add(a, b, out=torch.empty_like(a, dtype=torch.int64))
        assert sums.tolist() == [(x + y) % modulus for x, y in zip(values, others, strict=True)]
    assert torch.opencl.fallbacks() == {}


def test_half_complex_numbers_and_their_gradients(device):
    torch.manual_seed(0)
    a, b = (torch.randn(70, dtype=torch.complex64).to(torch.complex32) for _ in range(2))

    def grads(a: torch.Tensor, b: torch.Tensor) -> list[torch.Tensor]:
        a, b = a.clone().requires_grad_(), b.clone().requires_grad_()
        result = torch.where(a.abs() > 1, a * b - b.conj(), a + 2)[3:].chunk(2)[1]
        torch.view_as_real(result)[..., 0].backward(torch.arange(33.0).half().to(a.device)[: len(result)])
        return [result.detach(), a.grad, b.grad]

    for actual, expected in zip(grads(a.to(device), b.to(device)), grads(a, b), strict=True):
        assert actual.dtype == torch.complex32 and not (expected == 0).all()
        torch.testing.assert_close(actual.cpu().cfloat(), expected.cfloat(), rtol=1e-3, atol=1e-5)
    there = a.to(device)
    assert bits(there.conj().clone()) == bits(a.conj().clone()) and bits(torch._neg_view(there).clone()) == bits(-a)
    assert (there == a.to(device)).all() and not (there != there.clone()).any()
    assert bits(torch.complex(there.real, there.imag)) == bits(a)


@pytest.mark.parametrize("dtype", RARE)
def test_elements_move_and_print_in_every_dtype(device, dtype):
    here = torch.tensor([1.0, 2.0, 4.0, 8.0, 16.0, 32.0]).to(dtype)
    there, places = here.to(device), torch.tensor([4, 0, 4])
    mask = torch.tensor([True, False, False, True, True, False])
    pairs = (
        (torch.cat([there, there[:2]]), torch.cat([here, here[:2]])),
        (torch.stack([there, there]), torch.stack([here, here])),
        (there[places.to(device)], here[places]),
        (there[mask.to(device)], here[mask]),
        (there.view(2, 3).t().contiguous(), here.view(2, 3).t().contiguous()),
        (torch.where(mask.to(device), there, there[:1]), torch.where(mask, here, here[:1])),
        (torch.zeros_like(there), torch.zeros_like(here)),
        (torch.full((3,), 2, dtype=dtype, device=device), torch.full((3,), 2, dtype=dtype)),
        (torch.ones(3, dtype=dtype, device=device), torch.ones(3, dtype=dtype)),
        (there == 4, here == 4),
        (there.isnan(), here.isnan()),
    )
    for actual, expected in pairs:
        assert actual.device == device and bits(actual) == bits(expected)
    assert torch.opencl.fallbacks() == {}
    # The longer device name may wrap the dtype to another line.
    assert str(there).split() == str(here).replace("dtype", f"device='{device}', dtype").split()


@pytest.mark.parametrize("dtype", RARE)
def test_elements_are_written_by_index_in_every_dtype(device, dtype):
    def written(cache: torch.Tensor, values: torch.Tensor) -> list[torch.Tensor]:
        places, mask = (torch.tensor(data, device=cache.device) for data in ([4, 0, 2], [[True], [False], [True]]))
        by_index = cache.clone()
        by_index[:, places] = values
        by_mask = cache.clone()
        by_mask[mask.expand_as(by_mask)] = 4
        summed = cache.clone().index_put_((places[1:],), values[:2, :1], accumulate=True)
        columns = places.expand(3, 3)
        return [
            by_index,
            by_mask,
            summed,
            cache.index_copy(1, places, values),
            cache.index_fill(1, places, 2),
            cache.scatter(1, columns, values),
            cache.scatter(1, columns, 8),
            cache.clone().put_(places, values[0]),
            cache.take(places),
        ]

    cache, values = (torch.arange(1.0, size).to(dtype).view(3, -1) for size in (19, 10))
    # The CPU supports few of these operators in these dtypes.
    wide = torch.complex64 if dtype.is_complex else torch.float32
    actuals = written(cache.to(device), values.to(device))
    for actual, expected in zip(actuals, written(cache.to(wide), values.to(wide)), strict=True):
        assert actual.device == device and bits(actual) == bits(expected.to(dtype))
    assert torch.opencl.fallbacks() == {}


@pytest.mark.parametrize("dtype", UNSIGNED)
def test_new_memory_of_deterministic_programs_is_filled(device, dtype):
    torch.use_deterministic_algorithms(True)
    try:
        made = torch.empty(3, dtype=dtype, device=device), torch.empty(0, dtype=dtype, device=device).resize_(2)
    finally:
        torch.use_deterministic_algorithms(False)
    assert [tensor.tolist() for tensor in made] == [[torch.iinfo(dtype).max] * 3, [torch.iinfo(dtype).max] * 2]


def test_complex32_is_counted_summed_at_indices_and_drawn(device):
    values = torch.complex(torch.arange(6.0) % 3, torch.arange(6.0) - 3).view(2, 3).to(torch.complex32)
    x, index = values.to(device), torch.tensor([1, 1])
    assert torch.equal(x.nonzero().cpu(), values.nonzero())
    assert torch.equal(torch.nonzero_static(x, size=8).cpu(), torch.nonzero_static(values, size=8))
    summed = x.clone().index_add_(0, index.to(device), x, alpha=2)
    expected = values.to(torch.complex64).index_add_(0, index, values.to(torch.complex64), alpha=2)
    torch.testing.assert_close(summed.cpu().to(torch.complex64), expected)
    for order in (1, 2, float("inf")):
        norm = torch.linalg.vector_norm(x, order)
        torch.testing.assert_close(norm.cpu(), torch.linalg.vector_norm(values, order))
    drawn = torch.randn(20000, dtype=torch.complex32, device=device).to(torch.complex64)
    assert abs(drawn.real.var().item() - 0.5) < 0.03 and abs(drawn.imag.var().item() - 0.5) < 0.03
    assert torch.opencl.fallbacks() == {}
