"""Random values of distributions with tensor parameters, and the gradients of samples."""

import math
from collections.abc import Callable

import pytest
import torch
from float64 import computed
from op_samples import NoFallback
from op_table import FLOATING, covers
from scipy import stats
from test_random_ops import COUNT, SIGNIFICANCE, assert_shares
from torch import Tensor

HALF = (torch.float16, torch.bfloat16)
RATES = (0.3, 2.0, 9.9, 10.0, 31.0, 800.0)
# Trials and the probability of each: by gaps and by rejection, also with probabilities above a half.
TRIALS = ((1, 0.3), (9, 0.5), (30, 0.1), (40, 0.4), (1000, 0.03), (50, 0.9), (3000, 0.995), (1 << 20, 0.25))
CONCENTRATIONS = (0.02, 0.4, 1.0, 1.5, 30.0, 1e4)
DRAWS: dict[str, Callable[[Tensor], Tensor]] = {
    "poisson": lambda t: torch.poisson(t * 20),
    "binomial": lambda t: torch.binomial((t * 100).floor(), t),
    "_standard_gamma": torch._standard_gamma,
    "_sample_dirichlet": torch._sample_dirichlet,
    "_fused_dropout": lambda t: torch._fused_dropout(t, 0.6)[0],
}


def assert_discrete(values: Tensor, distribution) -> None:
    """Chi-squared test over the range with nearly all of the probability, in cells with enough expected counts."""
    edges = sorted({int(distribution.ppf(level)) for level in [k / 24 for k in range(1, 24)]})
    below = [distribution.cdf(edge) for edge in edges]
    shares = [upper - lower for lower, upper in zip([0, *below], [*below, 1], strict=True)]
    cells = torch.bucketize(values.double(), torch.tensor(edges, dtype=torch.float64))
    kept = [i for i, share in enumerate(shares) if share > 1e-4]
    assert_shares(
        torch.bincount(cells, minlength=len(shares))[kept], [shares[i] / sum(shares[k] for k in kept) for i in kept]
    )


def assert_moments(values: Tensor, mean: float, deviation: float) -> None:
    """Accept five standard errors either way, plus the error of the mean from the dtype's rounding."""
    error = 5 * deviation / math.sqrt(values.numel()) + torch.finfo(values.dtype).eps * abs(mean)
    assert abs(values.double().mean().item() - mean) < error
    assert values.double().std().item() == pytest.approx(deviation, rel=0.05)


@pytest.mark.parametrize("dtype", computed(FLOATING), ids=str)
@pytest.mark.parametrize("rate", RATES)
@covers("poisson")
def test_poisson(rate: float, dtype: torch.dtype, device: torch.device) -> None:
    rates = torch.full((COUNT,), rate, dtype=dtype)
    with NoFallback():
        values = torch.poisson(rates.to(device)).cpu()
    assert values.dtype == dtype
    rate = rates[0].item()
    if dtype not in HALF or rate < 100:
        assert_discrete(values, stats.poisson(rate))
    assert_moments(values, rate, math.sqrt(rate))


@pytest.mark.parametrize("dtype", computed(FLOATING), ids=str)
@pytest.mark.parametrize(("count", "prob"), TRIALS)
@covers("binomial")
def test_binomial(count: int, prob: float, dtype: torch.dtype, device: torch.device) -> None:
    if dtype in HALF and count > 256:
        pytest.skip("not an integer of the dtype")
    counts, probs = torch.full((COUNT,), count, dtype=dtype), torch.full((COUNT,), prob, dtype=dtype)
    with NoFallback():
        values = torch.binomial(counts.to(device), probs.to(device)).cpu()
    assert values.dtype == dtype
    prob = probs[0].item()
    assert_discrete(values, stats.binom(count, prob))
    assert_moments(values, count * prob, math.sqrt(count * prob * (1 - prob)))


@pytest.mark.parametrize("dtype", computed(FLOATING), ids=str)
@pytest.mark.parametrize("concentration", CONCENTRATIONS)
@covers("_standard_gamma")
def test_gamma(concentration: float, dtype: torch.dtype, device: torch.device) -> None:
    alpha = torch.full((COUNT,), concentration, dtype=dtype)
    with NoFallback():
        values = torch._standard_gamma(alpha.to(device)).cpu()
    assert values.min() >= torch.finfo(dtype).tiny
    concentration = alpha[0].item()
    if dtype not in HALF:
        # Samples below the smallest value are clamped to it: a fifth of them for 0.02 in float32.
        values = values[values > torch.finfo(dtype).tiny]
        floor = stats.gamma(concentration).cdf(torch.finfo(dtype).tiny)
        above = lambda x: (stats.gamma(concentration).cdf(x) - floor) / (1 - floor)  # noqa: E731
        assert stats.kstest(values.double().numpy(), above).pvalue > SIGNIFICANCE
    elif concentration > 1:
        assert_moments(values, concentration, math.sqrt(concentration))


