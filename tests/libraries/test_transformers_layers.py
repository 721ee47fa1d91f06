"""Layers of transformers' models that `integrations.enable("transformers")` computes in fewer launches."""

import pytest
import torch
import torch_opencl
from torch.profiler import ProfilerActivity, profile

transformers = pytest.importorskip("transformers", reason="transformers is not installed: make libraries")
SIZES = {"hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2, "vocab_size": 64}
HEADS = {"num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16}
FUSED = {"turn_heads": 2, "norm_rows": 5}


@pytest.fixture(autouse=True)
def enabled():
    torch_opencl.integrations.enable("transformers")
    before = torch.backends.opencl.small_calls()
    torch.backends.opencl.small_calls("kernels")
    yield
    torch.backends.opencl.small_calls(before)


def model_of(name: str):
    config = getattr(transformers, f"{name}Config")(**SIZES, **HEADS, pad_token_id=0)
    return getattr(transformers, f"{name}ForCausalLM")(config).eval()


def launches(work) -> dict[str, int]:
    """Count the launches of the fused kernels."""
    work()
    with profile(activities=[ProfilerActivity.PrivateUse1]) as found:
        work()
        torch.opencl.synchronize()
    names = [event.name for event in found.events()]
    return {name: names.count(name) for name in FUSED}


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize("name", ["Llama", "Mistral", "Qwen2"])
def test_logits_are_as_on_the_cpu(device, name, dtype):
    model, tokens = model_of(name), torch.arange(3, 29).view(2, 13)
    with torch.no_grad():
        expected = model(tokens).logits
        model.to(device, dtype)
        assert launches(lambda: model(tokens.to(device))) == FUSED
        ours = model(tokens.to(device)).logits.cpu().float()
    torch.testing.assert_close(ours, expected, rtol=0, atol=1e-5 if dtype == torch.float32 else 2e-2)


def test_generated_tokens_and_gradients_are_as_on_the_cpu(device):
    model, tokens = model_of("Llama"), torch.arange(3, 29).view(2, 13)
    options = {"max_new_tokens": 8, "do_sample": False, "pad_token_id": 0}
    expected = model.generate(tokens, **options)
    model(tokens, labels=tokens).loss.backward()
    gradients = {name: weight.grad for name, weight in model.named_parameters()}
    model.zero_grad()
    model.to(device)
    assert torch.equal(model.generate(tokens.to(device), **options).cpu(), expected)
    model(tokens.to(device), labels=tokens.to(device)).loss.backward()
    for name, weight in model.named_parameters():
        torch.testing.assert_close(weight.grad.cpu(), gradients[name], rtol=1e-3, atol=1e-5, msg=name)


def test_other_layers_and_mixed_dtypes_keep_their_functions(device):
    gemma, tokens = model_of("Gemma"), torch.arange(3, 16)[None]
    expected = gemma(tokens).logits
    ours = gemma.to(device)(tokens.to(device)).logits
    torch.testing.assert_close(ours.cpu(), expected, rtol=1e-4, atol=1e-4)
    norm = model_of("Llama").model.norm.to(device)
    half = torch.randn(3, 64, device=device).half()
    assert norm(half).dtype == torch.float32 == norm.cpu()(half.cpu()).dtype
    with torch.autocast("opencl", torch.float16):
        assert norm.to(device)(half.float()).dtype == torch.float32


def test_transforms_and_traces_see_every_step(device):
    model_of("Llama")
    rotary = transformers.models.llama.modeling_llama.apply_rotary_pos_emb
    q, k = (
        torch.randn(2, 5, 4, 8, device=device).transpose(1, 2),
        torch.randn(2, 5, 2, 8, device=device).transpose(1, 2),
    )
    angles = torch.randn(1, 5, 8, device=device)
    with torch.no_grad():
        expected = rotary(q, k, angles, angles)
        traced = torch.jit.trace(rotary, (q, k, angles, angles))(q * 2, k * 2, angles, angles)
        batched = torch.vmap(rotary, (0, 0, None, None))(q[None], k[None], angles, angles)
    for one, two, three in zip(expected, traced, batched, strict=True):
        torch.testing.assert_close(two, one * 2)
        torch.testing.assert_close(three[0], one)


def test_disabling_restores_the_functions():
    model_of("Llama")
    module = transformers.models.llama.modeling_llama
    assert hasattr(module.LlamaRMSNorm.forward, "__wrapped__") and hasattr(module.apply_rotary_pos_emb, "__wrapped__")
    torch_opencl.integrations.disable("transformers")
    assert not hasattr(module.LlamaRMSNorm.forward, "__wrapped__")
    assert not hasattr(module.apply_rotary_pos_emb, "__wrapped__")
