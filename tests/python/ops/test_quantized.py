"""Matmuls with quantised weights: every format against an independent unpacking, and errors of bad input."""

from __future__ import annotations

import gguf
import numpy as np
import pytest
import torch
from gguf.constants import GGML_QUANT_SIZES
from torch_opencl.quantized import (
    GGUF_FORMATS,
    GGUFEmbedding,
    GGUFLinear,
    QuantizedLinear,
    QuantizedWeight,
    quantize_linear_layers,
)

ROWS, COLUMNS = 37, 512
# Offsets of the float16 numbers in a block.
HALVES = {"q2_k": (80, 82), "q3_k": (108,), "q6_k": (208,)}
HALVES |= dict.fromkeys(("q4_1", "q5_1", "q4_k", "q5_k"), (0, 2))
# More rows than a kernel for few rows takes, and fewer.
INPUT_ROWS = (1, 3, 16, 40)
# The relative error of float32 sums.
TOLERANCE = 2e-6


def ggml_weight(name: str) -> tuple[torch.Tensor, torch.Tensor]:
    """Random blocks, and their values by the package gguf."""
    kind, random = gguf.GGMLQuantizationType[name.upper()], np.random.default_rng(0)
    columns, size = GGML_QUANT_SIZES[kind]
    raw = random.integers(0, 256, (ROWS, COLUMNS // columns * size), dtype=np.uint8)
    for start in HALVES.get(name, (0,)):
        blocks = raw.reshape(-1, size)
        blocks[:, start : start + 2] = random.normal(0, 0.1, (len(blocks), 1)).astype(np.float16).view(np.uint8)
    return torch.from_numpy(raw), torch.from_numpy(gguf.dequantize(raw, kind).copy())


def check_products(weight: QuantizedWeight, values: torch.Tensor) -> None:
    """Compare products with those of the unpacked values in float64."""
    torch.manual_seed(0)
    for rows in INPUT_ROWS:
        x = torch.randn(2, rows, values.shape[1])
        for dtype, tolerance in ((torch.float32, TOLERANCE), (torch.float16, 2e-3), (torch.bfloat16, 2e-2)):
            expected = x.to(dtype).double() @ values.double().t()
            found = weight.linear(x.to("opencl", dtype))
            assert found.dtype == dtype
            assert found.shape == (2, rows, values.shape[0])
            error = (found.cpu().double() - expected).abs().max() / expected.abs().max()
            assert error < tolerance, f"{rows} rows in {dtype}: {error}"


@pytest.mark.parametrize("name", GGUF_FORMATS)
def test_ggml_formats_are_unpacked_as_by_gguf(name):
    raw, values = ggml_weight(name)
    layer = GGUFLinear(raw, gguf.GGMLQuantizationType[name.upper()], ROWS, COLUMNS).to("opencl")
    torch.testing.assert_close(layer.weight.dequantize().cpu(), values, rtol=0, atol=0)
    check_products(layer.weight, values)


@pytest.mark.parametrize("name", GGUF_FORMATS)
def test_rows_of_ggml_embeddings_are_unpacked_as_by_gguf(name):
    raw, values = ggml_weight(name)
    layer = GGUFEmbedding(raw, name.upper(), ROWS, COLUMNS, torch.float32).to("opencl")
    ids = torch.tensor([[3, 0, ROWS - 1], [3, 1, 7]], dtype=torch.int64)
    torch.testing.assert_close(layer(ids.to("opencl")).cpu(), values[ids], rtol=0, atol=0)
    assert layer(ids[:0].to("opencl")).shape == (0, 3, COLUMNS)
    with pytest.raises(IndexError, match="index -1 is out of bounds"):
        layer(torch.tensor([-1], device="opencl"))


def test_rows_of_other_formats_are_refused():
    weight = QuantizedWeight(torch.zeros(4, 16, dtype=torch.uint8), "affine4", (4, 32), torch.ones(4, 1))
    with pytest.raises(ValueError, match="weights of format affine4 have scales in other tensors"):
        weight.rows(torch.tensor([0]))


def affine_values(codes, scales, zeros, group: int, bias: int, kind: str) -> torch.Tensor:
    codes = codes.float() - bias
    scales = scales.float().repeat_interleave(group, 1)
    zeros = 0 if zeros is None else zeros.float().repeat_interleave(group, 1)
    return (codes - zeros) * scales if kind == "codes" else codes * scales + (zeros if kind == "values" else 0)


@pytest.mark.parametrize("groups_first", [False, True])
@pytest.mark.parametrize(("kind", "bias"), [("absent", 8), ("codes", 0), ("values", 0)])
@pytest.mark.parametrize("group", [32, 128, COLUMNS])
def test_affine4_has_groups_zeros_and_a_bias(group, kind, bias, groups_first):
    torch.manual_seed(0)
    codes = torch.randint(0, 16, (ROWS, COLUMNS), dtype=torch.uint8)
    packed = codes[:, ::2] | codes[:, 1::2] << 4
    scales = torch.rand(ROWS, COLUMNS // group).to(torch.bfloat16)
    zeros = {"codes": torch.randint(0, 16, scales.shape), "values": torch.randn(scales.shape)}.get(kind)
    values = affine_values(codes, scales, zeros, group, bias, kind)
    given = [each if each is None or not groups_first else each.t().contiguous().t() for each in (scales, zeros)]
    weight = QuantizedWeight(
        packed, "affine4", (ROWS, COLUMNS), *given, group_size=group, bias=bias, zeros_kind=kind
    ).to("opencl")
    torch.testing.assert_close(weight.dequantize().cpu(), values, rtol=1e-6, atol=1e-6)
    check_products(weight, values)


@pytest.mark.parametrize("columns", [96, COLUMNS])
def test_affine8_has_a_scale_for_each_row(columns):
    torch.manual_seed(0)
    codes, scales = torch.randint(-128, 128, (ROWS, columns), dtype=torch.int8), torch.rand(ROWS)
    weight = QuantizedWeight(codes, "affine8", (ROWS, columns), scales, group_size=columns).to("opencl")
    values = codes.float() * scales[:, None]
    torch.testing.assert_close(weight.dequantize().cpu(), values, rtol=0, atol=0)
    check_products(weight, values)


@pytest.mark.parametrize("is_nested", [False, True])
@pytest.mark.parametrize("block", [32, 64, 4096])
def test_table4_has_scales_of_blocks_that_ignore_rows(block, is_nested):
    torch.manual_seed(0)
    codes, table = torch.randint(0, 16, (ROWS, COLUMNS), dtype=torch.uint8), torch.randn(16)
    packed = codes[:, ::2] << 4 | codes[:, 1::2]
    blocks = -(-ROWS * COLUMNS // block)
    scales, nested = torch.rand(blocks), None
    own = scales
    if is_nested:
        nested, values, offset = torch.randint(0, 256, (blocks,), dtype=torch.uint8), torch.randn(256), torch.randn(1)
        own = torch.rand(-(-blocks // 256))
        scales = values[nested.long()] * own[torch.arange(blocks) // 256] + offset
        table = torch.cat([table, values, offset])
    flat = table[codes.long()].flatten() * scales[torch.arange(ROWS * COLUMNS) // block]
    weight = QuantizedWeight(packed, "table4", (ROWS, COLUMNS), own, nested, table, block).to("opencl")
    torch.testing.assert_close(weight.dequantize().cpu().flatten(), flat, rtol=1e-6, atol=1e-6)
    check_products(weight, flat.view(ROWS, COLUMNS))


def test_codes_at_an_odd_address_are_read():
    raw = torch.randint(-128, 128, (ROWS * COLUMNS + 1,), dtype=torch.int8)
    codes = raw.to("opencl")[1:].view(ROWS, COLUMNS)
    weight = QuantizedWeight(codes, "affine8", (ROWS, COLUMNS), torch.ones(ROWS, device="opencl"), group_size=COLUMNS)
    assert torch.equal(weight.dequantize().cpu(), raw[1:].view(ROWS, COLUMNS).float())


@pytest.mark.parametrize("name", ["q4_k", "q6_k"])
def test_blocks_may_start_at_even_addresses_only(name):
    raw, values = ggml_weight(name)
    shifted = torch.cat([torch.zeros(2, dtype=torch.uint8), raw.flatten()]).to("opencl")
    assert torch.equal(QuantizedWeight(shifted[2:], name, (ROWS, COLUMNS)).dequantize(torch.float32).cpu(), values)
    with pytest.raises(RuntimeError, match="starts at an odd byte of memory: clone"):
        QuantizedWeight(shifted[1:-1], name, (ROWS, COLUMNS)).dequantize(torch.float32)


def test_gradients_reach_the_input_and_the_bias():
    raw, values = ggml_weight("q4_k")
    layer = GGUFLinear(raw, "Q4_K", ROWS, COLUMNS, torch.zeros(ROWS)).to("opencl")
    torch.manual_seed(0)
    x = torch.randn(3, COLUMNS)
    given = x.to("opencl").requires_grad_()
    layer(given).square().sum().backward()
    out = x @ values.t()
    expected = 2 * (out.double() @ values.double())
    assert (given.grad.cpu() - expected).abs().max() < 1e-5 * expected.abs().max()
    torch.testing.assert_close(layer.bias.grad.cpu(), 2 * out.sum(0), rtol=1e-4, atol=1e-3)


def test_no_rows_give_an_empty_result():
    raw, _ = ggml_weight("q8_0")
    layer = GGUFLinear(raw, "Q8_0", ROWS, COLUMNS).to("opencl")
    assert layer(torch.empty(0, COLUMNS, device="opencl")).shape == (0, ROWS)


def packed(**changes) -> QuantizedWeight:
    """A weight in affine4; the tensors of `changes` are given as functions."""
    given = {
        "codes": lambda: torch.zeros(ROWS, COLUMNS // 2, dtype=torch.uint8, device="opencl"),
        "format": "affine4",
        "shape": (ROWS, COLUMNS),
        "scales": lambda: torch.ones(ROWS, COLUMNS // 64, device="opencl"),
        "group_size": 64,
    }
    return QuantizedWeight(**{key: value() if callable(value) else value for key, value in (given | changes).items()})


def of(*sizes: int, dtype: torch.dtype = torch.float32, device: str = "opencl"):
    return lambda: torch.ones(sizes, dtype=dtype).to(device)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"format": "q9_9"}, "unknown format 'q9_9': the formats are q4_0, "),
        ({"format": "q4_k", "shape": (ROWS, 96), "scales": None}, "'q4_k' has a multiple of 256 columns, got 96"),
        ({"shape": (ROWS + 1, COLUMNS)}, "has 9728 bytes, got 9472"),
        ({"shape": (-1, COLUMNS)}, "expected a weight of at least 0 x 1, got -1 x 512"),
        ({"group_size": 48}, "expected a group size of 32"),
        ({"group_size": 1024}, "expected groups of 1024 to divide a row of 512"),
        ({"bias": 16}, "the bias of format 'affine4' is 0 to 15, got 16"),
        ({"scales": None}, "'affine4' needs scales"),
        ({"scales": of(3, 3)}, r"expected scales of shape \[37, 8\], got \[3, 3\]"),
        ({"scales": of(8, ROWS)}, r"expected scales of shape \[37, 8\], got \[8, 37\]"),
        ({"scales": of(ROWS, 8, dtype=torch.float8_e4m3fn)}, "expected scales to be .*, got torch.float8_e4m3fn"),
        ({"scales": of(ROWS, 8, device="cpu")}, "expected all tensors on opencl:0, got one on cpu"),
        ({"zeros": of(ROWS, 8, dtype=torch.uint16), "zeros_kind": "codes"}, "zeros to be .*, got torch.uint16"),
        ({"zeros": of(ROWS, 4), "zeros_kind": "codes"}, r"expected zeros of shape \[37, 8\], got \[37, 4\]"),
        ({"zeros": of(ROWS, 8), "zeros_kind": "ones"}, "expected zeros_kind 'absent', 'codes' or 'values', got 'ones'"),
        ({"zeros_kind": "codes"}, "zeros_kind 'codes' does not fit"),
        ({"format": "table4"}, "'table4' needs a table"),
        ({"format": "table4", "zeros_kind": "codes"}, "'table4' has no zeros_kind"),
        ({"format": "table4", "table": of(15)}, "expected 16 values of the table, got 15"),
        ({"format": "table4", "table": of(16), "scales": of(295)}, "expected 296 scales for blocks of 64, got 295"),
    ],
)
def test_weights_that_do_not_fit_their_format_are_refused(changes, message):
    with pytest.raises(RuntimeError, match=message):
        packed(**changes).dequantize()


def test_a_weight_of_too_many_bytes_is_refused():
    with pytest.raises(RuntimeError, match="has too many bytes, got 9472"):
        packed(shape=(1 << 58, COLUMNS)).linear(torch.ones(1, COLUMNS, device="opencl"))


def test_scales_of_a_square_are_not_taken_for_their_transpose():
    torch.manual_seed(0)
    codes, scales = torch.full((8, 128), 0x11, dtype=torch.uint8), torch.rand(8, 8)
    weight = QuantizedWeight(codes, "affine4", (8, 256), scales, group_size=32).to("opencl")
    assert torch.equal(weight.dequantize().cpu(), scales.repeat_interleave(32, 1))
    transposed = QuantizedWeight(codes, "affine4", (8, 256), scales.t(), group_size=32).to("opencl")
    assert torch.equal(transposed.dequantize().cpu(), scales.t().repeat_interleave(32, 1))


@pytest.mark.parametrize(
    ("x", "message"),
    [
        (torch.ones(2, 7), "expected x with 512 columns"),
        (torch.ones(2, COLUMNS, dtype=torch.int32), "expected x to be float32, float16 or bfloat16, got Int"),
    ],
)
def test_inputs_that_do_not_fit_are_refused(x, message):
    with pytest.raises(RuntimeError, match=message):
        packed().linear(x.to("opencl"))


def test_a_layer_of_an_unknown_type_is_refused():
    with pytest.raises(ValueError, match="no kernel for tensors of type IQ1_S"):
        GGUFLinear(torch.zeros(1, dtype=torch.uint8), "IQ1_S", 1, 256)


def test_torch_compile_knows_the_shape():
    raw, values = ggml_weight("q4_0")
    layer = GGUFLinear(raw, "Q4_0", ROWS, COLUMNS).to("opencl")
    x = torch.randn(3, COLUMNS)
    found = torch.compile(lambda x: layer(x).relu(), fullgraph=True)(x.to("opencl"))
    torch.testing.assert_close(found.cpu(), (x @ values.t()).relu(), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("group", [32, 128])
def test_layers_are_rounded_to_sixteen_values_a_group(group, dtype):
    torch.manual_seed(0)
    linear = torch.nn.Linear(256, 24).to(dtype)
    with torch.no_grad():
        linear.weight[3] = 0.5
    layer = QuantizedLinear(linear, group).to("opencl")
    weight = linear.weight.detach().float()
    groups = weight.view(24, -1, group)
    # Half a step; rounded offsets and scales move all 16 values.
    step = (groups.amax(2) - groups.amin(2)) / 15
    allowed = step / 2 + (0 if dtype == torch.float32 else 0.02) * groups.abs().amax(2) + 1e-6
    found = layer.weight.dequantize().cpu().view_as(groups)
    assert ((found - groups).abs() <= allowed[..., None]).all()
    assert layer.weight.codes.shape == (24, 128)
    x = torch.randn(2, 256, dtype=dtype)
    expected = x.float() @ found.view(24, 256).t() + linear.bias.detach().float().cpu()
    torch.testing.assert_close(layer(x.to("opencl")).detach().float().cpu(), expected, rtol=1e-2, atol=1e-2)


def test_the_linear_layers_of_a_model_are_replaced():
    class Doubled(torch.nn.Linear):
        def forward(self, x):
            return 2 * super().forward(x)

    model = torch.nn.ModuleDict(
        {
            "first": torch.nn.Linear(64, 8),
            "inner": torch.nn.Sequential(torch.nn.Linear(128, 8), torch.nn.Linear(48, 8)),
            "lm_head": torch.nn.Linear(64, 8),
            "doubled": Doubled(64, 8),
        }
    )
    assert quantize_linear_layers(model) == 2
    assert {name for name, each in model.named_modules() if isinstance(each, QuantizedLinear)} == {"first", "inner.0"}
    with pytest.raises(ValueError, match=r"a multiple of 64, got torch\.float32 and 48 columns"):
        QuantizedLinear(torch.nn.Linear(48, 8))


def test_layers_keep_the_dtype_of_their_input_and_follow_casts():
    raw, _ = ggml_weight("q8_0")
    half = torch.randn(2, COLUMNS, device="opencl", dtype=torch.float16)
    # Biases are float32 in GGUF files.
    assert GGUFLinear(raw, "Q8_0", ROWS, COLUMNS, torch.randn(ROWS)).to("opencl")(half).dtype == torch.float16
    table = GGUFEmbedding(raw, "Q8_0", ROWS, COLUMNS, torch.float32).to("opencl").half()
    assert table(torch.tensor([1], device="opencl")).dtype == torch.float16


def test_a_layer_with_two_names_stays_one_layer():
    model = torch.nn.Module()
    model.first = model.second = torch.nn.Linear(64, 8)
    assert quantize_linear_layers(model.eval()) == 1
    assert model.first is model.second
    assert not model.first.training
    assert quantize_linear_layers(torch.nn.Linear(64, 8)) == 0


@pytest.mark.parametrize("group", [0, 16, 48, 32.0, "32"])
def test_other_sizes_of_groups_are_refused(group):
    with pytest.raises(ValueError, match="expected a group_size that is a power of two from 32 on"):
        quantize_linear_layers(torch.nn.Sequential(torch.nn.Linear(64, 8)), group)
