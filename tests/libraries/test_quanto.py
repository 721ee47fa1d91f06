"""quanto's weights and transformers' quantised caches on the device, against the same on the CPU."""

import warnings

import pytest
import torch

quanto = pytest.importorskip("optimum.quanto", reason="optimum-quanto is not installed: make libraries")
transformers = pytest.importorskip("transformers", reason="transformers is not installed: make libraries")


def unpack(packed: torch.Tensor, bits: int) -> torch.Tensor:
    return torch.cat([packed >> shift & 2**bits - 1 for shift in range(0, 8, bits)])


@pytest.fixture(autouse=True)
def without_a_compiler():
    """Replace the CPU's unpacking, which quanto compiles at first use."""
    library = torch.library.Library("quanto", "IMPL")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # It replaces a kernel.
        library.impl("unpack", unpack, "CPU", allow_override=True)
    yield
    library._destroy()


def llama():
    torch.manual_seed(0)
    sizes = {"hidden_size": 128, "intermediate_size": 256, "num_hidden_layers": 2, "vocab_size": 64}
    heads = {"num_attention_heads": 2, "num_key_value_heads": 1}
    return transformers.LlamaForCausalLM(transformers.LlamaConfig(**sizes, **heads)).eval()


@pytest.mark.parametrize("bits", [2, 4])
def test_quantised_caches_give_the_same_tokens(device, bits):
    model, tokens = llama(), torch.arange(3, 43)[None]
    config = {"backend": "quanto", "nbits": bits, "residual_length": 16, "q_group_size": 64}
    options = {"max_new_tokens": 24, "do_sample": False, "pad_token_id": 0}
    cached = {"cache_implementation": "quantized", "cache_config": config, **options}
    expected = model.generate(tokens, **cached)
    assert torch.equal(model.to(device).generate(tokens.to(device), **cached).cpu(), expected)


@pytest.mark.parametrize("weights", [quanto.qint2, quanto.qint4, quanto.qint8], ids=str)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_models_with_quantised_weights_are_as_on_the_cpu(device, dtype, weights):
    model, tokens = llama().to(dtype), torch.arange(3, 43)[None]
    quanto.quantize(model, weights=weights)
    quanto.freeze(model)
    with torch.no_grad():
        expected = model(tokens).logits
        ours = model.to(device)(tokens.to(device)).logits
    assert ours.device.type == "opencl"
    tolerance = 1e-4 if dtype == torch.float32 else 5e-2
    torch.testing.assert_close(ours.cpu(), expected, rtol=tolerance, atol=tolerance)
