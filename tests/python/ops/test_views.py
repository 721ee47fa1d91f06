"""Views share memory with their base, for every dtype; conjugates and negatives are lazy."""

import pytest
import torch
from float64 import computed
from op_table import COMPLEX, DTYPES

EVERY = (*computed(DTYPES["all"]), *DTYPES["unsigned"], *DTYPES["float8"], *DTYPES["c32"])
WITH_C32 = (*computed(COMPLEX), torch.complex32)

VIEWS = {
    "alias": torch.ops.aten.alias,
    "as_strided": lambda x: x.as_strided((2, 3), (1, 4), 2),
    "as_strided with negated sizes": lambda x: x.as_strided((3,), (0,), 1),
    "chunk": lambda x: x.chunk(2, 1),
    "detach": lambda x: x.detach(),
    "diagonal": lambda x: x.diagonal(1, 0, 1),
    "expand": lambda x: x.unsqueeze(0).expand(3, -1, -1),
    "expand_as": lambda x: x[:, :1].expand_as(x),
    "flatten": lambda x: x.flatten(),
    "hsplit": lambda x: x.hsplit(2),
    "indexing": lambda x: (x[1], x[..., None], x[1:3, ::2], x[-1, 2]),
    "movedim": lambda x: x.movedim(0, 1),
    "mH of real and mT": lambda x: x.mT,
    "narrow": lambda x: x.narrow(1, 1, 2),
    "permute": lambda x: x.permute(1, 0),
    "ravel": lambda x: x.ravel(),
    "reshape": lambda x: x.reshape(2, 12),
    "reshape of a transposed tensor": lambda x: x.t().reshape(6, 2, 2),
    "select": lambda x: x.select(0, 1),
    "slice": lambda x: x[::2, 1:5:2],
    "split": lambda x: x.split([1, 3]),
    "split_with_sizes": lambda x: x.split_with_sizes([2, 4], 1),
    "squeeze": lambda x: (x.unsqueeze(0).squeeze(), x.unsqueeze(1).squeeze(1), x.unsqueeze(1).squeeze((0, 1))),
    "swapaxes": lambda x: x.swapaxes(0, 1),
    "t": lambda x: x.t(),
    "tensor_split": lambda x: x.tensor_split(3),
    "transpose": lambda x: x.transpose(0, 1),
    "unbind": lambda x: x.unbind(1),
    "unflatten": lambda x: x.unflatten(1, (2, 3)),
    "unfold": lambda x: x.unfold(1, 3, 2),
    "unsafe_split": lambda x: x.split(2),
    "unsqueeze": lambda x: x.unsqueeze(-1),
    "view": lambda x: x.view(3, 8),
    "view as the same dtype": lambda x: x.view(x.dtype),
    "view as bytes": lambda x: x.view(torch.uint8),
    "view_as": lambda x: x.view_as(x.new_empty(24)),
    "vsplit": lambda x: x.vsplit(2),
}


def filled(dtype: torch.dtype) -> torch.Tensor:
    """A matrix of any dtype, with all bytes different."""
    size = dtype.itemsize
    data = torch.arange(24 * size, dtype=torch.uint8)
    return (data % 2).bool().view(4, 6) if dtype == torch.bool else data.view(dtype).view(4, 6)


def same_numbers(ours: torch.Tensor, theirs: torch.Tensor) -> bool:
    """Compare tensors; the CPU cannot compare complex32."""
    a, b = (tensor.cpu().to(torch.complex128) for tensor in (ours, theirs))
    return torch.equal(a.resolve_conj().resolve_neg(), b.resolve_conj().resolve_neg())


def raw(tensor: torch.Tensor) -> list:
    """The bytes of a tensor, which compare equal also for NaN."""
    return tensor.cpu().contiguous().view(-1).view(torch.uint8).tolist()


