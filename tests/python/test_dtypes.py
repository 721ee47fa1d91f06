"""Dtypes that few operators take: wide unsigned integers, float8, complex32, and those that only store bits."""

import copy
import io

import pytest
import torch
from op_table import FLOAT8, UNSIGNED

RARE = (*UNSIGNED, *FLOAT8, torch.complex32)
# PyTorch makes tensors of these, and views of them, and no more.
OPAQUE = (torch.uint1, torch.uint7, torch.int3, torch.bits8, torch.bits16, torch.float4_e2m1fn_x2)

pytestmark = pytest.mark.filterwarnings("ignore:ComplexHalf support")


def bits(tensor: torch.Tensor) -> list[int]:
    """The bytes of a tensor's elements."""
    return tensor.cpu().contiguous().view(torch.uint8).flatten().tolist()


@pytest.fixture(autouse=True)
def counted():
    torch.opencl.reset_fallbacks()


@pytest.mark.parametrize("dtype", RARE)
def test_what_is_written_to_a_view_is_in_the_tensor(device, dtype):
    x = torch.zeros(6, dtype=dtype, device=device)
    x[2] = 2
    x.chunk(2)[0][1].copy_(torch.tensor(4.0))
    x.view(2, 3)[1, 1] = 1
    x.as_strided((2,), (3,), 2)[1].fill_(8)
    x.unfold(0, 2, 2)[0, 0] = 2
    assert bits(x) == bits(torch.tensor([2.0, 4, 2, 0, 1, 8]).to(dtype))
    assert x.view(-1).data_ptr() == x.data_ptr() and x[1:].data_ptr() == x.data_ptr() + x.element_size()


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
