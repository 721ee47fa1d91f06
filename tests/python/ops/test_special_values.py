"""NaN, infinities and values at the limits of dtypes, for which the results must equal the CPU's."""

import math
import platform
from collections.abc import Callable

import pytest
import torch
from float64 import computed
from op_samples import NoFallback
from torch.nn import functional

ACTIVATIONS = {
    "hardtanh": functional.hardtanh,
    "relu6": functional.relu6,
    "softshrink": functional.softshrink,
    "hardshrink": functional.hardshrink,
    "elu": functional.elu,
    "selu": functional.selu,
    "celu": functional.celu,
    "hardswish": functional.hardswish,
    "hardsigmoid": functional.hardsigmoid,
    "leaky_relu": functional.leaky_relu,
    "threshold": lambda x: functional.threshold(x, 0.5, 2.0),
    "clamp": lambda x: x.clamp(-1, 1),
}


def gradient(function: Callable, values: torch.Tensor, direction: torch.Tensor) -> torch.Tensor:
    """Return the gradient of an activation, on the device of the values."""
    values = values.clone().requires_grad_()
    return torch.autograd.grad(function(values), values, direction)[0].cpu()


@pytest.mark.parametrize("bits", [0x7FC00000, 0x7FFFFFFF, -1], ids=hex)
def test_softmax_and_attention_keep_every_nan(bits: int, device: torch.device) -> None:
    """A NaN may have any bits in its fraction."""
    x = torch.randn(300, 1024, generator=torch.Generator().manual_seed(0))
    x[7, 9] = torch.tensor(bits, dtype=torch.int32).view(torch.float32)
    for dim in (0, 1):
        for function in (torch.softmax, torch.log_softmax):
            result, expected = function(x.to(device), dim).cpu(), function(x, dim)
            torch.testing.assert_close(result, expected, equal_nan=True)
    queries = x[:256].reshape(1, 4, 256, 256)
    attend = torch.nn.functional.scaled_dot_product_attention
    result = attend(*[queries.to(device)] * 3).cpu()
    assert result.isnan().equal(attend(*[queries] * 3).isnan())


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize("name", ACTIVATIONS)
def test_gradients_at_nan(name: str, dtype: torch.dtype, device: torch.device) -> None:
    function = ACTIVATIONS[name]
    special = torch.tensor([math.nan, math.inf, -math.inf, 0.0, 3.0, -3.0, 6.0, 0.5, -0.5], dtype=dtype)
    for towards in (1.0, math.nan, math.inf):
        direction = torch.full_like(special, towards)
        # Single elements: the CPU's vectorised code hides NaN that its scalar code shows.
        alone = [gradient(function, x[None], g[None]) for x, g in zip(special, direction, strict=True)]
        actual = gradient(function, special.to(device), direction.to(device))
        torch.testing.assert_close(actual, torch.cat(alone), equal_nan=True)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.complex64], ids=str)
@pytest.mark.parametrize("beta", [0, 1, 2])
def test_operands_scaled_by_zero_are_ignored(beta: int, dtype: torch.dtype, device: torch.device) -> None:
    n = 24
    for name, shapes in {
        "addmm": [(n, n), (n, n), (n, n)],
        "addmv": [(n,), (n, n), (n,)],
        "baddbmm": [(2, n, n), (2, n, n), (2, n, n)],
        "addbmm": [(n, n), (2, n, n), (2, n, n)],
    }.items():
        addend, a, b = (torch.randn(shape, device=device).to(dtype) for shape in shapes)
        a[0], b[0] = math.inf, math.nan
        result = getattr(torch, name)(addend, a, b, alpha=0, beta=beta)
        torch.testing.assert_close(result, beta * addend)
        addend[0] = math.nan
        result = getattr(torch, name)(addend, a, b, alpha=0, beta=beta)
        assert torch.equal(result.isnan(), addend.isnan() if beta else torch.zeros_like(addend).bool())


