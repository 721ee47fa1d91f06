"""Attention and transformers against the CPU, forward and backward."""

import copy

import pytest
import torch
from op_samples import NoFallback, assert_same
from op_table import covers
from torch import nn
from torch.nn.functional import scaled_dot_product_attention as attention

# Errors against float64 results, for values up to 1 or relative to the largest: two roundings of 16 bits.
DTYPES = {torch.float32: 2e-6, torch.float16: 1e-3, torch.bfloat16: 8e-3}
MASKS = {
    "none": lambda: {},
    "causal": lambda: {"is_causal": True},
    "bool": lambda: {"attn_mask": torch.ones(6, 9).tril(2).bool()},
    "float": lambda: {"attn_mask": torch.randn(2, 1, 6, 9)},
    "scaled": lambda: {"scale": 0.3},
}


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("mask", MASKS)
def test_attention(mask: str, dtype: torch.dtype, device: torch.device) -> None:
    query, key, value = torch.randn(2, 4, 6, 8), torch.randn(2, 4, 9, 8), torch.randn(2, 4, 9, 5)
    weights, how = torch.randn(2, 4, 6, 5), MASKS[mask]()
    inputs = [tensor.to(dtype) for tensor in (query, key, value)]

    def run(where: torch.device, wide: torch.dtype) -> list[torch.Tensor]:
        here = [tensor.to(where, wide).requires_grad_() for tensor in inputs]
        given = {
            name: option.to(where, wide if option.is_floating_point() else option.dtype)
            if isinstance(option, torch.Tensor)
            else option
            for name, option in how.items()
        }
        result = attention(*here, **given)
        return [result, *torch.autograd.grad((result * weights.to(where, wide)).sum(), here)]

    with NoFallback():
        actual = run(device, dtype)
    for mine, exact in zip(actual, run(torch.device("cpu"), torch.float64), strict=True):
        assert mine.dtype == dtype
        limit = DTYPES[dtype] * max(1.0, exact.abs().max().item())
        torch.testing.assert_close(mine.cpu().double(), exact, rtol=0, atol=limit)


def test_groups_of_queries_share_keys(device: torch.device) -> None:
    query, key, value = torch.randn(2, 8, 5, 4), torch.randn(2, 2, 7, 4), torch.randn(2, 2, 7, 4)
    expected = attention(query, key, value, enable_gqa=True)
    with NoFallback():
        actual = attention(*(tensor.to(device) for tensor in (query, key, value)), enable_gqa=True)
    assert_same(actual, expected)


def test_dropout_keeps_the_mean(device: torch.device) -> None:
    """With equal weights and values of 1, each result is the number of kept elements times 1 / (1 - p) / length."""
    query, key = torch.zeros(4, 8, 64, 16, device=device), torch.zeros(4, 8, 128, 16, device=device)
    value = torch.ones(4, 8, 128, 1, device=device, requires_grad=True)
    result = attention(query, key, value, dropout_p=0.25)
    # 128 draws each, with variance p / (1 - p); 2048 results.
    assert result.mean().item() == pytest.approx(1, abs=0.01)
    assert result.var().item() == pytest.approx(0.25 / 0.75 / 128, rel=0.15)
    (grad,) = torch.autograd.grad(result.sum(), value)
    assert grad.sum().item() == pytest.approx(result.sum().item(), rel=1e-4), "the backward drops the same elements"


@pytest.mark.parametrize("norm_first", [False, True])
def test_encoder(norm_first: bool, device: torch.device) -> None:
    layer = nn.TransformerEncoderLayer(16, 4, 32, dropout=0.0, batch_first=True, norm_first=norm_first)
    encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
    values = torch.randn(3, 7, 16)

    def run(where: torch.device) -> list[torch.Tensor]:
        here = copy.deepcopy(encoder).to(where)
        result = here(values.to(where))
        return [result, *torch.autograd.grad(result.square().sum(), list(here.parameters()))]

    with NoFallback():
        actual = run(device)
    assert_same(actual, run(torch.device("cpu")))


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("activation", ["relu", "gelu"])
@covers("_transformer_encoder_layer_fwd", "_transform_bias_rescale_qkv", "_addmm_activation", "_masked_softmax")
def test_encoder_without_gradients(activation: str, masked: bool, device: torch.device, no_fallback: None) -> None:
    """Without gradients PyTorch uses another path, with operators that are fused on CPU and CUDA."""
    encoder = nn.TransformerEncoderLayer(16, 4, 32, batch_first=True, activation=activation).eval()
    values = torch.randn(3, 7, 16)
    padding = torch.arange(7).expand(3, 7) >= torch.tensor([7, 4, 5]).view(3, 1) if masked else None
    there = copy.deepcopy(encoder).to(device)
    with torch.inference_mode():
        expected = encoder(values, src_key_padding_mask=padding)
        actual = there(values.to(device), src_key_padding_mask=padding.to(device) if masked else None)
    kept = ~padding if masked else torch.ones(3, 7, dtype=torch.bool)
    assert_same(actual[kept.to(device)], expected[kept])


@pytest.mark.parametrize("need_weights", [False, True])
@covers("_native_multi_head_attention")
def test_multihead_attention_without_gradients(need_weights: bool, device: torch.device, no_fallback: None) -> None:
    module = nn.MultiheadAttention(16, 4, batch_first=True).eval()
    values = torch.randn(3, 7, 16)
    there = copy.deepcopy(module).to(device)
    with torch.inference_mode():
        expected = module(values, values, values, need_weights=need_weights)
        moved = values.to(device)
        actual = there(moved, moved, moved, need_weights=need_weights)
    assert_same([part for part in actual if part is not None], [part for part in expected if part is not None])
