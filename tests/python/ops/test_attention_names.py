"""Attention through the operators of PyTorch's CUDA implementations, against composed attention in float64."""

import math

import pytest
import torch
from op_table import covers
from releases import requires_torch
from torch.nn.functional import scaled_dot_product_attention as attention

aten = torch.ops.aten
TOLERANCE = 5e-6


def visible(queries: int, keys: int, first: int | None = None, last: int | None = None) -> torch.Tensor:
    """Mark the keys from i + first to i + last of query i."""
    offsets = torch.arange(keys) - torch.arange(queries).view(-1, 1)
    seen = torch.ones(queries, keys, dtype=torch.bool)
    if first is not None:
        seen &= offsets >= first
    if last is not None:
        seen &= offsets <= last
    return seen


def tensors(*shapes: tuple[int, ...]) -> list[torch.Tensor]:
    return [torch.randn(shape) for shape in shapes]


def reference(inputs: list[torch.Tensor], weights: torch.Tensor, mask: torch.Tensor, scale: float | None = None):
    """Return the result, logsumexp and gradients in float64; the result of a query without visible keys is 0."""
    leaves = [tensor.double().detach().requires_grad_() for tensor in inputs]
    query, key, value = leaves[:3]
    group = query.size(-3) // key.size(-3)
    key, value = (tensor.repeat_interleave(group, -3) for tensor in (key, value))
    scores = query @ key.mT * (scale or 1 / math.sqrt(query.size(-1)))
    if len(leaves) > 3:
        scores = scores + leaves[3]
    scores = scores.masked_fill(~mask, -torch.inf)
    blind = ~mask.any(-1, keepdim=True)
    result = scores.masked_fill(blind, 0).softmax(-1).masked_fill(blind, 0) @ value
    logsumexp = scores.logsumexp(-1).masked_fill(blind.squeeze(-1), torch.inf)
    return result.detach(), logsumexp.detach(), torch.autograd.grad(result, leaves, weights.double())


def assert_near(actual: torch.Tensor, exact: torch.Tensor, tolerance: float = TOLERANCE) -> None:
    finite = exact[exact.isfinite()]
    scale = max(1.0, finite.abs().max().item()) if finite.numel() else 1.0
    torch.testing.assert_close(actual.cpu().double(), exact, rtol=0, atol=tolerance * scale)


def gradients(result: torch.Tensor, leaves: list[torch.Tensor], weights: torch.Tensor) -> tuple[torch.Tensor, ...]:
    return torch.autograd.grad(result, leaves, weights.to(result))


@pytest.mark.parametrize(("queries", "keys"), [(9, 9), (5, 40), (40, 5)])
@pytest.mark.parametrize("is_causal", [False, True])
@covers("_scaled_dot_product_flash_attention", "_scaled_dot_product_flash_attention_backward")
def test_flash_attention_of_heads(is_causal, queries, keys, device, no_fallback):
    """The last query is aligned with the last key."""
    inputs = tensors((2, 4, queries, 16), (2, 2, keys, 16), (2, 2, keys, 16))
    weights = torch.randn(2, 4, queries, 16)
    mask = visible(queries, keys, last=keys - queries if is_causal else None)
    exact, exact_logsumexp, exact_grads = reference(inputs, weights, mask, 0.3)
    leaves = [tensor.to(device).requires_grad_() for tensor in inputs]
    result, logsumexp, _, _, max_q, max_k, rng_state, unused, debug_mask = aten._scaled_dot_product_flash_attention(
        *leaves, 0.0, is_causal, scale=0.3
    )
    assert (max_q, max_k) == (queries, keys)
    assert rng_state.dtype == unused.dtype == torch.uint64
    assert rng_state.shape == (2,)
    assert debug_mask.numel() == 0
    assert_near(result, exact)
    assert_near(logsumexp, exact_logsumexp)
    for mine, wanted in zip(gradients(result, leaves, weights), exact_grads, strict=True):
        assert_near(mine, wanted)


