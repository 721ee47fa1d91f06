"""Fourier transforms of complex tensors; device_class_cases.py has the kernels that they take on GPUs."""

import os

import pytest
import torch
from float64 import computed
from op_table import covers

NORMS = ("backward", "ortho", "forward")


@covers("_fft_c2c", "_fft_c2c.out")
@pytest.mark.parametrize("dtype", computed([torch.complex64, torch.complex128]), ids=str)
@pytest.mark.parametrize(("shape", "dim"), [((64,), 0), ((3, 16, 5), 1), ((4, 12), -1), ((2, 1), 1)])
def test_transforms_and_their_inverses_are_those_of_the_cpu(device, shape, dim, dtype):
    x = torch.randn(shape, dtype=dtype, generator=torch.Generator().manual_seed(0))
    for transform in (torch.fft.fft, torch.fft.ifft):
        for norm in NORMS:
            result = transform(x.to(device), dim=dim, norm=norm)
            assert result.device == device
            torch.testing.assert_close(result.cpu(), transform(x, dim=dim, norm=norm))


def test_several_dimensions_other_layouts_and_gradients(device):
    x = torch.randn(4, 8, 16, dtype=torch.complex64, generator=torch.Generator().manual_seed(1))
    torch.testing.assert_close(torch.fft.fftn(x.to(device)).cpu(), torch.fft.fftn(x))
    torch.testing.assert_close(torch.fft.fft2(x.to(device).mT.conj()).cpu(), torch.fft.fft2(x.mT.conj()))
    leaves = [x.detach().clone().to(where).requires_grad_() for where in ("cpu", device)]
    for leaf in leaves:
        torch.fft.ifft(torch.fft.fft(leaf, norm="ortho") * leaf).abs().sum().backward()
    torch.testing.assert_close(leaves[1].grad.cpu(), leaves[0].grad)


def test_the_result_is_stored_in_out(device):
    x, out = torch.randn(8, dtype=torch.complex64), torch.empty(0, dtype=torch.complex64, device=device)
    assert torch.fft.fft(x.to(device), out=out) is out
    torch.testing.assert_close(out.cpu(), torch.fft.fft(x))


def test_a_device_that_is_the_cpu_takes_its_library_which_is_no_fallback(device):
    if torch.opencl.get_device_properties(device).type != "cpu" or os.environ.get("TORCH_OPENCL_DEVICE_CLASS") == "gpu":
        pytest.skip("it takes the kernels of GPUs")
    torch.opencl.reset_fallbacks()
    torch.fft.fft(torch.randn(6, dtype=torch.complex64, device=device))
    assert torch.opencl.fallbacks() == {}