@pytest.mark.skipif(platform.machine() == "aarch64", reason="on Arm PyTorch's CPU backend takes NaN as the position 0")
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize(
    ("dims", "mode"), [(2, "bilinear"), (2, "nearest"), (2, "bicubic"), (3, "bilinear"), (3, "nearest")]
)
def test_grid_sample_at_non_finite_positions(dims: int, mode: str, dtype: torch.dtype, device: torch.device) -> None:
    values = torch.randn(1, 3, *[5] * dims, dtype=dtype)
    places = [[math.nan, 0.1], [0.1, math.nan], [math.inf, 0.1], [0.1, -math.inf], [1e30, 0.1], [0.2, 0.3]]
    grid = torch.tensor([place + [0.1] * (dims - 2) for place in places], dtype=dtype).view(
        1, *[1] * (dims - 1), -1, dims
    )
    results = []
    for there in ("cpu", device):
        x, g = (tensor.clone().to(there).requires_grad_() for tensor in (values, grid))
        # With the other paddings the CPU reads out of bounds at NaN.
        y = functional.grid_sample(x, g, mode, "zeros", align_corners=False)
        results.append([t.detach().cpu() for t in (y, *torch.autograd.grad(y.sum(), (x, g)))])
    torch.testing.assert_close(results[1], results[0], equal_nan=True)


@pytest.mark.parametrize("name", ["exp", "sinh", "cosh", "sin", "cos", "tan", "tanh", "sqrt"])
@pytest.mark.parametrize("dtype", [torch.complex64, torch.complex128], ids=str)
def test_complex_functions_near_overflow(name: str, dtype: torch.dtype, device: torch.device) -> None:
    limit = 89.0 if dtype == torch.complex64 else 710.0
    inf, nan = math.inf, math.nan
    parts = [limit, -limit, 0.5, 30.0]
    numbers = [complex(x, y) for x in parts for y in (1.5, 1.0, -2.5, 0.0)]
    numbers += [complex(inf, 0), complex(-inf, 1), complex(inf, nan), complex(0, inf), complex(nan, 0)]
    if name in ("sin", "cos", "tan"):
        numbers = [complex(z.imag, z.real) for z in numbers]
    if name == "sqrt":
        most = torch.finfo(dtype).max
        numbers = [complex(x, y) for x in (most, -most, 0.0, 1.0) for y in (most, -most, 0.5, inf)]
    values = torch.tensor(numbers, dtype=dtype)
    function = getattr(torch, name)
    actual, expected = torch.view_as_real(function(values.to(device)).cpu()), torch.view_as_real(function(values))
    torch.testing.assert_close(actual, expected, rtol=1.3e-6, atol=1e-6, equal_nan=True)


@pytest.mark.parametrize("dtype", [torch.complex64, torch.complex128], ids=str)
def test_complex_division_by_non_finite_values(dtype: torch.dtype, device: torch.device) -> None:
    inf, nan = math.inf, math.nan
    numbers = torch.tensor([1 + 2j, 0, -3j, 1e30 - 1e30j], dtype=dtype)
    for divisor in (
        complex(inf, 0),
        complex(0, inf),
        complex(inf, inf),
        complex(nan, 0),
        complex(0, nan),
        0,
        1e-30j,
        1e38,
    ):
        by = torch.tensor([divisor], dtype=dtype)
        actual, expected = (
            torch.view_as_real((numbers.to(device) / by.to(device)).cpu()),
            torch.view_as_real(numbers / by),
        )
        torch.testing.assert_close(actual, expected, equal_nan=True)


@pytest.mark.parametrize("dtype", [torch.int8, torch.int16, torch.int32, torch.int64], ids=str)
def test_common_multiples_and_divisors_that_overflow(dtype: torch.dtype, device: torch.device) -> None:
    limits = torch.iinfo(dtype)
    values = torch.tensor([limits.min, limits.max, limits.max - 1, -limits.max, 100, 50, 3, 0], dtype=dtype)
    # The CPU's lcm of the lowest integer ends the process for dtypes in which C divides without widening.
    spared = values[1:] if dtype.itemsize >= 4 else values
    for op, numbers in ((torch.lcm, spared), (torch.gcd, values)):
        expected = op(numbers[:, None], numbers)
        assert torch.equal(op(numbers.to(device)[:, None], numbers.to(device)).cpu(), expected)


REFUSALS = {
    "masked_fill": lambda x, v: x.masked_fill(x > 2, v),
    "clamp": lambda x, v: x.clamp(v, v),
    "clamp_min": lambda x, v: x.clamp_min(v),
    "clamp_max": lambda x, v: x.clamp_max(v),
    "pow": lambda x, v: x**v,
    "fill_": lambda x, v: x.clone().fill_(v),
    "full": torch.full_like,
    "add": lambda x, v: torch.add(x, x, alpha=v),
    "sub": lambda x, v: torch.sub(x, x, alpha=v),
    "addcmul": lambda x, v: torch.addcmul(x, x, x, value=v),
    "lerp": lambda x, v: torch.lerp(x, x + 1, v),
    "leaky_relu": functional.leaky_relu,
    "threshold": lambda x, v: functional.threshold(x, 1, v),
    "hardshrink": functional.hardshrink,
    "addmm": lambda x, v: torch.addmm(x, torch.ones_like(x), torch.ones_like(x), alpha=v),
}


