"""torchao's weights of 4 and 8 bits, multiplied as they are stored."""

from copy import deepcopy

import pytest
import torch
import torch_opencl
from torch_opencl.quantized import QuantizedWeight

pytest.importorskip("torchao", reason="torchao is not installed: make libraries", exc_type=ImportError)
from torchao.quantization import (
    Int4WeightOnlyConfig,
    Int8DynamicActivationInt8WeightConfig,
    Int8WeightOnlyConfig,
    IntxWeightOnlyConfig,
    quantize_,
)
from torchao.quantization.granularity import PerAxis, PerGroup

ROWS, COLUMNS = 96, 256
CONFIGS = {
    "int4": Int4WeightOnlyConfig(group_size=64, int4_packing_format="plain_int32", set_inductor_config=False),
    "int8": Int8WeightOnlyConfig(version=2, set_inductor_config=False),
    "intx of 4 bits": IntxWeightOnlyConfig(weight_dtype=torch.int4, granularity=PerGroup(32)),
    "intx of 8 bits": IntxWeightOnlyConfig(weight_dtype=torch.int8, granularity=PerAxis(0)),
}
# Limits of errors relative to the largest result: rounding to codes changes a weight by up to half a step.
STEPS = {"int4": 0.08, "int8": 0.01, "intx of 4 bits": 0.08, "intx of 8 bits": 0.01}


@pytest.fixture(autouse=True)
def enabled():
    torch_opencl.integrations.enable("torchao")
    yield
    torch_opencl.integrations.disable("torchao")


@pytest.fixture
def products(monkeypatch) -> list[str]:
    """The formats of the packed weights that have been multiplied."""
    formats = []
    original = QuantizedWeight.linear

    def linear(self, *arguments):
        formats.append(self.format)
        return original(self, *arguments)

    monkeypatch.setattr(QuantizedWeight, "linear", linear)
    return formats


def error(found: torch.Tensor, expected: torch.Tensor) -> float:
    return ((found.double() - expected.double()).abs().max() / expected.double().abs().max()).item()


@pytest.mark.parametrize("name", CONFIGS)
def test_layers_multiply_packed_weights(name, products):
    torch.manual_seed(0)
    given = torch.nn.Linear(COLUMNS, ROWS).to("opencl", torch.bfloat16)
    layer = deepcopy(given)
    quantize_(layer, CONFIGS[name])
    for rows in (1, 3, 40):
        x = torch.randn(rows, COLUMNS, device="opencl", dtype=torch.bfloat16).requires_grad_()
        out = layer(x)
        assert error(out, given(x)) < STEPS[name]
        if hasattr(type(layer.weight), "dequantize") and name != "int4":
            expected = torch.nn.functional.linear(x.float(), layer.weight.dequantize().float(), given.bias.float())
            assert error(out, expected) < 1e-2
        out.sum().backward()
        assert x.grad.abs().sum() > 0
    assert products == ["affine4" if name == "int4" else "affine8"] * 3


def test_layers_compile_without_a_break():
    torch.manual_seed(0)
    layer = torch.nn.Linear(COLUMNS, ROWS).to("opencl", torch.bfloat16)
    quantize_(layer, CONFIGS["int4"])
    x = torch.randn(3, COLUMNS, device="opencl", dtype=torch.bfloat16)
    torch.testing.assert_close(torch.compile(layer, fullgraph=True)(x), layer(x))


def test_quantised_activations_stay_as_they_are(products):
    torch.manual_seed(0)
    given = torch.nn.Linear(COLUMNS, ROWS).to("opencl", torch.bfloat16)
    layer = deepcopy(given)
    quantize_(layer, Int8DynamicActivationInt8WeightConfig(version=2, set_inductor_config=False))
    x = torch.randn(3, COLUMNS, device="opencl", dtype=torch.bfloat16)
    assert error(layer(x), given(x)) < 0.03
    assert products == []


def test_a_weight_that_cannot_be_packed_is_refused():
    layer = torch.nn.Linear(48, ROWS).to("opencl", torch.bfloat16)
    config = Int4WeightOnlyConfig(group_size=16, int4_packing_format="plain_int32", set_inductor_config=False)
    with pytest.raises(NotImplementedError, match=r"a multiple of 32 columns, .* but got shape \(96, 48\)"):
        quantize_(layer, config)


def test_without_the_call_torchao_refuses_the_device():
    torch_opencl.integrations.disable("torchao")
    layer = torch.nn.Linear(COLUMNS, ROWS).to("opencl", torch.bfloat16)
    with pytest.raises(NotImplementedError, match="does not support device 'opencl'"):
        quantize_(layer, CONFIGS["int4"])
