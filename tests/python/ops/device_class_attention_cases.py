"""Like device_class_cases.py, for attention: masks with the dtype's lowest value, and rows of odd widths."""

from functools import partial

import pytest
import torch
from device_class_cases import check
from float64 import computed
from torch.nn.functional import scaled_dot_product_attention as attention

# Errors relative to elements of about 1.
ERRORS = {torch.float64: 1e-12, torch.float32: 2e-6, torch.float16: 2e-3, torch.bfloat16: 2e-2}
# Queries and keys: one query, which is split over the keys; blocks with edges; few scores.
SHAPES = [(1, 70), (3, 5), (33, 47), (70, 130)]


def _inputs(queries: int, keys: int, dtype: torch.dtype, head_dim: int = 8) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(queries)
    return [torch.randn(2, 3, n, head_dim, generator=generator).to(dtype) for n in (queries, keys, keys)]


@pytest.mark.parametrize("dtype", computed(ERRORS), ids=str)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("scale", [None, 2.5])
def test_masks_of_the_lowest_number(shape: tuple[int, int], dtype: torch.dtype, scale: float | None):
    """A query with all keys hidden returns the mean of the values, and the gradients of the mean."""
    inputs = _inputs(*shape, dtype)
    hidden = torch.rand(2, 1, *shape, generator=torch.Generator().manual_seed(1)) < 0.5
    hidden[:, :, 0] = True
    hidden[:, :, 1:, 0] = False
    is_blind = hidden.all(-1, keepdim=True)
    mask = torch.zeros(hidden.shape, dtype=dtype).masked_fill(hidden, torch.finfo(dtype).min)
    weight = torch.linspace(-1, 1, inputs[0].numel(), dtype=torch.float64).view(inputs[0].shape)

    def run(attend, device: str, wide: torch.dtype) -> list[torch.Tensor]:
        leaves = [tensor.to(device, wide).requires_grad_() for tensor in inputs]
        result = attend(*leaves)
        gradients = torch.autograd.grad(result, leaves, weight.to(device, wide))
        return [tensor.detach().double().cpu() for tensor in (result, *gradients)]

    def exact(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        scores = q @ k.mT * (8**-0.5 if scale is None else scale)
        # A score added to the lowest value is lost, but its derivative is not.
        scores = torch.where(is_blind, scores - scores.detach(), scores.masked_fill(hidden & ~is_blind, -torch.inf))
        return scores.softmax(-1) @ v

    expected = run(exact, "cpu", torch.float64)
    actual = run(lambda q, k, v: attention(q, k, v, mask.to("opencl"), scale=scale), "opencl", dtype)
    for mine, theirs in zip(actual, expected, strict=True):
        limit = ERRORS[dtype] * max(1.0, theirs.abs().max().item())
        torch.testing.assert_close(mine, theirs, rtol=0, atol=limit)


@pytest.mark.parametrize("dtype", computed(ERRORS), ids=str)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_infinite_masks_hide_beside_masks_of_the_lowest_number(shape: tuple[int, int], dtype: torch.dtype):
    """A query with all keys hidden by -inf returns 0; keys hidden by -inf have no weight beside the lowest value."""
    inputs = [tensor.to("opencl").requires_grad_() for tensor in _inputs(*shape, dtype)]
    infinite = torch.zeros(1, 1, *shape, dtype=torch.bool)
    infinite[..., : shape[1] // 2] = True
    mask = torch.full(infinite.shape, torch.finfo(dtype).min, dtype=dtype).masked_fill(infinite, -torch.inf)
    result = attention(*inputs, mask.to("opencl"))
    mean = inputs[2].detach().double().cpu()[:, :, shape[1] // 2 :].mean(2, keepdim=True).expand(result.shape)
    torch.testing.assert_close(result.detach().double().cpu(), mean, rtol=0, atol=ERRORS[dtype] * 2)
    (gradient,) = torch.autograd.grad(result.sum(), inputs[2])
    assert gradient[:, :, : shape[1] // 2].abs().max().item() == 0
    for hidden in (torch.full_like(mask, -torch.inf), torch.zeros_like(infinite)):
        result = attention(*inputs, hidden.to("opencl"))
        assert result.abs().max().item() == 0
        assert all(gradient.abs().max().item() == 0 for gradient in torch.autograd.grad(result.sum(), inputs))


@pytest.mark.parametrize("queries", [1, 5])
def test_numbers_near_the_limit(queries: int):
    """The scale is at most 1: its factors on the way must not make a finite score infinite."""
    query, key, value = _inputs(queries, 7, torch.float32)
    query[..., 0, :], key = 3e38, key.abs() * 0
    check(attention, query, key, value)


@pytest.mark.parametrize("head_dim", [1, 2, 3, 5, 6, 7, 9, 17, 33, 66])
@pytest.mark.parametrize("dtype", computed([torch.float64, torch.float32]), ids=str)
def test_widths_of_heads(head_dim: int, dtype: torch.dtype):
    for queries, keys in ((1, 33), (9, 13)):
        check(attention, *_inputs(queries, keys, dtype, head_dim), times=4)
        check(lambda q, k, v: attention(q, k, v[..., :-1]), *_inputs(queries, keys, dtype, head_dim + 1), times=4)


# Rows of 72 elements are in whole vectors, and some items have none of them.
@pytest.mark.parametrize("width", [66, 72])
@pytest.mark.parametrize(("heads", "queries"), [((8, 2), 1), ((3, 1), 1), ((7, 1), 3), ((2, 2), 2)], ids=str)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16], ids=str)
def test_few_queries_of_heads_that_share_keys(heads: tuple[int, int], queries: int, width: int, dtype: torch.dtype):
    """More rows than a group takes, of which the last ones are missing; several blocks of keys; long rows."""
    generator = torch.Generator().manual_seed(queries)

    def draw(*shape: int) -> torch.Tensor:
        return torch.randn(2, *shape, generator=generator).to(dtype)

    attend = partial(attention, enable_gqa=True)
    query, key, value = draw(heads[0], queries, width), draw(heads[1], 70, width), draw(heads[1], 70, width)
    bias = draw(heads[0], queries, 70)
    bias[..., ::3] = -torch.inf
    check(attend, query, key, value)
    check(partial(attend, is_causal=True), query, key, value)
    with torch.no_grad():
        check(attend, query, key, value, bias)
        check(lambda q, k, v, b: attend(q, k, v, b[:, :1].expand_as(b)), query, key, value, bias)
        check(lambda q, k, v, b: attend(q, k[:, :, ::2], v[:, :, ::2], b[..., ::2]), query, key, value, bias)
        if width > 70:
            check(lambda q, k, v: attend(q[..., 1:65], k[..., 1:65], v[..., 1:66]), query, key, value)


def test_an_infinite_value_with_a_weight_is_infinite():
    for keys in (1, 70):
        query, key, value = _inputs(1, keys, torch.float32, 16)
        value[..., -1, :] = torch.inf
        with torch.no_grad():
            check(attention, query, key, value)


@pytest.mark.parametrize("dtype", computed([torch.float64, torch.float32]), ids=str)
def test_whole_vectors(dtype: torch.dtype):
    """Sizes of which all vectors are aligned, with and without a bias."""
    inputs = _inputs(36, 44, dtype, 12)
    check(attention, *inputs, times=4)
    check(attention, *inputs, torch.randn(2, 3, 36, 44, generator=torch.Generator().manual_seed(3)).to(dtype), times=4)
