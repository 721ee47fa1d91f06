"""Layers of hqq: packed again, they give the results of hqq's own dequantised weights."""

import pytest
import torch
from torch_opencl.quantized import QuantizedLinear
from torch_opencl.repack import from_hqq, replace_hqq_layers

hqq = pytest.importorskip("hqq.core.quantize", reason="hqq is not installed: make libraries")


def quantised(bits, **options):
    config = hqq.BaseQuantizeConfig(nbits=bits, **{"group_size": 64, "axis": 1, **options})
    return hqq.HQQLinear(torch.nn.Linear(256, 90), config, compute_dtype=torch.float32, device="opencl")


@pytest.mark.parametrize("bits", [1, 2, 3, 4, 8])
def test_layers_give_the_results_of_dequantised_weights(device, bits):
    layer = quantised(bits)
    x = torch.randn(3, 256, device=device)
    packed = from_hqq(layer)
    torch.testing.assert_close(packed(x), layer(x), rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(packed.weight.dequantize(), layer.dequantize(), rtol=1e-4, atol=1e-4)


def test_models_are_changed_in_place(device):
    shared = quantised(4)
    model = torch.nn.Sequential(shared, torch.nn.ReLU(), torch.nn.Linear(90, 256, device=device), shared)
    x = torch.randn(2, 256, device=device)
    expected = model(x)
    assert replace_hqq_layers(model) == 1
    assert isinstance(model[0], QuantizedLinear) and model[0] is model[3]
    torch.testing.assert_close(model(x), expected, rtol=1e-4, atol=1e-4)


def test_other_layouts_are_refused(device):
    with pytest.raises(ValueError, match="axis=1"):
        from_hqq(quantised(4, axis=0))
    with pytest.raises(ValueError, match="from 32 on, got 16 columns"):
        from_hqq(quantised(4, group_size=16))
    with pytest.raises(ValueError, match=r"1 to 4 or 8 bits.*got axis=1, 5 bits"):
        from_hqq(quantised(5))
    model = torch.nn.Sequential(quantised(4), quantised(4, axis=0))
    with pytest.raises(ValueError, match=r"layer 1: .*axis=0"):
        replace_hqq_layers(model)
    assert not isinstance(model[0], QuantizedLinear)