@pytest.mark.parametrize("use", REFUSALS)
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64], ids=str)
def test_scalars_outside_the_range_of_a_float_dtype(use: str, dtype: torch.dtype, device: torch.device) -> None:
    def outcome(x: torch.Tensor, value: float) -> torch.Tensor | str:
        try:
            return REFUSALS[use](x, value).cpu()
        except RuntimeError as error:
            return str(error).splitlines()[0]

    values = torch.tensor([[0.0, 1.0], [3.0, 100.0]], dtype=dtype)
    for value in (70000.0, -1e39, 1e39, math.inf, 2.5):
        expected, actual = outcome(values, value), outcome(values.to(device), value)
        if isinstance(expected, str) or isinstance(actual, str):
            assert actual == expected
        else:
            torch.testing.assert_close(actual, expected, equal_nan=True)


def test_limits_of_16_bits_are_compared_as_such(device: torch.device) -> None:
    for dtype in (torch.float16, torch.bfloat16):
        values = torch.linspace(-2, 2, 401).to(dtype)
        for limit in (0.1, 0.3, 0.7):
            for function in (functional.threshold, functional.hardshrink):
                arguments = (limit, 5.0) if function is functional.threshold else (limit,)
                actual = function(values.to(device), *arguments).cpu()
                assert torch.equal(actual, function(values, *arguments))


@pytest.mark.parametrize("dtype", [torch.complex64, torch.complex128], ids=str)
def test_complex_multiplication_rounds_each_product(dtype: torch.dtype, device: torch.device) -> None:
    z = torch.randn(4096, dtype=dtype, generator=torch.Generator().manual_seed(0)).to(device)
    assert torch.count_nonzero((z * z.conj().resolve_conj()).imag) == 0
    # The squares of both parts overflow, so that their difference is NaN.
    great = torch.full((64,), complex(torch.finfo(dtype).max, torch.finfo(dtype).max / 2), dtype=dtype, device=device)
    assert (great * great).real.isnan().all()


def test_complex_powers_that_overflow(device: torch.device) -> None:
    bases, exponents = torch.tensor([2, math.inf, math.inf, 3 + 0j]), torch.tensor([1e4 + 0j, 2, -1, -1e4])
    actual, expected = torch.pow(bases.to(device), exponents.to(device)).cpu(), torch.pow(bases, exponents)
    assert torch.equal(torch.view_as_real(actual).nan_to_num(7), torch.view_as_real(expected).nan_to_num(7))


@pytest.mark.parametrize("dtype", [torch.complex64, torch.complex128, torch.float32], ids=str)
def test_mean_of_an_empty_tensor(dtype: torch.dtype, device: torch.device) -> None:
    for shape, dims in [((0,), None), ((2, 0), 1), ((2, 0, 3), 1)]:
        mean = torch.empty(shape, dtype=dtype, device=device).mean(dims)
        parts = torch.view_as_real(mean) if dtype.is_complex else mean
        assert parts.isnan().all()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_deviation_of_the_greatest_value_is_zero(device, dtype):
    greatest = torch.finfo(dtype).max
    assert torch.full((), greatest, dtype=dtype, device=device).std(correction=0).item() == 0
    assert (torch.full((1, 40), greatest, dtype=dtype, device=device).var(0, correction=0) == 0).all()


@pytest.mark.parametrize("dtype", [torch.complex64, pytest.param(torch.complex128, marks=pytest.mark.needs_float64)])
def test_magnitudes_of_complex_numbers_neither_overflow_nor_vanish(dtype: torch.dtype, device: torch.device) -> None:
    limits = torch.finfo(dtype)
    parts = [0.0, 1.0, 3e-5, limits.max, limits.max / 3, limits.tiny * 9, limits.max**0.5 * 2, math.inf, math.nan]
    values = torch.tensor(parts, dtype=dtype.to_real())
    real, imag = torch.meshgrid(values, values, indexing="ij")
    numbers = torch.complex(real, -imag)
    torch.testing.assert_close(numbers.to(device).abs().cpu(), torch.hypot(real, imag), equal_nan=True)


def test_complex_of_half_tensors(device: torch.device) -> None:
    real, imag = torch.randn(2, 99, generator=torch.Generator().manual_seed(0)).half()
    with NoFallback():
        numbers = torch.complex(real.to(device), imag.to(device))
    assert numbers.dtype == torch.complex32
    assert torch.equal(torch.view_as_real(numbers).cpu(), torch.stack((real, imag), -1))


