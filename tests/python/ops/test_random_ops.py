"""Random values: their distributions, and repetition by a seed or a saved state."""

import math

import pytest
import torch
from op_samples import NoFallback
from op_table import FLOATING, INTEGRAL, covers
from processes import output_of, two_devices
from scipy import stats
from torch import Tensor

# Enough that a wrong constant shows, and few enough that a test takes a fraction of a second.
COUNT = 1 << 16
# A correct generator fails once in a million; the seed is fixed, so a test that passed once always passes.
SIGNIFICANCE = 1e-6

CONTINUOUS = {
    "uniform_": (lambda t: t.uniform_(-2, 3), stats.uniform(-2, 5)),
    "normal_": (lambda t: t.normal_(1, 2), stats.norm(1, 2)),
    "log_normal_": (lambda t: t.log_normal_(0.5, 0.75), stats.lognorm(0.75, scale=math.exp(0.5))),
    "exponential_": (lambda t: t.exponential_(1.5), stats.expon(scale=1 / 1.5)),
    "cauchy_": (lambda t: t.cauchy_(1, 2), stats.cauchy(1, 2)),
}
# Seeded fills of every row of the family, for properties they share.
FILLS = {
    **{name: fill for name, (fill, _) in CONTINUOUS.items()},
    "geometric_": lambda t: t.geometric_(0.3),
    "bernoulli_": lambda t: t.bernoulli_(0.3),
    "bernoulli_tensor": lambda t: t.bernoulli_(torch.full_like(t, 0.3)),
    "random_": lambda t: t.random_(),
    "random_from_to": lambda t: t.random_(3, 100),
}


def assert_shares(counts: Tensor, shares: list[float]) -> None:
    """Chi-squared test of the frequency of each outcome."""
    expected = torch.tensor(shares, dtype=torch.float64) * counts.sum()
    assert stats.chisquare(counts.double().numpy(), expected.numpy()).pvalue > SIGNIFICANCE


@pytest.mark.parametrize("dtype", FLOATING, ids=str)
@pytest.mark.parametrize("name", CONTINUOUS)
@covers("uniform_", "normal_", "log_normal_", "exponential_", "cauchy_")
def test_continuous(name: str, dtype: torch.dtype, device: torch.device) -> None:
    fill, distribution = CONTINUOUS[name]
    with NoFallback():
        values = fill(torch.empty(COUNT, dtype=dtype, device=device)).cpu().double()
    if dtype in (torch.float16, torch.bfloat16):
        # Rounding causes ties, which the test below does not handle: compare quantiles, with tolerance for rounding.
        levels = torch.tensor([0.05, 0.25, 0.5, 0.75, 0.95], dtype=torch.float64)
        exact = torch.tensor([distribution.ppf(level) for level in levels])
        torch.testing.assert_close(values.quantile(levels), exact, rtol=0.03, atol=0.03)
    else:
        assert stats.kstest(values.numpy(), distribution.cdf).pvalue > SIGNIFICANCE


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_uniform_stays_in_its_interval(dtype: torch.dtype, device: torch.device) -> None:
    values = torch.rand(1 << 20, dtype=dtype, device=device)
    assert values.min() >= 0
    assert values.max() < 1


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.int64], ids=str)
@covers("geometric_")
def test_geometric(dtype: torch.dtype, device: torch.device) -> None:
    with NoFallback():
        values = torch.empty(COUNT, dtype=dtype, device=device).geometric_(0.3).cpu().long()
    assert values.min() == 1
    outcomes = torch.bincount(values.clamp(max=10), minlength=11)[1:]
    shares = [0.3 * 0.7**k for k in range(9)]
    assert_shares(outcomes, [*shares, 1 - sum(shares)])


@pytest.mark.parametrize("dtype", [torch.bool, *INTEGRAL, *FLOATING], ids=str)
@covers("bernoulli_.float", "bernoulli_.Tensor", "bernoulli.out")
def test_bernoulli(dtype: torch.dtype, device: torch.device) -> None:
    with NoFallback():
        drawn = [torch.empty(COUNT, dtype=dtype, device=device).bernoulli_(0.3)]
        drawn.append(torch.empty_like(drawn[0]).bernoulli_(torch.full((COUNT,), 0.3, device=device)))
        if dtype.is_floating_point:
            drawn.append(torch.bernoulli(torch.full((COUNT,), 0.3, dtype=dtype, device=device)))
    for values in drawn:
        assert_shares(torch.bincount(values.cpu().long(), minlength=2), [0.7, 0.3])


