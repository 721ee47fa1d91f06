"""Special functions of float32 against float64, and arguments beyond PyTorch's own samples."""

import itertools
import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pytest
import scipy.special
import torch
from op_samples import NoFallback
from torch import special

# A prime, so that every bit varies: 130,000 patterns of float32.
STRIDE = 33_013
Function = Callable[..., torch.Tensor]


def amplitude(x: torch.Tensor) -> torch.Tensor:
    """Return the amplitude of Bessel functions."""
    return (2 / (math.pi * x.abs())).sqrt().clamp(max=1).nan_to_num()


def airy_amplitude(x: torch.Tensor) -> torch.Tensor:
    """Return the amplitude of the Airy function for negative arguments."""
    return torch.where(x < 0, 0.5 / x.abs().clamp(min=1) ** 0.25, 0)


def on_the_left(size: float) -> Function:
    """Return a floor for negative arguments, where functions related to gamma have a zero in each unit interval."""
    return lambda x: torch.where(x < 0, size, 0).double()


@dataclass(frozen=True)
class Bound:
    """The greatest error of a function in ulps of its value, or of a floor near its zeros."""

    function: Function
    units: float
    floor: Function = torch.zeros_like
    most: float = math.inf  # limit of |x|: beyond it the CPU's float64 is wrong or slow
    reference: Function | None = None  # used if PyTorch's float64 is not accurate enough

    def error(self, x: torch.Tensor, device: torch.device) -> torch.Tensor:
        """Return the errors at x, float32; infinite if a result is of another kind (NaN, infinity)."""
        expected = (self.reference or self.function)(x.double())
        with NoFallback():
            actual = self.function(x.to(device)).cpu().double()
        _, exponent = torch.frexp(torch.maximum(expected.abs(), self.floor(x.double())))
        place = torch.ldexp(torch.ones_like(expected), (exponent - 24).clamp(min=-149))
        # Devices may flush subnormal values to 0, and infinity counts as the neighbour of the greatest float32.
        tiny = (expected.abs() < 1.5e-38) & (actual.abs() < 1.5e-38)
        same = (actual == expected) | (actual.isnan() & expected.isnan()) | tiny
        same |= (expected.abs() > 3.4028e38) & (actual.abs() > 3.4028e38) & (actual.sign() == expected.sign())
        distance = (actual - expected).abs() / place
        return torch.where(same, 0, torch.where(distance.isfinite(), distance, math.inf))


def by_scipy(function: Callable[[np.ndarray], np.ndarray]) -> Function:
    """Return a function of SciPy for tensors: PyTorch's float64 Bessel functions are off by 4e-7 from 5 on."""
    return lambda x: torch.from_numpy(function(x.numpy()))


def order(n: int) -> Function:
    """Return the polygamma function of order n."""
    return lambda x: special.polygamma(n, x)


