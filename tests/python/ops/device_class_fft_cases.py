"""As device_class_cases.py, of Fourier transforms."""

import pytest
import torch
from device_class_cases import check
from float64 import computed


@pytest.mark.parametrize("length", [1, 2, 7, 8, 11, 30, 64, 97, 210, 1000, 1021, 2048, 2187, 4096, 5000, 10007, 16384])
def test_fourier_transforms(length: int):
    """Lengths of one launch and of several, of each radix and of larger prime factors."""
    x = torch.randn(3, length, 2, dtype=torch.complex64)
    check(lambda x: torch.fft.fft(x[..., 0], norm="ortho"), x)
    check(lambda x: torch.fft.ifft(x, dim=1), x)
    check(torch.fft.fft2, torch.randn(2, length, 4, dtype=torch.complex64))
    check(torch.fft.rfft, x.real[..., 1])
    check(lambda x: torch.fft.ihfft(x, dim=1), x.real)
    check(lambda x: torch.fft.irfft(x, 2 * length - 1, dim=1), x)
    check(lambda x: torch.fft.hfft(x[..., 0], 2 * length, norm="ortho"), x)
    if torch.float64 in computed([torch.float64]):
        check(torch.fft.rfft, x.real[..., 0].double())
        check(lambda x: torch.fft.fft(x, dim=1), x.to(torch.complex128))


@pytest.mark.parametrize("length", [1 << 21, 3 * 5 * 7 << 14])
def test_long_fourier_transforms(length: int):
    with torch.no_grad():
        x = torch.randn(length, dtype=torch.complex64)
        check(torch.fft.fft, x)
        check(torch.fft.rfft, x.real.contiguous())
        check(lambda x: torch.fft.irfft(x, length), x[: length // 2 + 1])


def test_fourier_transforms_of_several_dimensions():
    x = torch.randn(5, 6, 7, 8, dtype=torch.complex64)
    check(torch.fft.fftn, x)
    check(lambda x: torch.fft.ifftn(x, dim=(2, 0)), x)
    check(lambda x: torch.fft.fft2(x.transpose(0, 3), norm="forward"), x)
    check(lambda x: torch.fft.rfftn(x, dim=(1, 3)), x.real)
    check(lambda x: torch.fft.rfftn(x.permute(2, 0, 3, 1), dim=(3, 0)), x.real)
    check(lambda x: torch.fft.irfftn(x, s=(5, 9), dim=(0, 2)), x)
    check(lambda x: torch.fft.hfft2(x[:, :, ::2], dim=(1, 2)), x)
    check(lambda x: torch.fft.fft(x[:, :, :1].expand(-1, -1, 9, -1), dim=1), x)
    # More separate dimensions than a kernel iterates over.
    many = torch.randn([2] * 12, dtype=torch.complex64)
    check(lambda x: torch.fft.fft(x[..., :1].transpose(0, 5).transpose(3, 8), dim=4), many)


def test_fourier_transforms_of_16_bit_floats():
    check(lambda x: torch.view_as_real(torch.fft.rfft(x).to(torch.complex64)), torch.randn(3, 30, dtype=torch.half))
    check(
        lambda x: torch.view_as_real(torch.fft.fft2(torch.complex(x, -x)).to(torch.complex64)),
        torch.randn(2, 8, 16, dtype=torch.half),
    )
    check(lambda x: torch.fft.irfft(torch.fft.rfft(x, dim=0), dim=0), torch.randn(32, 5, dtype=torch.half))


def test_short_time_fourier_transforms():
    def spectrum(x: torch.Tensor, window: torch.Tensor) -> torch.Tensor:
        return torch.stft(x, 100, 25, window=window, return_complex=True)

    x, window = torch.randn(2, 400), torch.hann_window(100)
    check(spectrum, x, window)
    check(lambda x, window: torch.istft(spectrum(x, window), 100, 25, window=window, length=400), x, window)