@pytest.mark.parametrize("biased", [False, True])
@pytest.mark.parametrize("is_causal", [False, True])
@covers("_scaled_dot_product_efficient_attention", "_scaled_dot_product_efficient_attention_backward")
def test_efficient_attention_of_heads(is_causal, biased, device, no_fallback):
    """The first query is aligned with the first key; logsumexp is padded to a multiple of 32 queries."""
    inputs = tensors((2, 3, 9, 16), (2, 3, 14, 16), (2, 3, 14, 8), *[(1, 3, 9, 14)] * biased)
    weights = torch.randn(2, 3, 9, 8)
    exact, exact_logsumexp, exact_grads = reference(inputs, weights, visible(9, 14, last=0 if is_causal else None))
    leaves = [tensor.to(device).requires_grad_() for tensor in inputs]
    bias = leaves[3] if biased else None
    result, logsumexp, *_ = aten._scaled_dot_product_efficient_attention(*leaves[:3], bias, True, 0.0, is_causal)
    assert logsumexp.shape == (2, 3, 32)
    assert logsumexp[..., 9:].isinf().all()
    assert_near(result, exact)
    assert_near(logsumexp[..., :9], exact_logsumexp)
    for mine, wanted in zip(gradients(result, leaves, weights), exact_grads, strict=True):
        assert_near(mine, wanted)
    without = aten._scaled_dot_product_efficient_attention(*(leaf.detach() for leaf in leaves[:3]), None, False)
    assert without[1].shape == (2, 3, 0)


@requires_torch("2.13", "arguments of _flash_attention_forward")
@pytest.mark.parametrize("window", [(-1, -1), (3, 0), (2, 4), (-1, 1)])
@pytest.mark.parametrize("is_causal", [False, True])
@covers("_flash_attention_forward", "_flash_attention_backward")
def test_flash_attention_of_positions(is_causal, window, device, no_fallback):
    inputs = tensors((2, 11, 4, 16), (2, 17, 2, 16), (2, 17, 2, 16))
    weights = torch.randn(2, 11, 4, 16)
    left, right = window
    mask = visible(11, 17, 6 - left if left >= 0 else None, 6 if is_causal else 6 + right if right >= 0 else None)
    exact, exact_logsumexp, exact_grads = reference(
        [tensor.transpose(1, 2) for tensor in inputs], weights.transpose(1, 2), mask
    )
    leaves = [tensor.to(device).requires_grad_() for tensor in inputs]
    result, logsumexp, *_ = aten._flash_attention_forward(
        *leaves, None, None, 11, 17, 0.0, is_causal, False, window_size_left=left, window_size_right=right
    )
    assert_near(result, exact.transpose(1, 2))
    assert_near(logsumexp, exact_logsumexp)
    for mine, wanted in zip(gradients(result, leaves, weights), exact_grads, strict=True):
        assert_near(mine, wanted.transpose(1, 2))


@requires_torch("2.13", "arguments of _flash_attention_forward")
@pytest.mark.parametrize("is_causal", [False, True])
@covers("_flash_attention_forward_no_dropout_inplace")
def test_flash_attention_of_sequences(is_causal, device, no_fallback):
    """Concatenated sequences, one of them without queries, and one without keys."""
    bounds_q, bounds_k = [0, 5, 5, 12, 15], [0, 7, 10, 17, 17]
    inputs = tensors((15, 4, 16), (17, 2, 16), (17, 2, 16))
    weights = torch.randn(15, 4, 16)
    leaves = [tensor.to(device).requires_grad_() for tensor in inputs]
    sequences = [torch.tensor(bounds, dtype=torch.int32, device=device) for bounds in (bounds_q, bounds_k)]
    result, logsumexp, *_ = aten._flash_attention_forward(*leaves, *sequences, 7, 7, 0.0, is_causal, False)
    grads = gradients(result, leaves, weights)
    for i in range(4):
        here, there = slice(*bounds_q[i : i + 2]), slice(*bounds_k[i : i + 2])
        parts = [inputs[0][here].transpose(0, 1), *(tensor[there].transpose(0, 1) for tensor in inputs[1:])]
        queries, keys = here.stop - here.start, there.stop - there.start
        mask = visible(queries, keys, last=keys - queries if is_causal else None)
        exact, exact_logsumexp, exact_grads = reference(parts, weights[here].transpose(0, 1), mask)
        assert_near(result[here], exact.transpose(0, 1))
        assert_near(logsumexp[:, here], exact_logsumexp)
        for mine, part, wanted in zip(grads, (here, there, there), exact_grads, strict=True):
            assert_near(mine[part], wanted.transpose(0, 1))

    # Only the first keys of each sequence.
    used = torch.tensor([4, 0, 2, 0], dtype=torch.int32, device=device)
    out = torch.zeros_like(result)
    aten._flash_attention_forward_no_dropout_inplace(
        out, *(leaf.detach() for leaf in leaves), *sequences, 7, 7, 0.0, False, False, seqused_k=used
    )
    parts = [inputs[0][5:12].transpose(0, 1), *(tensor[10:12].transpose(0, 1) for tensor in inputs[1:])]
    exact, *_ = reference(parts, weights[5:12].transpose(0, 1), visible(7, 2))
    assert_near(out[5:12], exact.transpose(0, 1))
    assert out[12:].eq(0).all()


