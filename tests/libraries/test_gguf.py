"""Language models from GGUF files: weights stay packed, and results are those of the dequantised model."""

import re
import runpy
import sys
from pathlib import Path

import pytest
import torch
from torch_opencl.gguf import load
from torch_opencl.quantized import GGUFEmbedding, GGUFLinear

transformers = pytest.importorskip("transformers", reason="transformers is not installed: make libraries")
pytest.importorskip("accelerate", reason="accelerate is not installed: make libraries")
gguf = pytest.importorskip("gguf", reason="gguf is not installed: make libraries")

HIDDEN, LAYERS, HEADS, KEY_HEADS, VOCABULARY = 256, 2, 4, 2, 96
# Names of the layers of Llama and Qwen 2 in GGUF files.
NAMES = {
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
    "input_layernorm": "attn_norm",
    "post_attention_layernorm": "ffn_norm",
}
OUTER = {"model.embed_tokens": "token_embd", "model.norm": "output_norm", "lm_head": "output"}


def interleaved(weight, heads):
    """The rows of a query or key projection in the order of GGUF's Llama: halves of a head alternate."""
    return weight.reshape(heads, 2, -1, *weight.shape[1:]).transpose(1, 2).reshape(weight.shape)


def write(path, architecture, kind, *, tied):
    """Write a small model with random weights, quantised but for norms and biases."""
    torch.manual_seed(0)
    config = transformers.AutoConfig.for_model(
        architecture,
        vocab_size=VOCABULARY,
        hidden_size=HIDDEN,
        intermediate_size=2 * HIDDEN,
        num_hidden_layers=LAYERS,
        num_attention_heads=HEADS,
        num_key_value_heads=KEY_HEADS,
        tie_word_embeddings=tied,
    )
    model = transformers.AutoModelForCausalLM.from_config(config)
    writer = gguf.GGUFWriter(path, architecture)
    writer.add_name("small")
    writer.add_block_count(LAYERS)
    writer.add_context_length(128)
    writer.add_embedding_length(HIDDEN)
    writer.add_feed_forward_length(2 * HIDDEN)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(KEY_HEADS)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_rope_freq_base(10000.0)
    writer.add_vocab_size(VOCABULARY)
    for name, value in model.state_dict().items():
        module, _, attribute = name.rpartition(".")
        if module.startswith("model.layers."):
            _, _, index, inner = module.split(".", 3)
            stored = f"blk.{index}.{NAMES[inner]}.{attribute}"
        else:
            stored = f"{OUTER[module]}.{attribute}"
        if stored == "output.weight" and tied:
            continue
        array = value.float()
        if architecture == "llama" and ("attn_q." in stored or "attn_k." in stored):
            array = interleaved(array, HEADS if "attn_q." in stored else KEY_HEADS)
        if attribute == "bias":
            array = torch.randn_like(array)
        if array.dim() == 2:
            writer.add_tensor(stored, gguf.quantize(array.numpy(), kind), raw_dtype=kind)
        else:
            writer.add_tensor(stored, array.numpy())
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


@pytest.mark.parametrize(
    ("architecture", "kind", "tied"),
    [("llama", "Q4_0", False), ("llama", "Q8_0", True), ("qwen2", "Q5_1", False), ("qwen2", "F16", False)],
)
def test_a_packed_model_computes_what_the_dequantised_one_does(device, tmp_path, architecture, kind, tied):
    write(tmp_path / "model.gguf", architecture, gguf.GGMLQuantizationType[kind], tied=tied)
    model = load(tmp_path / "model.gguf", dtype=torch.float32)
    expected = transformers.AutoModelForCausalLM.from_pretrained(
        tmp_path, gguf_file="model.gguf", dtype=torch.float32
    ).eval()
    kinds = [type(module) for module in model.modules()]
    is_packed = kind != "F16"
    assert kinds.count(GGUFLinear) == (is_packed and 7 * LAYERS + 1)
    assert kinds.count(GGUFEmbedding) == is_packed
    ids = torch.randint(0, VOCABULARY, (2, 9), generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        torch.testing.assert_close(model(ids.to(device)).logits.cpu(), expected(ids).logits, rtol=1e-3, atol=1e-4)
    options = {"max_new_tokens": 12, "do_sample": False, "pad_token_id": 0}
    torch.testing.assert_close(model.generate(ids.to(device), **options).cpu(), expected.generate(ids, **options))


def test_a_file_that_lacks_a_weight_is_refused(tmp_path, monkeypatch):
    monkeypatch.setitem(NAMES, "mlp.up_proj", "unknown")
    write(tmp_path / "model.gguf", "llama", gguf.GGMLQuantizationType.Q4_0, tied=False)
    with pytest.raises(ValueError, match=r"lacks 2 weights of the model: model\.layers\.0\.mlp\.up_proj\.weight"):
        load(tmp_path / "model.gguf")


@pytest.mark.parametrize("size", [0, 20, 4000])
def test_a_truncated_file_is_refused(tmp_path, size):
    path = tmp_path / "model.gguf"
    write(path, "llama", gguf.GGMLQuantizationType.Q4_0, tied=False)
    path.write_bytes(path.read_bytes()[:size])
    with pytest.raises(ValueError, match="is not a GGUF file, or is truncated"):
        load(path)


def test_weights_of_another_shape_are_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(
        gguf.GGUFWriter,
        "add_feed_forward_length",
        lambda self, size: self.add_uint32("llama.feed_forward_length", 2 * size),
    )
    write(tmp_path / "model.gguf", "llama", gguf.GGMLQuantizationType.Q4_0, tied=False)
    with pytest.raises(ValueError, match=r"gate_proj\.weight has shape \(512, 256\), the model's has \(1024, 256\)"):
        load(tmp_path / "model.gguf")


def test_the_chat_example_answers_with_letters_and_its_speed(monkeypatch, capsys):
    path = Path(__file__).parents[2] / "examples" / "chat.py"
    monkeypatch.setattr(sys, "argv", ["chat.py", "--prompt", "hello", "--tokens", "5"])
    runpy.run_path(str(path), run_name="__main__")
    text, report = capsys.readouterr().out.strip().splitlines()
    assert re.fullmatch("[a-z]{5}", text)
    assert re.search(r"then [\d.]+ tokens/s; weights \d+ MB, at most \d+ MB in use", report)
