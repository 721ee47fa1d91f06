"""GPTQ and AWQ checkpoints through transformers: layers are packed again, results are those of dequantised weights."""

import json

import pytest
import torch
import torch_opencl
from torch_opencl.quantized import QuantizedLinear
from torch_opencl.repack import from_gptq

transformers = pytest.importorskip("transformers", reason="transformers is not installed: make libraries")
pytest.importorskip("accelerate", reason="accelerate is not installed: make libraries")
safetensors = pytest.importorskip("safetensors.torch", reason="safetensors is not installed: make libraries")

GROUP = 32


def words(codes, bits, order=None):
    """The rows of a matrix of codes as strings of bits in int32, one code at a time."""
    rows, columns = codes.shape
    packed = [[0] * (columns * bits // 32) for _ in range(rows)]
    for row in range(rows):
        string = 0
        for column in range(columns):
            source = column if order is None else column // 8 * 8 + order[column % 8]
            string |= int(codes[row, source]) << (bits * column)
        for word in range(len(packed[row])):
            value = string >> (32 * word) & 0xFFFFFFFF
            packed[row][word] = value - (1 << 32) if value >= 1 << 31 else value
    return torch.tensor(packed, dtype=torch.int32)


def stored_gptq(rows, columns, bits, *, act_order=False, version="gptq"):
    """Tensors of a layer with random codes, and the weight that they stand for."""
    groups = columns // GROUP
    codes = torch.randint(0, 1 << bits, (columns, rows))
    zeros = torch.randint(1, 1 << bits, (groups, rows))
    scales = (torch.rand(groups, rows) * 0.02 + 0.01).half()
    g_idx = torch.arange(columns) // GROUP
    if act_order:
        g_idx = g_idx[torch.randperm(columns)]
    weight = (codes - zeros[g_idx]) * scales.float()[g_idx]
    tensors = {
        "qweight": words(codes.t(), bits).t().contiguous(),
        "qzeros": words(zeros - int(version == "gptq"), bits),
        "scales": scales,
        "g_idx": g_idx.int(),
    }
    return tensors, weight.t()


def stored_awq(rows, columns):
    groups = columns // GROUP
    codes = torch.randint(0, 16, (columns, rows))
    zeros = torch.randint(0, 16, (groups, rows))
    scales = (torch.rand(groups, rows) * 0.02 + 0.01).half()
    weight = (codes - zeros.repeat_interleave(GROUP, 0)) * scales.float().repeat_interleave(GROUP, 0)
    order = (0, 2, 4, 6, 1, 3, 5, 7)
    tensors = {"qweight": words(codes, 4, order), "qzeros": words(zeros, 4, order), "scales": scales}
    return tensors, weight.t()


def write(folder, architecture, config, stored):
    """A small model with random weights, its linear layers but the last quantised; returns the dequantised model."""
    model = transformers.AutoModelForCausalLM.from_config(
        transformers.AutoConfig.for_model(
            architecture,
            vocab_size=96,
            hidden_size=64,
            intermediate_size=128,
            num_hidden_layers=2,
            num_attention_heads=4,
            num_key_value_heads=2,
        ),
        dtype=torch.float32,
    )
    tensors = dict(model.state_dict())
    for name, module in model.named_modules():
        if isinstance(module, torch.nn.Linear) and name != "lm_head":
            packed, weight = stored(module.out_features, module.in_features)
            with torch.no_grad():
                module.weight.copy_(weight)
            del tensors[f"{name}.weight"]
            tensors.update({f"{name}.{attribute}": tensor for attribute, tensor in packed.items()})
    safetensors.save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    (folder / "config.json").write_text(json.dumps({**model.config.to_dict(), "quantization_config": config}))
    return model.eval()


GPTQ = {"quant_method": "gptq", "bits": 4, "group_size": GROUP, "desc_act": False, "sym": False}
AWQ = {"quant_method": "awq", "bits": 4, "group_size": GROUP, "zero_point": True, "version": "gemm"}
CASES = {
    "gptq": ("llama", GPTQ, lambda *shape: stored_gptq(*shape, 4)),
    "gptq act order": ("qwen2", {**GPTQ, "desc_act": True}, lambda *shape: stored_gptq(*shape, 4, act_order=True)),
    "gptq_v2, 8 bits": (
        "llama",
        {**GPTQ, "bits": 8, "checkpoint_format": "gptq_v2"},
        lambda *shape: stored_gptq(*shape, 8, version="gptq_v2"),
    ),
    "gptq, 3 bits": ("llama", {**GPTQ, "bits": 3}, lambda *shape: stored_gptq(*shape, 3)),
    "gptq, 2 bits": ("llama", {**GPTQ, "bits": 2}, lambda *shape: stored_gptq(*shape, 2)),
    "awq": ("qwen2", AWQ, stored_awq),
}


@pytest.fixture(autouse=True)
def enabled():
    torch_opencl.integrations.enable("transformers")


@pytest.mark.parametrize("case", CASES)
def test_models_give_the_results_of_their_dequantised_weights(tmp_path, device, case):
    reference = write(tmp_path, *CASES[case])
    model = transformers.AutoModelForCausalLM.from_pretrained(tmp_path, dtype=torch.float32, device_map="opencl")
    layer = model.model.layers[0].self_attn.q_proj
    assert isinstance(layer, QuantizedLinear) and layer.scales.dtype == torch.float16
    assert layer.codes.device.type == "opencl"
    ids = torch.randint(0, 96, (2, 7))
    with torch.no_grad():
        expected = reference(ids).logits
        torch.testing.assert_close(model(ids.to(device)).logits.cpu(), expected, rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(
        layer.weight.dequantize().cpu(),
        reference.model.layers[0].self_attn.q_proj.weight[:, slice(None) if layer.order is None else layer.order.cpu()],
        rtol=1e-6,
        atol=0,
    )
    mine = model.generate(ids.to(device), max_new_tokens=6, do_sample=False, pad_token_id=0)
    assert torch.equal(mine.cpu(), reference.generate(ids, max_new_tokens=6, do_sample=False, pad_token_id=0))


def test_models_in_16_bits_keep_their_scales(tmp_path, device):
    reference = write(tmp_path, *CASES["awq"])
    model = transformers.AutoModelForCausalLM.from_pretrained(tmp_path, dtype=torch.bfloat16, device_map="opencl")
    assert model.model.layers[1].mlp.up_proj.scales.dtype == torch.float16
    ids = torch.randint(0, 96, (1, 5))
    with torch.no_grad():
        mine = model(ids.to(device)).logits.float().cpu()
        torch.testing.assert_close(mine, reference(ids).logits, rtol=0.1, atol=0.1)


def test_bad_checkpoints_are_refused_by_layer_format_and_shape(tmp_path, device):
    load = transformers.AutoModelForCausalLM.from_pretrained
    write(tmp_path, "llama", {**GPTQ, "group_size": 16}, lambda rows, columns: stored_gptq(rows, columns, 4))
    with pytest.raises(ValueError, match=r"loaded to cpu: use device_map='opencl'"):
        load(tmp_path, device_map="cpu")
    for version in ("gemv", "gemv_fast"):
        write(tmp_path, "llama", {**AWQ, "version": version}, stored_awq)
        with pytest.raises(ValueError, match=f"version gemm and 4 bits.*got version.*{version}"):
            load(tmp_path, device_map="opencl")

    def odd_groups(rows, columns):
        tensors, weight = stored_gptq(rows, columns, 4)
        return {**tensors, "g_idx": torch.zeros(columns, dtype=torch.int32)}, weight

    write(tmp_path, "llama", GPTQ, odd_groups)
    with pytest.raises(ValueError, match=r"layer model\.layers\.0\.self_attn\.q_proj: .*g_idx does not have"):
        load(tmp_path, device_map="opencl")


def test_checkpoints_of_models_with_a_head_are_loaded_without_it(tmp_path, device):
    reference = write(tmp_path, *CASES["gptq"])
    model = transformers.AutoModel.from_pretrained(tmp_path, dtype=torch.float32, device_map="opencl")
    ids = torch.randint(0, 96, (1, 5))
    with torch.no_grad():
        mine, expected = model(ids.to(device))[0].cpu(), reference.model(ids)[0]
    torch.testing.assert_close(mine, expected, rtol=1e-4, atol=1e-4)


def test_tensors_that_do_not_fit_are_refused_by_layer(tmp_path, device):
    load = transformers.AutoModelForCausalLM.from_pretrained

    def without_zeros(rows, columns):
        tensors, weight = stored_gptq(rows, columns, 4)
        del tensors["qzeros"]
        return tensors, weight

    write(tmp_path, "llama", GPTQ, without_zeros)
    with pytest.raises(ValueError, match=r"layer model\.layers\.\d\.\S+: the checkpoint lacks qzeros"):
        load(tmp_path, device_map="opencl")
    write(tmp_path, "llama", {**GPTQ, "bits": 3}, lambda rows, columns: stored_gptq(rows, columns, 4))
    with pytest.raises(ValueError, match=r"layer model\.layers\.\d\.\S+: .*do not hold codes of 3 bits"):
        load(tmp_path, device_map="opencl")


def test_experts_in_one_tensor_are_refused(tmp_path, device):
    write(tmp_path, "llama", GPTQ, lambda rows, columns: stored_gptq(rows, columns, 4))
    tensors = safetensors.load_file(tmp_path / "model.safetensors")
    moved = {name.replace("layers.1.mlp.", "layers.1.mlp.experts.0."): tensor for name, tensor in tensors.items()}
    safetensors.save_file(moved, tmp_path / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(ValueError, match=r"layer model\.layers\.1\.mlp\.experts\.0\.\w+: experts in one tensor"):
        transformers.AutoModelForCausalLM.from_pretrained(tmp_path, device_map="opencl")


def test_input_of_another_width_is_refused(device):
    tensors, _ = stored_gptq(64, 128, 4, act_order=True)
    layer = from_gptq(**{name: tensor.to(device) for name, tensor in tensors.items()})
    with pytest.raises(RuntimeError, match=r"expected x with 128 columns, got \[4, 160\]"):
        layer(torch.randn(4, 160, device=device))
    with pytest.raises(RuntimeError, match=r"the weight is on the CPU; move it by \.to\('opencl'\)"):
        layer.cpu()(torch.randn(4, 128))


def test_layers_are_trained_through(tmp_path, device):
    """As LoRA does: the weights are constants, gradients reach the input."""
    reference = write(tmp_path, *CASES["gptq act order"])
    model = transformers.AutoModelForCausalLM.from_pretrained(tmp_path, dtype=torch.float32, device_map="opencl")
    embedded = torch.randn(1, 4, 64)
    grads = []
    for each, x in ((reference, embedded.clone()), (model, embedded.to(device))):
        x.requires_grad_()
        each(inputs_embeds=x).logits.square().sum().backward()
        grads.append(x.grad.cpu())
    torch.testing.assert_close(grads[1], grads[0], rtol=1e-3, atol=1e-3)
