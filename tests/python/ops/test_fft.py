"""Fourier transforms; device_class_fft_cases.py tests the kernels for GPUs."""

import pytest
import torch
from float64 import computed

NORMS = ("backward", "ortho", "forward")


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


@pytest.mark.parametrize("dtype", [torch.float16, torch.complex32], ids=str)
def test_16_bit_floats_are_transformed_as_on_other_gpus(device, dtype):
    wider = {torch.float16: torch.float32, torch.complex32: torch.complex64}[dtype]
    x = torch.randn(3, 16, dtype=wider, generator=torch.Generator().manual_seed(2)).to(dtype)
    transforms = [torch.fft.fft, torch.fft.ifft2, torch.fft.irfft, torch.fft.hfft]
    if not dtype.is_complex:
        transforms += [torch.fft.rfft, torch.fft.ihfft, torch.fft.rfft2]
    for transform in transforms:
        result, expected = transform(x.to(device)), transform(x.to(wider))
        assert result.dtype == (torch.complex32 if expected.is_complex() else torch.float16)
        torch.testing.assert_close(result.cpu().to(expected.dtype), expected, rtol=4e-3, atol=4e-3)


def test_results_are_laid_out_as_on_the_cpu(device):
    x = torch.randn(2, 3, 4, 5, generator=torch.Generator().manual_seed(3))
    z = torch.complex(x, x)
    for transform, input in (
        (lambda z: torch.fft.fft(z, dim=1), z),
        (lambda z: torch.fft.ifft2(z.transpose(0, 3), dim=(3, 1)), z),
        (lambda x: torch.fft.rfft(x, dim=2), x),
        (lambda x: torch.fft.rfftn(x.permute(3, 1, 0, 2), dim=(2, 0)), x),
        (lambda z: torch.fft.irfft(z, dim=0), z),
        (lambda z: torch.fft.irfftn(z.permute(3, 1, 0, 2), dim=(3, 0, 1)), z),
    ):
        assert transform(input.to(device)).stride() == transform(input).stride()


def test_bad_input_raises_as_on_the_cpu(device):
    x, z = torch.randn(4, 6), torch.randn(4, 6, dtype=torch.complex64)
    for call in (
        lambda where: torch.fft.fft(x[:, :0].to(where)),
        lambda where: torch.fft.fft(x.to(where), n=-3),
        lambda where: torch.fft.fft(x.to(where), dim=5),
        lambda where: torch.fft.fft(x.to(where), norm="none"),
        lambda where: torch.fft.fft2(x[0].to(where)),
        lambda where: torch.fft.fftn(x.to(where), dim=(1, 1)),
        lambda where: torch.fft.rfft(z.to(where)),
        lambda where: torch.fft.irfft(z[:, :1].to(where)),
        lambda where: torch.fft.fft(x.bfloat16().to(where)),
        lambda where: torch._fft_r2c(z.to(where), [1], 0, True),
        lambda where: torch._fft_c2r(x.to(where), [1], 0, 8),
        lambda where: torch._fft_c2c(x.to(where), [1], 0, True),
    ):
        messages = []
        for where in ("cpu", device):
            with pytest.raises((RuntimeError, IndexError)) as raised:
                call(where)
            messages.append((raised.type, str(raised.value).splitlines()[0]))
        assert messages[0] == messages[1]
    # The CPU's messages name its tensor type.
    with pytest.raises(RuntimeError, match="expected 0 < n_fft < 6"):
        torch.stft(x[0].to(device), 9, return_complex=True, center=False)
    with pytest.raises(RuntimeError, match="window overlap add min"):
        torch.istft(z.to(device), 6, window=torch.zeros(6, device=device))


def test_signal_processing_does_not_fall_back(device):
    x = torch.randn(2, 400, generator=torch.Generator().manual_seed(4))
    torch.opencl.reset_fallbacks()
    moved = x.to(device)
    windows = torch.hann_window, torch.hamming_window, torch.blackman_window, torch.bartlett_window, torch.kaiser_window
    for window in windows:
        torch.testing.assert_close(window(100, device=device).cpu(), window(100), rtol=1e-5, atol=1e-6)
    window = torch.hann_window(100, device=device)
    spectrum = torch.stft(moved, 100, 25, window=window, return_complex=True)
    torch.testing.assert_close(spectrum.cpu(), torch.stft(x, 100, 25, window=window.cpu(), return_complex=True))
    torch.testing.assert_close(torch.istft(spectrum, 100, 25, window=window, length=400).cpu(), x)
    torch.testing.assert_close(torch.fft.irfft(torch.fft.rfft(moved)).cpu(), x)
    torch.testing.assert_close(torch.fft.fft(moved[:, :7]).cpu(), torch.fft.fft(x[:, :7]))
    assert torch.opencl.fallbacks() == {}


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_a_16_bit_kaiser_window_has_no_nan_at_its_end(dtype, device):
    # Positions are rounded to 16 bits, the last ones beyond the window's end.
    for length in (300, 1001):
        window = torch.kaiser_window(length, dtype=dtype, device=device)
        torch.testing.assert_close(window.cpu(), torch.kaiser_window(length, dtype=dtype))


def test_an_empty_batch_has_an_empty_transform(device: torch.device) -> None:
    for name, shape in (
        ("fft", (0, 8)),
        ("ifft", (0, 8)),
        ("rfft", (0, 5)),
        ("irfft", (0, 14)),
        ("hfft", (0, 14)),
        ("ihfft", (0, 5)),
        ("fft2", (0, 8, 8)),
    ):
        result = getattr(torch.fft, name)(torch.zeros(0, *((8,) * (len(shape) - 1)), device=device))
        assert result.shape == shape
        assert result.is_complex() == (name not in ("irfft", "hfft"))
    with pytest.raises(RuntimeError, match="Invalid number of data points"):
        torch.fft.fft(torch.zeros(3, 0, device=device))