@requires_torch("2.13", "the layer's arguments")
def test_the_layer_for_sequences(device, no_fallback):
    from torch.nn.attention.varlen import varlen_attn

    inputs = [torch.randn(9, 2, 8) for _ in range(3)]
    bounds = torch.tensor([0, 4, 9], dtype=torch.int32, device=device)
    result = varlen_attn(*(tensor.to(device) for tensor in inputs), bounds, bounds, 5, 5, window_size=(-1, 0))
    for part in (slice(0, 4), slice(4, 9)):
        exact = attention(*(tensor[part].transpose(0, 1).double() for tensor in inputs), is_causal=True)
        assert_near(result[part], exact.transpose(0, 1))


@pytest.mark.parametrize("mask_type", [0, 1, 2])
@pytest.mark.parametrize("window", [None, 4])
@covers("_efficient_attention_forward", "_efficient_attention_backward")
def test_efficient_attention_of_positions(window, mask_type, device, no_fallback):
    inputs = tensors((2, 11, 3, 16), (2, 17, 3, 16), (2, 17, 3, 8))
    weights = torch.randn(2, 11, 3, 8)
    last = {0: None, 1: 0, 2: 6}[mask_type]
    mask = visible(11, 17, last - window + 1 if window and last is not None else None, last)
    exact, exact_logsumexp, exact_grads = reference(
        [tensor.transpose(1, 2) for tensor in inputs], weights.transpose(1, 2), mask
    )
    query, key, value = (tensor.to(device) for tensor in inputs)
    result, logsumexp, seed, offset, max_q, max_k = aten._efficient_attention_forward(
        query, key, value, None, None, None, None, None, 0.0, mask_type, True, window_size=window
    )
    assert (max_q, max_k) == (11, 17)
    assert_near(result, exact.transpose(1, 2))
    assert_near(logsumexp[..., :11], exact_logsumexp)
    grads = aten._efficient_attention_backward(
        weights.to(device), query, key, value, None, result, None, None, max_q, max_k, logsumexp, 0.0, seed, offset,
        mask_type, False, window_size=window,
    )  # fmt: skip
    for mine, wanted in zip(grads[:3], exact_grads, strict=True):
        assert_near(mine, wanted.transpose(1, 2))


@pytest.mark.parametrize("name", ["flash", "efficient"])
def test_dropout_drops_the_same_in_the_backward_pass(name, device):
    """With equal weights and values of 1, the gradients of values sum up to the results."""
    query, key = torch.zeros(2, 3, 40, 16, device=device), torch.zeros(2, 3, 90, 16, device=device)
    value = torch.ones(2, 3, 90, 1, device=device, requires_grad=True)
    if name == "flash":
        result = aten._scaled_dot_product_flash_attention(query, key, value, 0.25)[0]
    else:
        result = aten._scaled_dot_product_efficient_attention(query, key, value, None, True, 0.25)[0]
    assert result.std() > 0.01
    (grad,) = torch.autograd.grad(result.sum(), value)
    assert grad.sum().item() == pytest.approx(result.sum().item(), rel=1e-4)
    assert result.mean().item() == pytest.approx(1, abs=0.05)


@requires_torch("2.13", "arguments of _flash_attention_forward")
def test_dropout_of_sequences(device):
    query, key = torch.zeros(40, 3, 16, device=device), torch.zeros(90, 3, 16, device=device)
    value = torch.ones(90, 3, 16, device=device, requires_grad=True)
    bounds = [torch.tensor(b, dtype=torch.int32, device=device) for b in ([0, 17, 40], [0, 60, 90])]
    result = aten._flash_attention_forward(query, key, value, *bounds, 23, 60, 0.25, False, False)[0]
    (grad,) = torch.autograd.grad(result.sum(), value)
    for here, there in ((slice(0, 17), slice(0, 60)), (slice(17, 40), slice(60, 90))):
        assert grad[there].sum().item() == pytest.approx(result[here].sum().item(), rel=1e-4)


@requires_torch("2.13", "arguments of _flash_attention_forward")
def test_unsupported_arguments_are_refused(device):
    query = torch.zeros(1, 4, 2, 8, device=device)
    call = (query, query, query, None, None, 4, 4, 0.0, False)
    with pytest.raises(RuntimeError, match="return_debug_mask"):
        aten._flash_attention_forward(*call, True)
    with pytest.raises(RuntimeError, match="alibi_slopes"):
        aten._flash_attention_forward(*call, False, alibi_slopes=torch.ones(2, device=device))
    with pytest.raises(RuntimeError, match="custom_mask_type"):
        aten._efficient_attention_forward(query, query, query, None, None, None, None, None, 0.0, 3)
