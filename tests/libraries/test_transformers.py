"""transformers: `Trainer` and `pipeline` on the device, with random weights."""

import pytest
import torch
import torch_opencl

transformers = pytest.importorskip("transformers", reason="transformers is not installed: make libraries")
pytest.importorskip("accelerate", reason="accelerate is not installed: make libraries")


class Text(torch.utils.data.Dataset):
    """Random tokens, the same each time."""

    def __init__(self, count=32):
        self.tokens = torch.randint(0, 64, (count, 12), generator=torch.Generator().manual_seed(1))

    def __len__(self):
        return len(self.tokens)

    def __getitem__(self, index):
        return {"input_ids": self.tokens[index], "labels": self.tokens[index]}


def gpt(dropout=0.0):
    torch.manual_seed(0)
    rates = dict.fromkeys(("resid_pdrop", "embd_pdrop", "attn_pdrop"), dropout)
    config = transformers.GPT2Config(
        vocab_size=64, n_positions=16, n_embd=32, n_layer=2, n_head=2, bos_token_id=0, eos_token_id=0, **rates
    )
    return transformers.GPT2LMHeadModel(config)


def llama():
    torch.manual_seed(0)
    config = transformers.LlamaConfig(
        vocab_size=64, hidden_size=32, intermediate_size=64, num_hidden_layers=3, num_attention_heads=4
    )
    return transformers.LlamaForCausalLM(config).eval()


def trainer(folder, model=None, **options):
    options = {"max_steps": 4, "per_device_train_batch_size": 8, "logging_steps": 1, "seed": 3} | options
    arguments = transformers.TrainingArguments(
        output_dir=str(folder), report_to=[], disable_tqdm=True, save_strategy="no", **options
    )
    return transformers.Trainer(model=model or gpt(), args=arguments, train_dataset=Text())


def losses(run):
    return torch.tensor([entry["loss"] for entry in run.state.log_history if "loss" in entry])


@pytest.mark.parametrize("precision", ["float32", "bf16", "fp16"])
def test_trainer_uses_the_device_and_gives_the_losses_of_the_cpu(device, tmp_path, precision):
    torch_opencl.integrations.enable("transformers")
    run = trainer(tmp_path, **({} if precision == "float32" else {precision: True}))
    assert run.args.device.type == "opencl"
    run.train()
    assert run.model.device.type == "opencl"
    on_cpu = trainer(tmp_path, use_cpu=True)
    assert on_cpu.args.device.type == "cpu"
    on_cpu.train()
    tolerance = 1e-3 if precision == "float32" else 5e-2
    torch.testing.assert_close(losses(run), losses(on_cpu), rtol=tolerance, atol=tolerance)


def test_trainer_resumes_from_a_checkpoint_with_the_same_losses(device, tmp_path):
    torch_opencl.integrations.enable("transformers")
    options = {"max_steps": 4}
    whole = trainer(tmp_path / "whole", gpt(dropout=0.2), **options)
    whole.args.save_strategy, whole.args.save_steps = transformers.trainer_utils.SaveStrategy.STEPS, 2
    whole.state.save_steps = 2
    whole.train()
    again = trainer(tmp_path / "again", gpt(dropout=0.2), **options)
    again.train(resume_from_checkpoint=str(tmp_path / "whole" / "checkpoint-2"))
    torch.testing.assert_close(losses(again)[-2:], losses(whole)[-2:], rtol=1e-4, atol=1e-4)


def test_pipelines_use_the_device_by_default(device):
    torch_opencl.integrations.enable("transformers")

    class Plain(transformers.Pipeline):
        def _sanitize_parameters(self, **parameters):
            return {}, {}, {}

        def preprocess(self, text):
            return {"input_ids": torch.tensor([[int(number) for number in text.split()]])}

        def _forward(self, inputs):
            return self.model(**inputs)

        def postprocess(self, outputs):
            return outputs.logits

    model = gpt().eval()
    expected = model(torch.tensor([[1, 2, 3]])).logits
    chosen = Plain(model, tokenizer=None)
    assert chosen.device.type == "opencl"
    torch.testing.assert_close(chosen("1 2 3").cpu(), expected, rtol=1e-3, atol=1e-3)
    assert Plain(model, tokenizer=None, device="cpu").device.type == "cpu"


def test_weights_are_loaded_to_the_device(device, tmp_path):
    torch_opencl.integrations.enable("transformers")
    gpt().save_pretrained(tmp_path)
    for place in ("opencl", "auto", {"": 0}):
        model = transformers.GPT2LMHeadModel.from_pretrained(tmp_path, device_map=place)
        assert {parameter.device.type for parameter in model.parameters()} == {"opencl"}, place
    out = model.generate(torch.tensor([[1, 2]], device=device), max_new_tokens=4, do_sample=False)
    assert out.shape == (1, 6)


@pytest.mark.parametrize("cache", ["offloaded", "offloaded_static"])
def test_caches_that_are_kept_on_the_host_give_the_same_tokens(device, cache):
    torch_opencl.integrations.enable("transformers")
    model = llama()
    tokens = torch.arange(3, 12)[None]
    options = {"max_new_tokens": 8, "do_sample": False, "pad_token_id": 0}
    expected = model.generate(tokens, **options)
    model.to(device)
    assert torch.equal(model.generate(tokens.to(device), **options).cpu(), expected)
    ours = model.generate(tokens.to(device), cache_implementation=cache, **options)
    assert torch.equal(ours.cpu(), expected)


def test_requests_are_generated_in_one_batch(device):
    model = llama()
    prompts = torch.randint(1, 64, (3, 6), generator=torch.Generator().manual_seed(1))
    options = {"max_new_tokens": 8, "do_sample": False, "pad_token_id": 0}
    expected = model.generate(prompts, **options)[:, 6:]
    torch_opencl.integrations.enable("transformers")
    results = model.to(device).generate_batch(
        prompts.tolist(),
        generation_config=transformers.GenerationConfig(**options, eos_token_id=None),
        continuous_batching_config=transformers.ContinuousBatchingConfig(num_blocks=8, max_batch_tokens=64),
        progress_bar=False,
    )
    assert [list(result.generated_tokens) for result in results.values()] == expected.tolist()


def test_an_offloaded_cache_keeps_other_layers_on_the_host(device):
    torch_opencl.integrations.enable("transformers")
    cache = transformers.DynamicCache(offloading=True)
    expected = transformers.DynamicCache()
    for step in range(3):
        for layer in range(4):
            keys, values = torch.randn(1, 2, 3, 4), torch.randn(1, 2, 3, 4)
            ours = cache.update(keys.to(device), values.to(device), layer)
            theirs = expected.update(keys, values, layer)
            assert all(torch.equal(a.cpu(), b) for a, b in zip(ours, theirs, strict=True)), (step, layer)
    torch.opencl.synchronize()
    kinds = [layer.keys.device.type for layer in cache.layers]
    assert kinds.count("opencl") < len(kinds) and "cpu" in kinds