@pytest.mark.parametrize("dtype", [*INTEGRAL, *FLOATING], ids=str)
@covers("random_")
def test_integers_in_a_range(dtype: torch.dtype, device: torch.device) -> None:
    with NoFallback():
        values = torch.empty(COUNT, dtype=dtype, device=device).random_(3, 13).cpu().long()
    assert_shares(torch.bincount(values - 3, minlength=10), [0.1] * 10)


@pytest.mark.parametrize("dtype", [torch.bool, *INTEGRAL, *FLOATING], ids=str)
def test_integers_of_the_whole_dtype(dtype: torch.dtype, device: torch.device) -> None:
    with NoFallback():
        values = torch.empty(COUNT, dtype=dtype, device=device).random_().cpu()
    if dtype == torch.bool:
        top = 1
    elif dtype.is_floating_point:
        top = 2 ** {torch.float16: 11, torch.bfloat16: 8, torch.float32: 24, torch.float64: 53}[dtype]
    else:
        top = torch.iinfo(dtype).max
    values = values.double()
    assert values.min() >= 0
    assert values.max() <= top
    assert values.mean() == pytest.approx(top / 2, rel=0.02)


def test_full_range_of_int64(device: torch.device) -> None:
    values = torch.empty(COUNT, dtype=torch.int64, device=device).random_(torch.iinfo(torch.int64).min, None).cpu()
    assert stats.kstest(values.double().numpy(), stats.uniform(-(2.0**63), 2.0**64).cdf).pvalue > SIGNIFICANCE


@covers("normal.Tensor_float")
def test_normal_with_tensors(device: torch.device) -> None:
    mean, deviation = torch.linspace(-5, 5, COUNT), torch.linspace(0.5, 2, COUNT)
    with NoFallback():
        drawn = torch.normal(mean.to(device), deviation.to(device)).cpu()
        around = torch.normal(mean.to(device), 2.0).cpu()
        scaled = torch.normal(3.0, deviation.to(device)).cpu()
    for standard in ((drawn - mean) / deviation, (around - mean) / 2, (scaled - 3) / deviation):
        assert stats.kstest(standard.numpy(), stats.norm.cdf).pvalue > SIGNIFICANCE


@pytest.mark.parametrize("dtype", [torch.complex32, torch.complex64, torch.complex128], ids=str)
def test_uniform_complex(dtype: torch.dtype, device: torch.device) -> None:
    values = torch.empty(COUNT, dtype=dtype, device=device).uniform_(-2, 3).cpu()
    parts = torch.view_as_real(values).double()
    if dtype == torch.complex32:
        torch.testing.assert_close(parts.mean(0), torch.full((2,), 0.5).double(), rtol=0, atol=0.05)
    for part in parts.unbind(-1):
        if dtype != torch.complex32:
            assert stats.kstest(part.numpy(), stats.uniform(-2, 5).cdf).pvalue > SIGNIFICANCE
    assert torch.corrcoef(parts.t())[0, 1].abs() < 0.05


def test_normal_complex(device: torch.device) -> None:
    values = torch.randn(COUNT, dtype=torch.complex64, device=device).cpu()
    for part in (values.real, values.imag):
        assert stats.kstest(part.numpy() * math.sqrt(2), stats.norm.cdf).pvalue > SIGNIFICANCE


@pytest.mark.parametrize("dtype", [torch.int32, torch.int64, torch.float32], ids=str)
@pytest.mark.parametrize("count", [0, 1, 2, 1000, 70000])
@covers("randperm.generator_out")
def test_randperm(count: int, dtype: torch.dtype, device: torch.device) -> None:
    with NoFallback():
        order = torch.randperm(count, dtype=dtype, device=device)
    assert torch.equal(order.cpu().sort().values, torch.arange(count, dtype=dtype))
    if count >= 1000:
        # A random permutation keeps one element in place on average.
        assert (order.cpu() == torch.arange(count)).sum() < 20


