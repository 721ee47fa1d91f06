"""Print the polynomials of rust/ops/pointwise/*.cl: `python scripts/polynomials.py bessel`, or another of these files.

Each is a Chebyshev series, computed by interpolation in 50 digits, with as many terms as double or float needs, and
written in powers of its variable t, from -1 to 1; a table begins with the highest power.
"""

import argparse
from collections.abc import Callable
from dataclasses import dataclass

from mpmath import mp, mpf

mp.dps = 50
NODES = 80
# The square of the reciprocal of zeta at -2.5.
LEFT = mpf(9) / 4 / mpf("2.5") ** 3


@dataclass(frozen=True)
class Series:
    """A function to expand: f(x(t)) for t from -1 to 1."""

    name: str
    f: Callable[[mpf], mpf]
    x: Callable[[mpf], mpf]
    comment: str
    # If true, errors are relative to the function's greatest value.
    has_zeros: bool = False


def reciprocal(most: float) -> Callable[[mpf], mpf]:
    """Return the map onto reciprocals of 0 to `most`; infinity, at its end, is never a node."""
    return lambda t: 1 / (mpf(most) * (t + 1) / 2)


def linear(low: object, high: object) -> Callable[[mpf], mpf]:
    """Return the linear map onto `low` to `high`."""
    return lambda t: (mpf(high) - mpf(low)) * (t + 1) / 2 + mpf(low)


def root_of(most: float) -> Callable[[mpf], mpf]:
    """Return the map onto values whose squares are 0 to `most`."""
    return lambda t: mp.sqrt(mpf(most) * (t + 1) / 2)


def far(most: float) -> Callable[[mpf], mpf]:
    """Return the map onto values whose squares' reciprocals are 0 to `most`."""
    return lambda t: 1 / mp.sqrt(mpf(most) * (t + 1) / 2)


def hankel(order: int, is_sine: bool) -> Callable[[mpf], mpf]:
    """Return P, or x Q, of Hankel's expansions (DLMF 10.17)."""

    def f(x: mpf) -> mpf:
        angle = x - mp.pi / 4 - order * mp.pi / 2
        scale = mp.sqrt(mp.pi * x / 2)
        j, y = mp.besselj(order, x) * scale, mp.bessely(order, x) * scale
        if is_sine:
            return (y * mp.cos(angle) - j * mp.sin(angle)) * x
        return j * mp.cos(angle) + y * mp.sin(angle)

    return f


def airy_far(is_sine: bool) -> Callable[[mpf], mpf]:
    """Return the factor of the sine, or zeta times the factor of the cosine, on the left (DLMF 9.7.9)."""

    def f(zeta: mpf) -> mpf:
        z = (zeta * 3 / 2) ** (mpf(2) / 3)
        angle, scale = zeta + mp.pi / 4, mp.sqrt(mp.pi) * mp.root(z, 4)
        a, b = mp.airyai(-z) * scale, mp.airybi(-z) * scale
        if is_sine:
            return (b * mp.sin(angle) - a * mp.cos(angle)) * zeta
        return a * mp.sin(angle) + b * mp.cos(angle)

    return f


def quantile(p: mpf) -> mpf:
    """Return x > 0 for which the normal distribution at -x is p."""
    start = mp.sqrt(-2 * mp.log(p))
    start = start - mp.log(start * mp.sqrt(2 * mp.pi)) / start if start > 2 else (0.5 - p) * mp.sqrt(2 * mp.pi)
    return mp.findroot(lambda x: mp.log(mp.erfc(x / mp.sqrt(2)) / 2) - mp.log(p), start)


def tail(s: mpf) -> mpf:
    """Return the remainder of the quantile at exp(-z^2 / 2) after its leading terms, times z = 1 / s."""
    z = 1 / s
    return (z - mp.log(z) / z - quantile(mp.exp(-z * z / 2))) * z


j0, j1 = (lambda i: mp.besseljzero(0, i)), (lambda i: mp.besseljzero(1, i))
psi0 = mp.findroot(mp.digamma, 1.46)


