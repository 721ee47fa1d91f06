"""Copies: between host and device, on a device, between two devices; casts, layouts, broadcasts."""

import itertools

import numpy as np
import pytest
import torch
from float64 import computed
from op_table import covers
from processes import output_of, two_devices

DTYPES = [
    torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64,
    torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.complex64,
]  # fmt: skip
LAYOUTS = {
    "contiguous": lambda: torch.arange(120) - 60,
    "transposed": lambda: (torch.arange(120) - 60).view(2, 3, 4, 5).permute(3, 1, 0, 2),
    "channels_last": lambda: (torch.arange(120) - 60).view(2, 3, 4, 5).to(memory_format=torch.channels_last),
    "stepped": lambda: (torch.arange(480) - 60).view(4, 6, 20)[1::2, ::3, 5::2],
    "expanded": lambda: torch.arange(5).view(5, 1).expand(5, 4),
    "scalar": lambda: torch.tensor(7),
    "empty": lambda: torch.empty(3, 0, dtype=torch.int64),
}
DIRECTIONS = list(itertools.product(["cpu", "opencl"], repeat=2))[1:]


def values(layout: str, dtype: torch.dtype) -> torch.Tensor:
    """Small integers in any dtype, with the strides of a layout."""
    made = LAYOUTS[layout]()
    return made.abs().to(dtype) if dtype in (torch.uint8, torch.bool) else made.to(dtype)


@pytest.mark.parametrize(("origin", "target"), DIRECTIONS)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_every_cast_of_every_layout(layout, origin, target):
    for source_dtype, target_dtype in itertools.product(computed(DTYPES), computed(DTYPES)):
        if source_dtype.is_complex and not target_dtype.is_complex:
            continue
        source = values(layout, source_dtype)
        if target_dtype == torch.uint8 and source_dtype != torch.bool:
            source = source.abs()
        copied = source.to(origin).to(target, target_dtype)
        assert copied.dtype == target_dtype and copied.device.type == target
        assert copied.cpu().equal(source.to(target_dtype)), (source_dtype, target_dtype)


@pytest.mark.parametrize(("origin", "target"), DIRECTIONS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.int16])
def test_a_copy_broadcasts_into_strided_memory(origin, target, dtype):
    source = torch.arange(4).view(4, 1).to(origin)
    base = torch.full((2, 5, 4), -1, dtype=dtype, device=target)
    base.transpose(1, 2)[:, :, ::2].copy_(source)
    expected = torch.full((2, 5, 4), -1, dtype=dtype)
    expected.transpose(1, 2)[:, :, ::2].copy_(source.cpu())
    assert base.cpu().equal(expected)


@pytest.mark.parametrize(("origin", "target"), DIRECTIONS)
def test_shapes_that_do_not_broadcast_are_refused(origin, target):
    with pytest.raises(RuntimeError, match=r"\[2, 3\]|size"):
        torch.zeros(2, 3, device=target).copy_(torch.zeros(4, device=origin))
    with pytest.raises(RuntimeError, match=r"\[2, 3\]|size"):
        torch.zeros(2, 3, device=target).copy_(torch.zeros(0, 3, device=origin))


@pytest.mark.parametrize("layout", LAYOUTS)
def test_strides_survive_the_way_there_and_back(device, layout):
    source = values(layout, torch.float32)
    there = source.to(device)
    assert there.stride() == source.to(torch.float64).stride()
    assert there.cpu().stride() == there.stride()


def test_channels_last(device):
    source = torch.randn(2, 3, 4, 5)
    there = source.to(device, memory_format=torch.channels_last)
    assert there.is_contiguous(memory_format=torch.channels_last)
    assert there.cpu().equal(source)
    assert there.contiguous().cpu().is_contiguous()
    assert there.half().is_contiguous(memory_format=torch.channels_last)


@pytest.mark.parametrize("pinned", [False, True])
def test_non_blocking(device, pinned):
    source = torch.randn(100_000)
    source = source.pin_memory() if pinned else source
    there = source.to(device, non_blocking=True)
    back = torch.empty(100_000, pin_memory=pinned)
    back.copy_(there * 2, non_blocking=True)
    torch.opencl.synchronize()
    assert back.equal(source * 2)


def test_pinned_memory_is_not_reused_while_a_copy_reads_it(device):
    copies = []
    for value in range(20):
        source = torch.full((100_000,), float(value), pin_memory=True)
        copies.append(source.to(device, non_blocking=True))
        del source
    assert [copy[-1].item() for copy in copies] == list(range(20))


