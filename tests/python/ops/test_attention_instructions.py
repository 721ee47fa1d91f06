"""Attention by emulated matrix instructions: masks, dropout, shapes, and the check before their use."""

from textwrap import dedent

import pytest
from test_matrix_instructions import on_cpus, run

ATTENTION = """
    import json
    import torch
    import torch.nn.functional as F
    torch.manual_seed(0)

    def attend(batch, heads, key_heads, queries, keys, head_dim, value_head_dim, dtype, mask=None, **options):
        # Rows of a projection [batch, length, heads, head_dim]: those of a head are not neighbours.
        given = [torch.randn(batch, n, h, d).to(dtype).transpose(1, 2) for n, h, d in (
            (queries, heads, head_dim), (keys, key_heads, head_dim), (keys, key_heads, value_head_dim))]
        if mask == "boolean":
            options["attn_mask"] = torch.rand(queries, keys) < 0.7
            options["attn_mask"][3] = False
        elif mask is not None:
            options["attn_mask"] = torch.randn(batch, 1, queries, keys).to(dtype)
            options["attn_mask"][..., 5:] += mask
        exact = {n: v.double() if n == "attn_mask" and v.is_floating_point() else v for n, v in options.items()}
        expected = F.scaled_dot_product_attention(*(t.double() for t in given), **exact)
        options = {n: v.to("opencl") if n == "attn_mask" else v for n, v in options.items()}
        leaves = [t.to("opencl").requires_grad_() for t in given]
        found = F.scaled_dot_product_attention(*leaves, **options)
        tolerance = 4e-3 if dtype == torch.float16 else 3e-2
        assert (found.cpu().double() - expected).abs().max() < tolerance, (found.cpu().double() - expected).abs().max()
        found.float().square().sum().backward()
        references = [t.double().requires_grad_() for t in given]
        F.scaled_dot_product_attention(*references, **exact).square().sum().backward()
        for mine, right in zip(leaves, references):
            largest = right.grad.abs().max().clamp_min(1e-30)  # what float32 represents
            error = (mine.grad.cpu().double() - right.grad).abs().max() / largest
            assert error < 8 * tolerance, error

    half, bfloat16 = torch.float16, torch.bfloat16
"""
ONE_CALL = """
    attend(1, 2, 1, 70, 90, 16, 16, half, is_causal=True, enable_gqa=True)
"""
ALL_CALLS = """
    attend(2, 4, 2, 70, 150, 64, 64, half, enable_gqa=True)
    attend(1, 2, 2, 150, 150, 64, 64, half, is_causal=True)
    attend(1, 2, 2, 33, 40, 24, 40, bfloat16, scale=0.3)  # rows that are shorter than in local memory
    attend(1, 1, 1, 20, 70, 128, 128, bfloat16, mask="boolean")  # a query that sees no key
    attend(1, 2, 1, 40, 70, 32, 16, half, mask=0.0, enable_gqa=True)
    attend(1, 1, 1, 40, 70, 32, 32, half, mask=-65504.0)  # the lowest float16 hides keys
    attend(1, 1, 1, 40, 70, 32, 32, half, scale=1e-50)  # 0 in float32
    attend(1, 1, 1, 40, 70, 12, 12, half)  # no whole chunks: another kernel
    nan = torch.randn(1, 1, 40, 64).half().to("opencl")
    nan[0, 0, 7, 3] = torch.nan
    found = F.scaled_dot_product_attention(nan, nan.nan_to_num(), nan.nan_to_num())
    assert found.isnan().any(-1).nonzero().cpu().tolist() == [[0, 0, 7]]
"""
DROPOUT = """
    def drop(heads, key_heads, queries, keys, causal=False, p=0.25, head_dim=16, dtype=torch.float16):
        sizes = (heads, queries), (key_heads, keys), (key_heads, keys)
        given = [torch.randn(1, *size, head_dim).to(dtype) for size in sizes]
        tolerance = 4e-3 if dtype == torch.float16 else 3e-2

        def attend(query, key, value):
            torch.manual_seed(3)
            return F.scaled_dot_product_attention(query, key, value, dropout_p=p, is_causal=causal, enable_gqa=True)

        # In float32 another kernel draws the same. With the unit matrix as values, the results are the weights.
        unit = torch.eye(keys, device="opencl").expand(1, key_heads, keys, keys)
        kept = (attend(*(t.float().to("opencl") for t in given[:2]), unit).cpu() != 0) / (1 - p)
        references = [t.double().requires_grad_() for t in given]
        query, key, value = (t.repeat_interleave(heads // t.shape[1], 1) for t in references)
        scores = query @ key.mT / head_dim**0.5
        if causal:
            scores = scores.masked_fill(torch.ones(queries, keys).tril() == 0, -torch.inf)
        expected = (scores.softmax(-1) * kept) @ value
        leaves = [t.to("opencl").requires_grad_() for t in given]
        found = attend(*leaves)
        error = (found.cpu().double() - expected).abs().max() / expected.abs().max()
        assert error < tolerance, error
        found.float().square().sum().backward()
        expected.square().sum().backward()
        for mine, right in zip(leaves, references):
            error = (mine.grad.cpu().double() - right.grad).abs().max() / right.grad.abs().max()
            assert error < 5 * tolerance, error

    drop(2, 1, 70, 90, causal=True)
    drop(2, 2, 33, 91)
"""
LONG_DROPOUT = """
    drop(1, 1, 40, 40, causal=True, head_dim=128, dtype=torch.bfloat16)
"""
# In these and "mma" a lane has one, two or four of the weights that a counter of the random numbers decides on.
SLOW_KINDS = [pytest.param(kind, marks=pytest.mark.slow) for kind in ("dpas16", "dpas8", "mfma", "wmma")]
REPORT = """
    print(json.dumps(torch.backends.opencl.matrix_instructions()))
"""