def over_zeros(x: mpf, zero: Callable[[int], mpf]) -> mpf:
    """Return the polynomial with two zeros and their negatives."""
    return (x * x - zero(1) ** 2) * (x * x - zero(2) ** 2)


def airy_right(zeta: mpf) -> mpf:
    """Return the Airy function without its decay."""
    x = (zeta * 3 / 2) ** (mpf(2) / 3)
    return mp.airyai(x) * mp.exp(zeta) * mp.root(x, 4)


FILES = {
    "modified_bessel": (
        Series(
            "I0_FAR",
            lambda x: mp.exp(-x) * mp.sqrt(x) * mp.besseli(0, x),
            reciprocal(1 / 8),
            "exp(-x) sqrt(x) I0(x) from 8 on",
        ),
        Series(
            "I1_FAR",
            lambda x: mp.exp(-x) * mp.sqrt(x) * mp.besseli(1, x),
            reciprocal(1 / 8),
            "exp(-x) sqrt(x) I1(x) from 8 on",
        ),
        Series(
            "K0_NEAR",
            lambda x: mp.besselk(0, x) + mp.log(x / 2) * mp.besseli(0, x),
            root_of(4),
            "K0(x) + log(x / 2) I0(x), x^2 up to 4",
        ),
        Series(
            "K0_FAR",
            lambda x: mp.exp(x) * mp.sqrt(x) * mp.besselk(0, x),
            reciprocal(1 / 2),
            "exp(x) sqrt(x) K0(x) from 2 on",
        ),
        Series(
            "K1_NEAR",
            lambda x: x * (mp.besselk(1, x) - mp.log(x / 2) * mp.besseli(1, x)),
            root_of(4),
            "x (K1(x) - log(x / 2) I1(x)), x^2 up to 4",
        ),
        Series(
            "K1_FAR",
            lambda x: mp.exp(x) * mp.sqrt(x) * mp.besselk(1, x),
            reciprocal(1 / 2),
            "exp(x) sqrt(x) K1(x) from 2 on",
        ),
    ),
    "bessel": (
        Series(
            "J0_NEAR", lambda x: mp.besselj(0, x) / over_zeros(x, j0), root_of(25), "J0(x) over its zeros, x^2 up to 25"
        ),
        Series(
            "J1_NEAR",
            lambda x: mp.besselj(1, x) / x / over_zeros(x, j1),
            root_of(25),
            "J1(x) / x over its zeros, x^2 up to 25",
        ),
        Series(
            "Y0_NEAR",
            lambda x: mp.bessely(0, x) - 2 / mp.pi * mp.log(x) * mp.besselj(0, x),
            root_of(25),
            "Y0(x) - 2 / pi log(x) J0(x), x^2 up to 25",
            has_zeros=True,
        ),
        Series(
            "Y1_NEAR",
            lambda x: (mp.bessely(1, x) - 2 / mp.pi * (mp.log(x) * mp.besselj(1, x) - 1 / x)) / x,
            root_of(25),
            "(Y1(x) - 2 / pi (log(x) J1(x) - 1 / x)) / x, x^2 up to 25",
            has_zeros=True,
        ),
        Series("P0", hankel(0, False), far(1 / 25), "P of order 0, x from 5 on"),
        Series("Q0", hankel(0, True), far(1 / 25), "x Q of order 0"),
        Series("P1", hankel(1, False), far(1 / 25), "P of order 1"),
        Series("Q1", hankel(1, True), far(1 / 25), "x Q of order 1"),
    ),
    "airy": (
        Series("AIRY_NEAR", mp.airyai, linear(-2.5, 1), "Ai(x) from -2.5 to 1", has_zeros=True),
        Series("AIRY_RIGHT", airy_right, reciprocal(1.5), "exp(zeta) x^(1/4) Ai(x) from 1 on, by 1 / zeta"),
        Series("AIRY_SINE", airy_far(False), far(LEFT), "the factor of sin(zeta + pi/4), x up to -2.5"),
        Series("AIRY_COSINE", airy_far(True), far(LEFT), "zeta times that of -cos(zeta + pi/4)"),
    ),
    "error_function": (
        Series(
            "ERFCX",
            lambda x: (1 + 2 * x) * mp.exp(x * x) * mp.erfc(x),
            lambda t: mpf(3.75) * (1 + t) / (1 - t),
            "(1 + 2 x) exp(x^2) erfc(x) by (x - 3.75) / (x + 3.75)",
        ),
        Series(
            "NDTRI_CENTRE",
            lambda y: -quantile(mpf(0.5) + y) / y if y > 0 else quantile(mpf(0.5) + y) / -y,
            lambda t: -mp.sqrt(mpf("0.1331") * (t + 1) / 2),
            "the quantile of 1/2 + y over y, y^2 up to 0.1331",
        ),
        Series("NDTRI_TAIL", tail, linear(0.125, 0.5), "z (z - log(z) / z - quantile) by 1 / z, from 1/8 to 1/2"),
        Series("NDTRI_FAR", tail, linear(0.025, 0.125), "the same from 1/40 to 1/8"),
    ),
    "gamma": (
        Series(
            "DIGAMMA_NEAR",
            lambda x: mp.digamma(x) / (x - psi0),
            linear(1, 2),
            "digamma(x) over its zero, x from 1 to 2",
        ),
    ),
    "incomplete_gamma": (
        Series(
            "LGAMMA_NEAR",
            lambda a: mp.loggamma(1 + a) / (a * (a - 1)),
            linear(0, 1),
            "log gamma(1 + a) / (a (a - 1)), a up to 1",
        ),
    ),
}