@pytest.mark.parametrize(("origin", "target"), DIRECTIONS)
def test_lazy_conjugates_and_negatives_are_resolved(origin, target):
    source = torch.randn(3, 4, dtype=torch.complex64)
    conjugate = source.to(origin).conj()
    assert conjugate.to(target).cpu().resolve_conj().equal(source.conj().resolve_conj())
    into = torch.empty(4, 3, dtype=torch.complex64, device=target).t().conj()
    into.copy_(source.to(origin))
    assert into.cpu().resolve_conj().equal(source)
    negative = conjugate.imag
    assert negative.is_neg()
    assert negative.to(target, copy=True).cpu().resolve_neg().equal(-source.imag)
    assert torch.empty(3, 4, device=target).copy_(negative).cpu().equal(-source.imag)


@pytest.mark.filterwarnings("ignore:Casting complex values to real")
def test_copies_of_complex_to_real_keep_the_real_part(device):
    source = torch.randn(5, dtype=torch.complex64)
    assert source.to(device).to(torch.float32).cpu().equal(source.real)
    assert torch.empty(5, device=device).copy_(source).cpu().equal(source.real)


def test_numpy_round_trip(device):
    array = np.arange(12, dtype=np.float64).reshape(3, 4)[::2, ::-1].copy()
    assert np.array_equal(torch.from_numpy(array).to(device).cpu().numpy(), array)
    assert torch.tensor(array, device=device).tolist() == array.tolist()
    assert torch.as_tensor(np.int16(5), device=device).item() == 5
    with pytest.raises(TypeError, match="cpu"):
        torch.ones(1, device=device).numpy()


def test_copies_do_not_alias(device):
    source = torch.zeros(4, device=device)
    copy, same = source.clone(), source.to(device)
    source.fill_(1)
    assert copy.cpu().tolist() == [0, 0, 0, 0]
    assert same.data_ptr() == source.data_ptr()
    assert source.copy_(source) is source


def test_overlapping_memory_is_refused_as_on_the_cpu(device):
    tensor = torch.arange(6.0, device=device)
    with pytest.raises(RuntimeError, match=r"single memory location|overlap"):
        tensor[1:].copy_(tensor[:-1])
    with pytest.raises(RuntimeError, match="single memory location"):
        torch.zeros(1, device=device).expand(4).copy_(torch.ones(4, device=device))


def test_item_of_every_dtype(device):
    for dtype in DTYPES:
        assert torch.tensor(1, dtype=dtype, device=device).item() == 1
    assert torch.arange(5, device=device)[3].item() == 3
    assert int(torch.tensor([4], device=device)) == 4
    assert bool(torch.tensor(True, device=device))
    assert torch.tensor(1 - 2j, device=device).conj().item() == 1 + 2j
    with pytest.raises(RuntimeError):
        torch.empty(0, device=device).item()


def test_printing(device):
    assert repr(torch.tensor([1.5, 2.0], device=device)) == f"tensor([1.5000, 2.0000], device='{device}')"
    assert "size=(0, 2)" in repr(torch.empty(0, 2, device=device))


def test_two_devices():
    code = """
        import torch
        first, second = torch.device("opencl:0"), torch.device("opencl:1")
        source = torch.randn(5, 1, 7)
        for dtype in (torch.float32, torch.float16, torch.int64):
            there = source.to(first).transpose(0, 2).to(second, dtype)
            assert there.device == second
            assert there.cpu().equal(source.transpose(0, 2).to(dtype))
            wide = torch.zeros(5, 3, 7, dtype=dtype, device=second)
            wide.copy_(source.to(first))
            assert wide.cpu().equal(source.to(dtype).expand(5, 3, 7))
        with torch.opencl.device(second):
            assert torch.ones(1, device="opencl").device == second
            stream = torch.opencl.Stream()
            assert stream.device == second and torch.opencl.current_stream(first).device == first
        assert torch.opencl.current_device() == 0
        big = torch.arange(20_000_000, device=first, dtype=torch.int32)
        assert big.to(second).to(first).equal(big)
        try:
            torch.ones(2, device=first) + torch.ones(2, device=second)
        except RuntimeError as error:
            assert "opencl:0" in str(error) and "opencl:1" in str(error), error
        else:
            raise AssertionError("tensors of two devices were added")
        event = torch.opencl.current_stream(first).record_event()
        torch.opencl.current_stream(second).wait_event(event)
        assert torch.opencl.memory_allocated(first) > 0
        torch.manual_seed(3)
        assert torch.rand(9, device=first).cpu().equal(torch.rand(9, device=second).cpu())
        print("ok")
    """
    assert output_of(code, **two_devices()) == "ok"


