"""bitsandbytes' layers on the device: it finds this package by an entry point."""

import pytest
import torch
from torch_opencl import _bitsandbytes

bitsandbytes = pytest.importorskip(
    "bitsandbytes", reason="bitsandbytes is not installed: make libraries", exc_type=ImportError
)
quantisation = bitsandbytes.functional

ROWS, COLUMNS = 64, 512


def layer(kind: str, dtype: torch.dtype, is_nested: bool, shift: float = 0.0) -> torch.nn.Module:
    options = {"quant_type": kind, "compress_statistics": is_nested}
    made = bitsandbytes.nn.Linear4bit(COLUMNS, ROWS, compute_dtype=dtype, **options)
    weight = (torch.randn(ROWS, COLUMNS) + shift).to(dtype)
    made.weight = bitsandbytes.nn.Params4bit(weight, requires_grad=False, **options)
    return made.to("opencl")


def error(found: torch.Tensor, expected: torch.Tensor) -> float:
    return ((found.detach().cpu().double() - expected).abs().max() / expected.abs().max()).item()


@pytest.mark.parametrize("is_nested", [False, True])
@pytest.mark.parametrize("kind", ["nf4", "fp4"])
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 2e-6), (torch.bfloat16, 1e-2)])
def test_linear4bit_is_the_matmul_with_its_dequantised_weight(dtype, tolerance, kind, is_nested):
    torch.manual_seed(0)
    made = layer(kind, dtype, is_nested)
    weight = quantisation.dequantize_4bit(made.weight.data, made.weight.quant_state).cpu().double()
    for rows in (1, 3, 40):
        x = torch.randn(rows, COLUMNS).to(dtype)
        given = x.to("opencl").requires_grad_()
        out = made(given)
        assert error(out, x.double() @ weight.t() + made.bias.detach().cpu().double()) < tolerance
        out.sum().backward()
        assert error(given.grad, weight.sum(0).expand(rows, -1)) < tolerance
    assert torch.opencl.fallbacks() == {}


def test_codes_and_values_are_those_of_the_cpu():
    torch.manual_seed(0)
    weight = torch.randn(ROWS, COLUMNS)
    codes, state = quantisation.quantize_4bit(weight.to("opencl"), quant_type="nf4")
    expected_codes, expected_state = quantisation.quantize_4bit(weight, quant_type="nf4")
    assert torch.equal(codes.cpu(), expected_codes)
    expected = quantisation.dequantize_4bit(expected_codes, expected_state)
    assert torch.equal(quantisation.dequantize_4bit(codes, state).cpu(), expected)


def test_layers_with_nested_scales_keep_their_own_offsets():
    torch.manual_seed(0)
    layers = [layer("nf4", torch.float32, is_nested=True, shift=shift) for shift in range(4)]
    x = torch.randn(2, COLUMNS)
    for made in [*layers, *layers]:
        weight = quantisation.dequantize_4bit(made.weight.data, made.weight.quant_state).cpu().double()
        assert error(made(x.to("opencl")), x.double() @ weight.t() + made.bias.detach().cpu().double()) < 2e-6


@pytest.mark.parametrize("count", [1, 31, 33, 100, 4096])
def test_any_number_of_values_is_dequantised(count):
    torch.manual_seed(0)
    values = torch.randn(count)
    codes, state = quantisation.quantize_4bit(values.to("opencl"), quant_type="nf4", blocksize=64)
    found = quantisation.dequantize_4bit(codes, state).cpu()
    assert found.shape == values.shape
    assert (found - values).abs().max() <= 0.2 * values.abs().max()


def test_a_broken_installation_does_not_break_bitsandbytes(monkeypatch):
    monkeypatch.setattr("torch_opencl._load._error", "the native library does not exist")
    monkeypatch.setattr("torch.library.register_kernel", lambda *_: pytest.fail("a kernel for an unknown device"))
    _bitsandbytes.register()


def test_linear8bit_is_close_to_the_float_layer():
    torch.manual_seed(0)
    made = bitsandbytes.nn.Linear8bitLt(COLUMNS, ROWS, has_fp16_weights=False, threshold=6.0)
    weight, bias = made.weight.data.clone(), made.bias.detach().clone()
    x = torch.randn(5, COLUMNS, dtype=torch.float16)
    found = made.to("opencl")(x.to("opencl"))
    assert error(found, x.double() @ weight.double().t() + bias.double()) < 2e-2