def coefficients(series: Series) -> list[mpf]:
    """Return the coefficients of the Chebyshev series, the first of which counts half."""
    nodes = [mp.pi * (2 * k + 1) / (2 * NODES) for k in range(NODES)]
    values = [series.f(series.x(mp.cos(node))) for node in nodes]
    scale = (max if series.has_zeros else min)(abs(value) for value in values)
    terms = [mp.fsum(v * mp.cos(k * node) for v, node in zip(values, nodes, strict=True)) for k in range(NODES)]
    return [2 * term / NODES / scale for term in terms] + [scale]


def powers(series: list[mpf], epsilon: float) -> list[mpf]:
    """Return the coefficients of powers of t, highest first, with as few terms as the error allows."""
    *terms, scale = series
    count = len(terms)
    while sum(abs(term) for term in terms[count - 1 :]) < epsilon:
        count -= 1
    # Chebyshev polynomials T of degrees k - 1 and k, lowest power first.
    last, now = [mpf(1)] + [mpf(0)] * count, [mpf(0), mpf(1)] + [mpf(0)] * (count - 1)
    total = [terms[0] / 2 * a + terms[1] * b for a, b in zip(last, now, strict=True)]
    for term in terms[2:count]:
        last, now = now, [2 * a - b for a, b in zip([mpf(0), *now[:-1]], last, strict=True)]
        total = [a + term * b for a, b in zip(total, now, strict=True)]
    return [scale * value for value in reversed(total[:count])]


def table(name: str, values: list[mpf], digits: int, suffix: str) -> str:
    """Return the table of OpenCL C."""
    body = ", ".join(mp.nstr(value, digits, strip_zeros=False) + suffix for value in values)
    return f"__constant T {name}[] = {{{body}}};\n"


def text(series: Series) -> str:
    """Return the tables of a series, for double and for float."""
    terms = coefficients(series)
    double, single = (powers(terms, epsilon) for epsilon in (2.0**-54, 2.0**-26))
    return (
        f"// {series.comment}\n#ifdef CLASS_D\n{table(series.name, double, 17, '')}"
        f"#else\n{table(series.name, single, 9, 'f')}#endif\n"
    )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("file", choices=FILES)
    print("\n".join(text(series) for series in FILES[parser.parse_args().file]))