# Sides below, equal to and above block sizes; one block and a remainder; more than a tile.
@pytest.mark.parametrize("shape", [(15, 40), (16, 16), (33, 47), (3, 40, 35), (2, 5, 40, 3, 33), (150, 300)], ids=str)
@pytest.mark.parametrize("dtype", [*DTYPES, torch.complex128], ids=str)
def test_transposed_copies(shape, dtype, device):
    source = (torch.arange(torch.Size(shape).numel()) % 251).view(shape).to(dtype)
    ours = source.to(device)
    for dims in itertools.combinations(range(len(shape)), 2):
        assert ours.transpose(*dims).contiguous().cpu().equal(source.transpose(*dims).contiguous())
    rows, columns = shape[-2:]
    # Slices with an offset and gaps, whose surroundings must not be written.
    for taken in ((..., slice(1, None), slice(2, None)), (..., slice(None, None, 2), slice(None))):
        part = source[taken].mT
        frame = torch.zeros(*part.shape[:-2], columns + 2, rows + 3, dtype=dtype)
        expected, actual = frame.clone(), frame.to(device)
        expected[..., 1 : 1 + part.size(-2), 3 : 3 + part.size(-1)] = part
        actual[..., 1 : 1 + part.size(-2), 3 : 3 + part.size(-1)] = ours[taken].mT
        assert actual.cpu().equal(expected)


def test_a_transposed_copy_of_conjugates(device):
    source = torch.complex(torch.arange(1600.0), -torch.arange(1600.0)).view(40, 40)
    ours = source.to(device)
    assert ours.mH.contiguous().cpu().equal(source.mH.contiguous())
    assert ours.mH.resolve_conj().cpu().equal(source.mH.resolve_conj())


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int64, torch.bool], ids=str)
@pytest.mark.parametrize("offset", [0, 1, 64])
def test_results_too_large_for_caches(offset, dtype, device):
    # More than 16 MB each, and lengths that are not a whole number of vectors.
    count = (17 << 20) // dtype.itemsize + 5
    source = (torch.arange(count) % 97).to(dtype)
    base = torch.zeros(count + 2 * offset, dtype=dtype, device=device)
    inner = base[offset : offset + count]
    inner.copy_(source.to(device))
    assert inner.cpu().equal(source)
    inner.copy_(source.float().to(device))
    assert inner.cpu().equal(source)
    inner.fill_(1)
    assert inner.eq(1).all() and not base[:offset].any() and not base[offset + count :].any()
    columns = source[: 4096 * (count // 4096)].view(4096, -1)
    assert columns.to(device).t().contiguous().cpu().equal(columns.t().contiguous())


@covers("narrow_copy")
def test_narrow_copies_into_out(device: torch.device) -> None:
    x = torch.arange(24).reshape(4, 6)
    for dim, start, length in ((0, 1, 2), (1, -3, 3), (1, 6, 0)):
        out = torch.empty(0, dtype=torch.int64, device=device)
        assert torch.equal(
            torch.narrow_copy(x.to(device), dim, start, length, out=out).cpu(), x.narrow(dim, start, length)
        )
        assert torch.equal(out.cpu(), x.narrow(dim, start, length))
        assert torch.equal(torch.narrow_copy(x.t().to(device), dim, 0, 1).cpu(), x.t().narrow(dim, 0, 1))


@pytest.mark.parametrize("dtype", computed([torch.uint8, torch.bfloat16, torch.float32, torch.complex128]), ids=str)
def test_large_slices_and_repeated_elements(dtype: torch.dtype) -> None:
    """Rows, single elements, and several positions of a repeated dimension, to and from slices."""
    x = torch.randint(100, (300, 521), generator=torch.Generator().manual_seed(0)).to(dtype)

    def written(x: torch.Tensor, source: torch.Tensor) -> torch.Tensor:
        target = x.new_zeros(302, 1043)
        target[1:-1, 2::2].copy_(source)
        return target

    copies = (
        lambda x: x[:, 3:500].contiguous(),
        lambda x: x[::2, ::3].contiguous(),
        lambda x: x.repeat_interleave(3, 1),
        lambda x: x.repeat_interleave(2, 0),
        lambda x: x[:, None, :, None].expand(300, 2, 521, 2).contiguous(),
        lambda x: x.mT[:, None, 3:].expand(521, 16, 297).contiguous(),
        lambda x: x.view(-1).unfold(0, 64, 1)[:5000].contiguous(),
        lambda x: torch.stack([x, x + x, x], -1),
        lambda x: written(x, x),
        lambda x: written(x, x[:1]),
        lambda x: written(x, x.mT.contiguous().mT),
    )
    for copy in copies:
        assert torch.equal(copy(x.to("opencl")).cpu(), copy(x))