@on_cpus
@pytest.mark.parametrize("kind", ["mma", pytest.param("dpas8", marks=pytest.mark.slow)])
def test_attention_by_matrix_instructions(kind):
    report = run(f"emulated:{kind}", ATTENTION + ONE_CALL + REPORT)
    # Forward, the gradient of queries, and those of keys and values.
    assert (report["used"], report["refused"]) == (3, 0)


@on_cpus
@pytest.mark.slow
@pytest.mark.parametrize("kind", ["mma", "dpas16", "mfma", "wmma", "wmma12"])  # dpas8 takes more than five minutes
def test_all_forms_of_attention_by_matrix_instructions(kind):
    report = run(f"emulated:{kind}", ATTENTION + ALL_CALLS + REPORT)
    assert report["used"] >= 12
    assert report["refused"] == 0


@on_cpus
@pytest.mark.parametrize("kind", ["mma", *SLOW_KINDS])
def test_dropout_of_attention_by_matrix_instructions(kind):
    report = run(f"emulated:{kind}", ATTENTION + DROPOUT + REPORT)
    # The forward pass and two gradients. The second call has fewer queries: "mma" has a form of its own for it.
    assert (report["used"], report["refused"]) == (4 if kind == "mma" else 3, 0)


@on_cpus
@pytest.mark.slow
def test_dropout_with_long_rows():
    report = run("emulated:mma", ATTENTION + DROPOUT + LONG_DROPOUT + REPORT)
    assert (report["used"], report["refused"]) == (7, 0)


@on_cpus
def test_attention_by_wrong_instructions_is_not_used():
    code = f"""
    import warnings
    with warnings.catch_warnings(record=True) as caught:
        exec({dedent(ATTENTION + ONE_CALL)!r})
    assert any("the attention kernel" in str(each.message) for each in caught), caught
    print(json.dumps(torch.backends.opencl.matrix_instructions()))
    """
    report = run("emulated:mma:wrong", code)
    # One form of the backward pass is not checked after the other one has failed.
    assert (report["used"], report["refused"]) == (0, 2)