@pytest.mark.parametrize("dtype", computed(FLOATING), ids=str)
@covers("_sample_dirichlet")
def test_dirichlet(dtype: torch.dtype, device: torch.device) -> None:
    alpha = torch.tensor([0.5, 2.0, 4.0], dtype=dtype)
    with NoFallback():
        values = torch._sample_dirichlet(alpha.to(device).expand(COUNT, 3)).cpu()
    torch.testing.assert_close(values.sum(-1), torch.ones(COUNT, dtype=dtype), rtol=0, atol=2 * torch.finfo(dtype).eps)
    for column, own in zip(values.t(), alpha.tolist(), strict=True):
        marginal = stats.beta(own, 6.5 - own)
        if dtype not in HALF:
            assert stats.kstest(column.double().numpy(), marginal.cdf).pvalue > SIGNIFICANCE
        assert column.double().mean().item() == pytest.approx(marginal.mean(), rel=0.02)


def test_dirichlet_of_small_concentrations_has_one_large_component(device: torch.device) -> None:
    """Their gamma samples are less than any value of the dtype."""
    values = torch._sample_dirichlet(torch.full((1000, 4), 1e-6, device=device)).cpu()
    assert (values.max(-1).values > 0.999).all()
    assert_shares(torch.bincount(values.argmax(-1), minlength=4), [0.25] * 4)


@pytest.mark.parametrize("dtype", computed(FLOATING), ids=str)
@covers("_fused_dropout")
def test_fused_dropout_keeps_with_its_probability(dtype: torch.dtype, device: torch.device) -> None:
    ones = torch.ones(COUNT, dtype=dtype, device=device)
    with NoFallback():
        values, mask = torch._fused_dropout(ones, 0.75)
    assert mask.dtype == torch.uint8
    assert_shares(torch.bincount(mask.cpu().long(), minlength=2), [0.25, 0.75])
    torch.testing.assert_close(values.cpu(), (mask.cpu() / 0.75).to(dtype))


@pytest.mark.parametrize("name", DRAWS)
def test_draws_follow_the_seed_and_no_launch(name: str, device: torch.device) -> None:
    """An element gets the same value in a small tensor, by the generic program, and in a large one."""
    draw = DRAWS[name]
    many = torch.rand(200_000, generator=torch.Generator().manual_seed(1)).to(device) + 0.01
    torch.opencl.manual_seed(7)
    first, second = draw(many), draw(many)
    assert not torch.equal(first, second)
    torch.opencl.manual_seed(7)
    assert torch.equal(draw(many), first)
    if name != "_sample_dirichlet":
        torch.opencl.manual_seed(7)
        # The programs may round functions differently.
        torch.testing.assert_close(draw(many[:1000]), first[:1000])
    generator = torch.Generator(device).manual_seed(7)
    if name == "poisson":
        assert torch.equal(torch.poisson(many * 20, generator=generator), first)


def test_draws_of_any_layout_and_of_nothing(device: torch.device) -> None:
    rates = (torch.rand(40, 30) * 50).to(device)
    torch.opencl.manual_seed(3)
    dense = torch.poisson(rates)
    torch.opencl.manual_seed(3)
    assert torch.equal(torch.poisson(rates.t().contiguous().t()), dense)
    state = torch.opencl.get_rng_state(device)
    for draw in DRAWS.values():
        assert draw(rates[:0]).shape == (0, 30)
    assert torch.equal(torch.opencl.get_rng_state(device), state)
    assert torch.binomial(rates.floor(), rates[0] / 50).shape == (40, 30)


def test_parameters_at_their_limits(device: torch.device) -> None:
    nan, inf = math.nan, math.inf
    rates = torch.tensor([0.0, inf, 1e30], device=device)
    assert torch.poisson(rates).tolist() == [0, inf, pytest.approx(1e30)]
    counts, probs = torch.tensor([-1.0, 3, 3, 3, 0, nan, 3]), torch.tensor([0.5, 2, -1, nan, 0.5, 0.5, 1])
    drawn = torch.binomial(counts.to(device), probs.to(device)).cpu()
    torch.testing.assert_close(drawn, torch.tensor([0, 3, 0, nan, 0, nan, 3]), equal_nan=True)
    tiny = torch.finfo(torch.float32).tiny
    gamma = torch._standard_gamma(torch.tensor([0.0, -1, nan, inf], device=device)).cpu()
    torch.testing.assert_close(gamma, torch.tensor([tiny, nan, nan, inf]), equal_nan=True)
    assert torch._sample_dirichlet(torch.tensor([0.0, 0], device=device)).tolist() == [0.5, 0.5]