@covers("multinomial")
def test_multinomial(device: torch.device) -> None:
    weights = torch.tensor([[1.0, 0.0, 3.0, 4.0], [5.0, 1.0, 1.0, 1.0]])
    with NoFallback():
        drawn = torch.multinomial(weights.to(device), COUNT, replacement=True).cpu()
    assert_shares(torch.bincount(drawn[0], minlength=4)[[0, 2, 3]], [1 / 8, 3 / 8, 4 / 8])
    assert not (drawn[0] == 1).any()
    assert_shares(torch.bincount(drawn[1], minlength=4), [5 / 8, 1 / 8, 1 / 8, 1 / 8])


def test_multinomial_without_replacement(device: torch.device) -> None:
    weights = torch.rand(64, 20, device=device)
    drawn = torch.multinomial(weights, 20).cpu()
    assert torch.equal(drawn.sort(dim=1).values, torch.arange(20).expand(64, 20))


@pytest.mark.parametrize("dtype", FLOATING, ids=str)
@covers("native_dropout")
def test_dropout(dtype: torch.dtype, device: torch.device) -> None:
    ones = torch.ones(COUNT, dtype=dtype, device=device, requires_grad=True)
    with NoFallback():
        dropped = torch.nn.functional.dropout(ones, 0.25)
        (grad,) = torch.autograd.grad(dropped.sum(), ones)
    kept = dropped.detach().cpu() != 0
    assert_shares(torch.tensor([(~kept).sum(), kept.sum()]), [0.25, 0.75])
    torch.testing.assert_close(dropped.detach().cpu()[kept], torch.tensor(4 / 3, dtype=dtype).expand(int(kept.sum())))
    assert torch.equal(grad.cpu(), dropped.detach().cpu())


@pytest.mark.parametrize("dtype", FLOATING, ids=str)
@covers("_masked_scale")
def test_masked_scale(dtype: torch.dtype, device: torch.device) -> None:
    x = torch.randn(40, 25).to(dtype).t()
    mask = torch.randint(2, (25, 40), dtype=torch.uint8)
    with NoFallback():
        scaled = torch._masked_scale(x.to(device), mask.to(device), 4 / 3)
    assert scaled.stride() == x.stride()
    torch.testing.assert_close(scaled.cpu(), x * mask * (4 / 3))


def test_dropout_keeps_the_order_of_dimensions(device: torch.device) -> None:
    x = torch.ones(2, 4, 5, 3, device=device).permute(0, 3, 1, 2)[:, 1:]  # channels last, with gaps
    dropped = torch.nn.functional.dropout(x, 1e-10)
    assert dropped.is_contiguous(memory_format=torch.channels_last)
    assert torch.equal(dropped, x)


@pytest.mark.parametrize("name", FILLS)
def test_seed_repeats(name: str, device: torch.device) -> None:
    fill = FILLS[name]

    def draw() -> Tensor:
        return fill(torch.empty(1000, device=device)).cpu()

    torch.opencl.manual_seed(7)
    first, second = draw(), draw()
    assert not torch.equal(first, second)
    torch.opencl.manual_seed(7)
    assert torch.equal(draw(), first)
    state = torch.opencl.get_rng_state(device)
    assert torch.equal(draw(), second)
    torch.opencl.set_rng_state(state, device)
    assert torch.equal(draw(), second)
    torch.opencl.manual_seed(8)
    assert not torch.equal(draw(), first)


def test_own_generator_leaves_the_default_alone(device: torch.device) -> None:
    state = torch.opencl.get_rng_state(device)
    generator = torch.Generator(device).manual_seed(3)
    first = torch.rand(100, device=device, generator=generator)
    assert torch.equal(torch.opencl.get_rng_state(device), state)
    assert torch.equal(torch.rand(100, device=device, generator=generator.manual_seed(3)), first)


@pytest.mark.parametrize("name", FILLS)
def test_layout_does_not_matter(name: str, device: torch.device) -> None:
    """Gaps between elements do not change the values, and are not written."""
    fill = FILLS[name]
    torch.opencl.manual_seed(5)
    dense = fill(torch.empty(40, 25, device=device))
    torch.opencl.manual_seed(5)
    base = torch.full((40, 50), -1.0, device=device)
    assert torch.equal(fill(base[:, ::2]), dense)
    assert bool((base[:, 1::2] == -1).all())


