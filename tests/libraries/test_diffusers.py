"""diffusers: GGUF layers are computed with packed weights; diffusers itself rounds weights to float16."""

import pytest
import torch
import torch_opencl

diffusers = pytest.importorskip("diffusers", reason="diffusers is not installed: make libraries")
gguf = pytest.importorskip("gguf", reason="gguf is not installed: make libraries")


@pytest.fixture
def enabled():
    torch_opencl.integrations.enable("diffusers")
    yield
    torch_opencl.integrations.disable("diffusers")


@pytest.mark.parametrize("kind", ["Q8_0", "Q4_0", "Q5_1"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_gguf_layers_use_packed_weights(device, enabled, kind, dtype):
    from diffusers.quantizers.gguf import utils

    torch.manual_seed(0)
    kind = gguf.GGMLQuantizationType[kind]
    layer = utils.GGUFLinear(256, 96, bias=True, compute_dtype=dtype)
    packed = gguf.quantize(torch.randn(96, 256).numpy(), kind)
    layer.weight = utils.GGUFParameter(torch.from_numpy(packed), quant_type=kind)
    x = torch.randn(2, 3, 256, dtype=dtype)
    expected = x.float() @ torch.from_numpy(gguf.dequantize(packed, kind)).t() + layer.bias.float()
    layer.to(device)
    with torch.profiler.profile() as profile:
        found = layer(x.to(device))
    assert found.dtype == dtype
    tolerance = 1e-4 if dtype == torch.float32 else 5e-2
    torch.testing.assert_close(found.float().cpu(), expected, rtol=tolerance, atol=tolerance)
    assert "torch_opencl::quantized_linear" in {event.key for event in profile.key_averages()}