def test_a_negative_rate_raises_when_it_is_read(device: torch.device) -> None:
    for rate in (-1.0, math.nan):
        drawn = torch.poisson(torch.tensor([2.0, rate], device=device))
        with pytest.raises(RuntimeError, match="invalid Poisson rate, expected rate to be non-negative"):
            drawn.cpu()
    with pytest.raises(NotImplementedError, match="\"poisson_cpu\" not implemented for 'Long'"):
        torch.poisson(torch.ones(2, dtype=torch.long, device=device))
    with pytest.raises(RuntimeError, match="Found dtype Float but expected Half"):
        torch.binomial(torch.ones(2, device=device, dtype=torch.half), torch.ones(2, device=device))


@pytest.mark.parametrize("dtype", computed(FLOATING), ids=str)
@covers("_standard_gamma_grad")
def test_gradient_of_gamma_samples(dtype: torch.dtype, device: torch.device) -> None:
    alpha = torch.logspace(-3, 5, 97, dtype=torch.float64).unsqueeze(1)
    x = alpha * torch.logspace(-2, 0.5, 61, dtype=torch.float64)
    alpha, x = (t.to(dtype) for t in torch.broadcast_tensors(alpha, x))
    expected = torch._standard_gamma_grad(alpha.double(), x.double())
    with NoFallback():
        actual = torch._standard_gamma_grad(alpha.to(device), x.to(device)).cpu()
    known = expected.abs() < torch.finfo(dtype).max
    rtol = {torch.float64: 1e-9, torch.float32: 2e-4}.get(dtype, 4 * torch.finfo(dtype).eps)
    torch.testing.assert_close(actual[known].double(), expected[known], rtol=rtol, atol=1e-6)


@pytest.mark.parametrize("dtype", computed(FLOATING), ids=str)
@covers("_dirichlet_grad")
def test_gradient_of_dirichlet_samples(dtype: torch.dtype, device: torch.device) -> None:
    torch.manual_seed(0)
    alpha = torch.rand(3000, dtype=torch.float64).mul(6).sub(2).exp()
    total = alpha + torch.rand(3000, dtype=torch.float64).mul(6).sub(2).exp()
    x = torch.distributions.Beta(alpha, total - alpha).sample().clamp(0.02, 0.98)
    alpha, total, x = (t.to(dtype) for t in (alpha, total, x))
    rounded = total > alpha  # rounding left another concentration
    alpha, total, x = alpha[rounded], total[rounded], x[rounded]
    expected = torch._dirichlet_grad(x.double(), alpha.double(), total.double())
    with NoFallback():
        actual = torch._dirichlet_grad(x.to(device), alpha.to(device), total.to(device)).cpu()
    rtol = {torch.float64: 1e-9, torch.float32: 1e-3}.get(dtype, 8 * torch.finfo(dtype).eps)
    torch.testing.assert_close(actual.double(), expected, rtol=rtol, atol=1e-5)


@pytest.mark.parametrize("name", ["Gamma", "Dirichlet", "Beta", "Poisson", "Binomial", "StudentT", "NegativeBinomial"])
def test_distributions_of_pytorch_run_on_the_device(name: str, device: torch.device) -> None:
    def make(where: torch.device | str) -> torch.distributions.Distribution:
        a = torch.tensor([0.7, 3.0, 12.0], device=where).requires_grad_(name in ("Gamma", "Dirichlet", "Beta"))
        arguments = {
            "Gamma": (a, a),
            "Dirichlet": (a,),
            "Beta": (a, a),
            "Poisson": (a,),
            "Binomial": (20, a / 20),
            "StudentT": (a,),
            "NegativeBinomial": (5.0, a / 20),
        }
        return getattr(torch.distributions, name)(*arguments[name])

    ours, theirs = make(device), make("cpu")
    torch.opencl.reset_fallbacks()
    drawn = ours.rsample((4000,)) if ours.has_rsample else ours.sample((4000,))
    if drawn.requires_grad:
        drawn.sum().backward()
    assert not torch.opencl.fallbacks()
    spread = theirs.variance.detach().nan_to_num(1e9, posinf=1e9).sqrt()
    assert ((drawn.detach().cpu().mean(0) - theirs.mean.detach()).abs() < 6 * spread / 4000**0.5 + 1e-6)[1:].all()