@pytest.mark.parametrize("name", FILLS)
def test_empty_draws_nothing(name: str, device: torch.device) -> None:
    state = torch.opencl.get_rng_state(device)
    assert FILLS[name](torch.empty(0, 3, device=device)).shape == (0, 3)
    assert torch.equal(torch.opencl.get_rng_state(device), state)


@pytest.mark.parametrize("dtype", FLOATING, ids=str)
@covers("rrelu_with_noise", "rrelu_with_noise.out", "rrelu_with_noise_")
def test_leaky_relu_of_random_slope(dtype: torch.dtype, device: torch.device) -> None:
    values = torch.linspace(-2, 2, COUNT).to(device, dtype).requires_grad_()
    with NoFallback():
        result = torch.nn.functional.rrelu(values, 0.1, 0.5, training=True)
        (grad,) = torch.autograd.grad(result.sum(), values)
        torch.nn.functional.rrelu_(values.detach().clone(), 0.1, 0.5, training=True)
        average = torch.nn.functional.rrelu(values.detach(), 0.1, 0.5)
    positive = values > 0
    assert torch.equal(result[positive], values[positive])
    assert (grad[positive] == 1).all()
    slopes = grad[values < 0].cpu().double()
    assert 0.0999 < slopes.min() < 0.11 and 0.49 < slopes.max() < 0.501
    assert slopes.mean().item() == pytest.approx(0.3, abs=0.005)
    expected = torch.nn.functional.leaky_relu(values.detach().cpu(), 0.3)
    torch.testing.assert_close(average.cpu(), expected)


@pytest.mark.needs_float64
def test_a_random_slope_has_batched_tangents(device: torch.device) -> None:
    def activation(x: torch.Tensor) -> torch.Tensor:
        torch.manual_seed(0)
        return torch.nn.functional.rrelu(x, 0.1, 0.5, training=True)

    x = torch.randn(3, dtype=torch.float64, device=device, requires_grad=True)
    assert torch.autograd.gradcheck(activation, (x,), check_forward_ad=True, check_batched_forward_grad=True)


@pytest.mark.parametrize("size", [2, 0])
@pytest.mark.parametrize(
    "draw",
    [
        lambda where, size, generator: torch.ones(size, device=where).uniform_(generator=generator),
        lambda where, size, generator: torch.randn(size, device=where, generator=generator),
        lambda where, size, generator: torch.randint(3, (size,), device=where, generator=generator),
        lambda where, size, generator: torch.randperm(size, device=where, generator=generator),
        lambda where, size, generator: torch.poisson(torch.ones(size, device=where), generator=generator),
    ],
)
def test_a_generator_of_another_device_is_refused(draw, size: int, device: torch.device) -> None:
    for where, generator in ((torch.device("cpu"), torch.Generator(device)), (device, torch.Generator())):
        if where.type == "cpu" and not size:
            continue  # no value is drawn, so the CPU does not check the generator
        says = f"Expected a '{where.type}' device type for generator but found '{generator.device.type}'"
        with pytest.raises(RuntimeError, match=says):
            draw(where, size, generator)


def test_a_generator_of_another_opencl_device_is_refused() -> None:
    code = """
        import torch
        generator = torch.Generator("opencl:1")
        try:
            torch.ones(3, device="opencl:0").uniform_(generator=generator)
        except RuntimeError as error:
            print(error)
    """
    assert "Expected a 'opencl:0' generator device but found 'opencl:1'" in output_of(code, **two_devices())


def test_fallbacks_draw_from_the_generator_of_the_device(device: torch.device) -> None:
    generator = torch.Generator(device).manual_seed(3)

    def draw() -> list[int]:
        # uint16 is not in the row, so that this falls back.
        return torch.empty(64, dtype=torch.uint16, device=device).random_(0, 1000, generator=generator).cpu().tolist()

    torch.opencl.reset_fallbacks()
    first, second = draw(), draw()
    assert torch.opencl.fallbacks()
    assert first != second
    generator.manual_seed(3)
    assert draw() == first
