"""Elementary functions of float32 against float64, in ulps, over all kinds of bit patterns."""

import itertools
import math

import numpy as np
import pytest
import torch

# The errors stated in rust/kernels/include/elementary.cl.
UNARY = {
    "exp": 1.0,
    "expm1": 1.5,
    "log": 0.9,
    "log1p": 1.6,
    "tanh": 2.5,
    "sin": 2.4,
    "cos": 2.4,
    "tan": 3.8,
    "erf": 2.1,
    "round": 0.0,
}
POWER = 1.2
# A prime, so that every bit varies, and large enough that the 1.3 million patterns take only a moment.
STRIDE = 3301


def error(actual: torch.Tensor, expected: torch.Tensor) -> torch.Tensor:
    """Return the error of float32 results against float64 ones in ulps; infinite for another kind (NaN, infinity)."""
    actual, rounded = actual.cpu().double(), expected.float().double()
    _, exponent = torch.frexp(expected)
    place = torch.ldexp(torch.ones_like(expected), (exponent - 24).clamp(min=-149))
    distance = (actual - expected).abs() / place
    # Infinity counts as the neighbour of the greatest float32.
    is_edge = expected.abs() > 3.4028233e38
    same = (actual == rounded) & (actual.signbit() == rounded.signbit()) | (actual.isnan() & expected.isnan())
    good = expected.isfinite() & rounded.isfinite() & actual.isfinite() & ((rounded != 0) | (actual != 0))
    return torch.where(same | is_edge, distance.nan_to_num(0).clamp(max=0.5), torch.where(good, distance, math.inf))


@pytest.mark.parametrize("name", UNARY)
def test_functions_of_float32(name: str, device: torch.device) -> None:
    patterns = torch.from_numpy(np.arange(0, 2**32, STRIDE, dtype=np.int64).astype(np.uint32).view(np.float32))
    special = torch.tensor([0.0, 1e-45, 1e-40, 1.0, 3.4e38, math.inf])
    patterns = torch.cat([patterns, special, -special])
    function = getattr(torch, name)
    # A slice uses the kernel for strided tensors, and ends with a partial vector.
    for values in (patterns, patterns[: 2 * 33].view(2, 33)[:, 1:]):
        errors = error(function(values.to(device)), function(values.double()))
        worst = errors.argmax()
        assert errors.max() <= UNARY[name], f"{name}({values.flatten()[worst].item()!r})"


def test_gelu(device: torch.device) -> None:
    values = torch.linspace(-14, 14, 1 << 20)
    special = torch.tensor([0.0, 1e-45, 1e-40, 1e-20, 1e30, math.inf])
    values = torch.cat([values, special, -special[:-1]])
    expected = values.double() * torch.special.ndtr(values.double())
    actual = torch.nn.functional.gelu(values.to(device))
    # The tail is accurate to the last bit of bf16 as long as it matters.
    body, tail = values > -1, (values <= -1) & (values > -5)
    assert error(actual[body.to(device)], expected[body]).max() <= 2.5
    assert ((actual.cpu()[tail] - expected[tail]) / expected[tail]).abs().max() <= 2**-9.5
    assert (actual.cpu()[values <= -5] - expected[values <= -5]).abs().max() <= 2e-8


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
def test_gelu_of_sixteen_bits(dtype: torch.dtype, device: torch.device) -> None:
    values = torch.arange(-(1 << 15), 1 << 15, dtype=torch.int32).short().view(dtype)
    values = values[values > -5]
    actual = torch.nn.functional.gelu(values.to(device)).cpu()
    expected = (values.double() * torch.special.ndtr(values.double())).to(dtype)
    # Adjacent values if the exact result is half-way between them.
    assert (actual.view(torch.int16).int() - expected.view(torch.int16).int()).abs().max() <= 1
    assert (actual != expected).float().mean() < 0.01


def test_powers_of_float32(device: torch.device) -> None:
    generator = torch.Generator().manual_seed(0)
    bits = torch.randint(-(2**31), 2**31, (2, 1 << 20), generator=generator).int().view(torch.float32)
    # Powers over the whole range of results, with bases near 1 and far from it.
    base = torch.randn(1 << 20, generator=generator).mul(torch.logspace(-4, 1.6, 1 << 20)).exp()
    spread = torch.empty(1 << 20).uniform_(-150, 128, generator=generator) / base.log2()
    whole = torch.randint(-40, 40, (1 << 20,), generator=generator).float()
    for a, b in (bits, (base, spread), (bits[0], whole), (-base, whole)):
        errors = error(torch.pow(a.to(device), b.to(device)), torch.pow(a.double(), b.double()))
        worst = errors.argmax()
        assert errors.max() <= POWER, f"pow({a[worst].item()!r}, {b[worst].item()!r})"


def test_powers_of_special_numbers(device: torch.device) -> None:
    special = [0.0, 0.5, 1.0, 1 + 2**-23, 1 - 2**-24, 2.0, 2.5, 3.0, 8388607.5, 16777215.0, 16777216.0, 2.0**31, 1e-45]
    special += [1e-40, 3e38, math.inf]
    numbers = [sign * number for sign in (1, -1) for number in special] + [math.nan]
    a, b = torch.tensor(list(itertools.product(numbers, numbers))).t()
    errors = error(torch.pow(a.to(device), b.to(device)), torch.pow(a.double(), b.double()))
    worst = errors.argmax()
    assert errors.max() <= POWER, f"pow({a[worst].item()!r}, {b[worst].item()!r})"
    # A scalar exponent uses another kernel.
    for exponent in numbers:
        actual = torch.pow(a.to(device), exponent)
        assert error(actual, torch.pow(a.double(), exponent)).max() <= 2, f"exponent {exponent}"


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_remainders_are_exact(dtype: torch.dtype, device: torch.device) -> None:
    generator = torch.Generator().manual_seed(0)
    a, b = torch.randn(2, 1 << 16, generator=generator, dtype=torch.float64)
    # Small quotients only, and large ones among them; zeros, infinities and NaN in a few lanes.
    for scale in (torch.ones(1 << 16), torch.logspace(-30, 30, 1 << 16)):
        x, y = (a * scale).to(dtype), b.to(dtype)
        x[::1001], y[::1009], x[::1013], y[::1019] = math.inf, 0, math.nan, math.inf
        for function in (torch.fmod, torch.remainder):
            torch.testing.assert_close(
                function(x.to(device), y.to(device)).cpu(), function(x, y), rtol=0, atol=0, equal_nan=True
            )


@pytest.mark.parametrize("shape", [(1 << 24,), (2, 1 << 23), (1 << 20, 16)])
def test_sums_of_many_equal_numbers(shape: tuple[int, ...], device: torch.device) -> None:
    """Rounding errors of equal values all have one sign; a chain of additions would be off by 1e-3."""
    x = torch.full(shape, 0.1, device=device)
    dim = 0 if shape[-1] == 16 else -1
    exact = torch.tensor(0.1).double() * x.shape[dim]
    for total in (x.sum(dim), x.mean(dim) * x.shape[dim]):
        assert ((total.cpu().double() - exact).abs() / exact).max() < 1e-5