def test_variances_into_complex_tensors_are_refused(device: torch.device) -> None:
    for function in (torch.std, torch.var):
        with pytest.raises(NotImplementedError, match="out= is ComplexFloat"):
            function(torch.ones(3, 400, device=device), 1, out=torch.empty(3, dtype=torch.complex64, device=device))


def test_variances_of_infinite_elements_are_nan(device: torch.device) -> None:
    for length in (3, 40, 5000):
        for place in (0, length // 2, length - 1):
            for value in (math.inf, -math.inf):
                values = torch.ones(2, length)
                values[0, place] = value
                there = values.to(device)
                assert torch.var(there, 1).isnan().tolist() == [True, False]
                assert torch.std(there.mT.contiguous(), 0).isnan().tolist() == [True, False]
                assert torch.var(there).isnan()


@pytest.mark.parametrize("dtype", computed([torch.complex64, torch.complex128]), ids=str)
@pytest.mark.parametrize("name", ["asin", "acos", "atan", "asinh", "acosh", "atanh", "log", "sqrt", "tanh", "tan"])
def test_complex_functions_of_special_numbers(name: str, dtype: torch.dtype, device: torch.device) -> None:
    """Zeros, infinities and NaN in either part, for which C99 (annex G) defines results, and values near the limits."""
    largest = torch.finfo(dtype).max / 2
    parts = [0.0, -0.0, 0.5, -2.0, math.inf, -math.inf, math.nan, largest, -largest, 1e10, 25.0]
    numbers = torch.tensor([complex(real, imag) for real in parts for imag in parts], dtype=dtype)
    # Single elements: the CPU's vectorised results differ from its scalar ones in places.
    expected = torch.stack([getattr(torch, name)(number) for number in numbers])
    actual = getattr(torch, name)(numbers.to(device)).cpu()
    for ours, theirs in ((actual.real, expected.real), (actual.imag, expected.imag)):
        # The standard leaves the sign of an infinite part beside NaN unspecified.
        is_open = expected.isnan() & theirs.isinf()
        torch.testing.assert_close(
            ours.where(~is_open, ours.abs()), theirs.where(~is_open, theirs.abs()), equal_nan=True
        )


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_an_infinite_input_reaches_only_its_own_weights(dtype: torch.dtype, device: torch.device) -> None:
    """The gradient of a convolution's weight: the padding of vectors must not multiply infinity by zero."""
    x = torch.tensor([[[0.0, -math.inf], [0.0, 1.0]], [[-math.inf, 2.0], [1.0, 0.0]]], dtype=dtype)
    grad = torch.tensor([[[0.5, 1.0], [0.25, 1.0]], [[1.0, 0.75], [1.0, 2.0]]], dtype=dtype)

    def of_weight(target: torch.device | str) -> torch.Tensor:
        weight = torch.zeros(2, 1, 2, dtype=dtype, device=target, requires_grad=True)
        out = functional.conv1d(x.to(target), weight, padding=1, dilation=2, groups=2)
        return torch.autograd.grad(out, weight, grad.to(target))[0].cpu()

    torch.testing.assert_close(of_weight(device), of_weight("cpu"), equal_nan=True)


@pytest.mark.parametrize("count", [3, 4096])
def test_dropout_shows_infinite_gradients_of_dropped_elements(count: int, device: torch.device) -> None:
    """They are multiplied by zero, so that a GradScaler sees them."""
    mask = torch.zeros(count, dtype=torch.bool, device=device)
    grad = torch.full((count,), math.inf, device=device)
    assert torch.ops.aten.native_dropout_backward(grad, mask, 2.0).isnan().all()
    values, kept = torch.ops.aten.native_dropout(grad, 0.5, True)
    assert torch.equal(values.isnan(), ~kept)


def test_an_infinite_running_variance_stays_infinite(device: torch.device) -> None:
    x = torch.randn(4096, 3)
    for target in ("cpu", device):
        mean, var = torch.zeros(3, device=target), torch.full((3,), math.inf, device=target)
        functional.batch_norm(x.to(target), mean, var, training=True)
        assert var.isposinf().all()


def test_a_mean_into_integers_is_refused(device: torch.device) -> None:
    out = torch.zeros((), dtype=torch.int32, device=device)
    with pytest.raises(RuntimeError, match="result type Float can't be cast to the desired output type Int"):
        torch.mean(torch.ones(2, 3, device=device), dim=(0, 1), out=out)