FUNCTIONS = {
    "bessel_j0": Bound(special.bessel_j0, 6, amplitude, 1e5, by_scipy(scipy.special.j0)),
    "bessel_j1": Bound(special.bessel_j1, 6, amplitude, 1e5, by_scipy(scipy.special.j1)),
    "bessel_y0": Bound(special.bessel_y0, 8, amplitude, 1e5, by_scipy(scipy.special.y0)),
    "bessel_y1": Bound(special.bessel_y1, 6, amplitude, 1e5, by_scipy(scipy.special.y1)),
    "spherical_bessel_j0": Bound(special.spherical_bessel_j0, 4, most=1e5),
    "i0": Bound(special.i0, 6),
    "i0e": Bound(special.i0e, 5),
    "i1": Bound(special.i1, 7),
    "i1e": Bound(special.i1e, 5),
    "modified_bessel_i0": Bound(special.modified_bessel_i0, 6),
    "modified_bessel_i1": Bound(special.modified_bessel_i1, 7),
    "modified_bessel_k0": Bound(special.modified_bessel_k0, 10),
    "modified_bessel_k1": Bound(special.modified_bessel_k1, 7),
    "scaled_modified_bessel_k0": Bound(special.scaled_modified_bessel_k0, 10),
    "scaled_modified_bessel_k1": Bound(special.scaled_modified_bessel_k1, 7),
    "airy_ai": Bound(special.airy_ai, 8, airy_amplitude, 1e3, by_scipy(lambda x: scipy.special.airy(x)[0])),
    "erfcx": Bound(special.erfcx, 7),
    "erfinv": Bound(special.erfinv, 5),
    "ndtri": Bound(special.ndtri, 5),
    "log_ndtr": Bound(special.log_ndtr, 8),
    "entr": Bound(special.entr, 3),
    "digamma": Bound(special.digamma, 10, on_the_left(16), 1e5),
    "trigamma": Bound(order(1), 8, most=1e3),
    "polygamma 2": Bound(order(2), 8, on_the_left(16), 1e3),
    "polygamma 3": Bound(order(3), 8, most=1e3),
    "polygamma 4": Bound(order(4), 8, on_the_left(512), 1e3),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions_of_float32(name: str, device: torch.device) -> None:
    bound = FUNCTIONS[name]
    patterns = torch.from_numpy(np.arange(0, 2**32, STRIDE, dtype=np.int64).astype(np.uint32).view(np.float32))
    patterns = patterns[(patterns.abs() <= bound.most) | ~patterns.isfinite()]
    generator = torch.Generator().manual_seed(0)
    dense = [torch.empty(1 << 14).uniform_(-end, end, generator=generator) for end in (1, 12, 100)]
    for x in (torch.cat([patterns, *dense]), dense[1][: 2 * 33].view(2, 33)[:, 1:]):
        errors = bound.error(x, device)
        worst = errors.argmax()
        assert errors.max() <= bound.units, f"{name}({x.flatten()[worst].item()!r})"


@pytest.mark.needs_float64
@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions_of_float64(name: str, device: torch.device) -> None:
    generator = torch.Generator().manual_seed(0)
    ends = (1, 12, 100)
    x = torch.cat([torch.empty(1 << 12, dtype=torch.float64).uniform_(-e, e, generator=generator) for e in ends])
    bound = FUNCTIONS[name]
    actual, expected = bound.function(x.to(device)).cpu(), (bound.reference or bound.function)(x)
    torch.testing.assert_close(actual, expected, rtol=1e-9, atol=1e-11, equal_nan=True)


@pytest.mark.parametrize("function", [special.gammainc, special.gammaincc], ids=lambda function: function.__name__)
@pytest.mark.parametrize("most", [1, 10, 60, 3000])
def test_incomplete_gamma_functions(most: float, function: Function, device: torch.device) -> None:
    """Within 2^-21 of values up to 1, and within 0.1 % of values down to 1e-30."""
    generator = torch.Generator().manual_seed(0)
    a = torch.empty(1 << 13).uniform_(0, most, generator=generator)
    x = a * torch.empty(1 << 13).uniform_(0, 2, generator=generator) + torch.rand(1 << 13, generator=generator)
    expected, actual = function(a.double(), x.double()), function(a.to(device), x.to(device)).cpu().double()
    assert (actual - expected).abs().max() < 2**-21
    is_normal = expected > 1e-30
    assert ((actual - expected).abs() / expected)[is_normal].max() < 1e-3


def test_incomplete_gamma_functions_at_the_ends(device: torch.device) -> None:
    ends = torch.tensor(list(itertools.product([-1.0, 0.0, 1e-30, 0.5, 1.0, 30.0, 1e30, math.inf, math.nan], repeat=2)))
    for function in (special.gammainc, special.gammaincc):
        a, x = ends.t()
        torch.testing.assert_close(function(a.to(device), x.to(device)).cpu(), function(a, x), equal_nan=True)


def test_zeta(device: torch.device) -> None:
    generator = torch.Generator().manual_seed(0)
    s = torch.empty(1 << 13).uniform_(1, 40, generator=generator)
    for q in (torch.empty(1 << 13).uniform_(0, end, generator=generator) for end in (1, 30, 1e4)):
        expected = special.zeta(s.double(), q.double())
        actual = special.zeta(s.to(device), q.to(device)).cpu().double()
        is_normal = (expected > 2e-38) & (expected < 3e38)
        assert ((actual - expected).abs() / expected)[is_normal].max() < 4 * 2**-23
    # Also for q < 0 with an integer first argument, without a loop over all integers up to 0.
    whole = s.round()
    q = torch.empty(1 << 13).uniform_(-9, 0, generator=generator)
    expected = special.zeta(whole.double(), q.double())
    actual = special.zeta(whole.to(device), q.to(device)).cpu().double()
    # Terms that cancel are as large as the one nearest to 0.
    scale = (q - q.round()).abs().double() ** -whole
    near = (whole > 1) & (scale < 3e38)
    assert ((actual - expected).abs() / scale)[near].max() < 2e-6
    assert special.zeta(torch.tensor(3.0, device=device), torch.tensor(-1e6 - 0.5, device=device)).isfinite()
    poles = torch.tensor([0.25, 1.0, -0.5, -1.5, 0.0, math.nan])
    torch.testing.assert_close(
        special.zeta(math.inf, poles.to(device)).cpu(), special.zeta(math.inf, poles), rtol=0, atol=0, equal_nan=True
    )


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_sixteen_bits_are_computed_in_float32(dtype: torch.dtype, device: torch.device) -> None:
    x = torch.linspace(0.1, 4, 999).to(dtype)
    for name in ("bessel_y1", "airy_ai", "erfcx", "modified_bessel_k0", "log_ndtr"):
        function = getattr(special, name)
        with NoFallback():
            actual = function(x.to(device)).cpu()
        expected = function(x.float()).to(dtype)
        # Adjacent values if the exact result is half-way between them.
        assert (actual.view(torch.int16) - expected.view(torch.int16)).abs().max() <= 1, name


POLYNOMIALS = [
    *(f"{kind}chebyshev_polynomial_{letter}" for kind in ("", "shifted_") for letter in "tuvw"),
    "hermite_polynomial_h",
    "hermite_polynomial_he",
    "laguerre_polynomial_l",
    "legendre_polynomial_p",
]


@pytest.mark.parametrize("name", POLYNOMIALS)
def test_orthogonal_polynomials(name: str, device: torch.device) -> None:
    """For all degrees, as scalars and tensors, with errors that grow with the degree as in any recurrence."""
    function = getattr(special, name)
    generator = torch.Generator().manual_seed(0)
    x = torch.cat([torch.empty(1 << 10).uniform_(-1.2, 1.2, generator=generator), torch.tensor([-1.0, 0.0, 0.5, 1.0])])
    for n in (-1, 0, 1, 2, 5, 6, 7, 9, 12.7):
        expected = function(x.double(), n)
        with NoFallback():
            actual = function(x.to(device), n).cpu().double()
            degrees = function(x.to(device), torch.full_like(x, n).to(device)).cpu().double()
        scale = expected.abs().max().clamp(min=1)
        assert (actual - expected).abs().max() <= 1e-6 * (1 + abs(n)) * scale, f"degree {n}"
        assert (degrees - expected).abs().max() <= 1e-6 * (1 + abs(n)) * scale, f"degree {n}"
    no_degrees = torch.tensor([math.nan, math.inf, -math.inf, -5.0], device=device)
    assert function(torch.tensor(0.5, device=device), no_degrees).tolist() == [0.0] * 4


def test_high_degrees_of_chebyshev_polynomials_are_as_fast(device: torch.device) -> None:
    x = torch.linspace(-0.9, 0.9, 7)
    actual = special.chebyshev_polynomial_t(x.to(device), 1_000_000).cpu()
    expected = special.chebyshev_polynomial_t(x.double(), 1_000_000).float()
    torch.testing.assert_close(actual, expected, rtol=0, atol=0.25)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32], ids=str)
def test_nextafter(dtype: torch.dtype, device: torch.device) -> None:
    special_values = torch.tensor([0.0, -0.0, 1.0, -1.0, math.inf, -math.inf, math.nan, 6.1035e-05, 5.96e-08, 65504.0])
    few = torch.arange(0, 1 << 15, 7).mul(2**16 + 1).int().view(torch.float32).to(dtype)
    every = torch.arange(-(1 << 15), 1 << 15, dtype=torch.int32).short().view(dtype) if dtype.itemsize == 2 else few
    # Devices may flush subnormal values of float32 to 0.
    values = torch.cat(
        [every[(every.abs() > 1e-37) | (every == 0) | (dtype == torch.float16)], special_values.to(dtype)]
    )
    for towards in (values.flip(0), torch.zeros_like(values), torch.full_like(values, math.inf), -values):
        with NoFallback():
            actual = torch.nextafter(values.to(device), towards.to(device)).cpu()
        expected = torch.nextafter(values, towards)
        tiny = (expected.abs() < 1.2e-38) & (dtype != torch.float16)
        assert ((actual == expected) | (actual.isnan() & expected.isnan()) | tiny).all()