@pytest.mark.parametrize("dtype", EVERY, ids=str)
@pytest.mark.parametrize("name", VIEWS)
def test_views_share_memory(device: torch.device, dtype: torch.dtype, name: str) -> None:
    base = filled(dtype)
    on_device = base.to(device)
    storage = on_device.untyped_storage().data_ptr()
    torch.opencl.reset_fallbacks()
    launched = torch.ops.torch_opencl.launches()
    ours, theirs = VIEWS[name](on_device), VIEWS[name](base)
    assert torch.ops.torch_opencl.launches() == launched, "a view launches no kernel"
    assert not torch.opencl.fallbacks()
    single = isinstance(ours, torch.Tensor)
    for view, expected in zip([ours] if single else ours, [theirs] if single else theirs, strict=True):
        assert view.untyped_storage().data_ptr() == storage
        assert view.data_ptr() - storage == expected.data_ptr() - base.data_ptr()
        assert (view.shape, view.stride(), view.dtype) == (expected.shape, expected.stride(), expected.dtype)
        assert raw(view) == raw(expected)


@pytest.mark.parametrize("dtype", WITH_C32, ids=str)
def test_conjugates_and_parts_of_complex_numbers_are_lazy(device: torch.device, dtype: torch.dtype) -> None:
    values = torch.complex(torch.arange(6.0), torch.arange(6.0) - 2).view(2, 3).to(dtype)
    base = values.to(device)
    views = {
        "conj": lambda x: x.conj(),
        "mH": lambda x: x.mH,
        "adjoint": lambda x: x.adjoint(),
        "real": lambda x: x.real,
        "imag": lambda x: x.imag,
        "imag of conj": lambda x: x.conj().imag,
        "real of conj": lambda x: x.conj().real,
        "view_as_real": torch.view_as_real,
        "conj of conj": lambda x: x.conj().conj(),
        "_neg_view": torch._neg_view,
        "view_as_complex": lambda x: torch.view_as_complex(torch.view_as_real(x)),
    }
    for name, view in views.items():
        torch.opencl.reset_fallbacks()
        launched = torch.ops.torch_opencl.launches()
        ours, theirs = view(base), view(values)
        assert torch.ops.torch_opencl.launches() == launched, name
        assert not torch.opencl.fallbacks(), name
        assert ours.untyped_storage().data_ptr() == base.untyped_storage().data_ptr(), name
        assert (ours.is_conj(), ours.is_neg()) == (theirs.is_conj(), theirs.is_neg()), name
        assert same_numbers(ours, theirs), name
        assert not torch.opencl.fallbacks(), name


@pytest.mark.parametrize("dtype", WITH_C32, ids=str)
def test_lazy_conjugates_are_read_and_written(device: torch.device, dtype: torch.dtype) -> None:
    values = torch.complex(torch.arange(6.0), torch.arange(6.0) - 2).view(2, 3).to(dtype)
    torch.opencl.reset_fallbacks()
    base = values.to(device)
    target = values.clone().to(device)
    target.conj().copy_(base)
    assert same_numbers(target, values.conj())
    target = base.clone()
    target.conj().imag.fill_(3)
    assert torch.equal(target.imag.cpu(), torch.full((2, 3), -3, dtype=values.real.dtype))
    for compute in (lambda x: x.conj() + x, lambda x: x.conj() * 2, lambda x: x.imag + 1, lambda x: -x.conj()):
        torch.testing.assert_close(compute(base).cpu(), compute(values))
    for resolve in (torch.resolve_conj, torch.resolve_neg, torch.conj_physical):
        assert same_numbers(resolve(base.conj()), resolve(values.conj()))
    assert not torch.opencl.fallbacks()


@pytest.mark.parametrize("dtype", (torch.float32, torch.float16, torch.complex64, torch.int32), ids=str)
def test_writes_to_views_change_the_base(device: torch.device, dtype: torch.dtype) -> None:
    for name in ("diagonal", "expand", "slice", "transpose", "select", "view"):
        base = torch.arange(24).view(4, 6).to(dtype)
        on_device = base.to(device)
        for tensor in (base, on_device):
            # Writes only one repetition of an expanded tensor.
            VIEWS[name](tensor)[0].mul_(2)
        assert torch.equal(on_device.cpu(), base), name
