"""torch.compile with other PyTorch features: freezing, autotuning, export, streams, flex_attention, static caches."""

import copy
import functools
import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from processes import output_of
from releases import requires_torch
from torch import nn
from torch._inductor.utils import run_and_get_code
from torch_opencl.inductor import runtime

MODELS = Path(__file__).parents[3] / ".venv-models"


def close(actual, expected, **limits):
    torch.testing.assert_close(actual, expected, **(limits or {"rtol": 1e-4, "atol": 1e-4}))


@pytest.fixture(autouse=True)
def fresh():
    torch._dynamo.reset()
    torch.manual_seed(0)


def test_wrappers_allocate_as_torch_does(device):
    for size, stride in (((2, 3), (3, 1)), ((), ()), ((0, 4), (4, 1)), ((3, 2), (1, 3)), ((1,) * 20, (1,) * 20)):
        for dtype in (torch.float32, torch.bfloat16, torch.bool, torch.int64, torch.complex64):
            made = runtime.empty_strided(size, stride, runtime.dtype_code(dtype), 0)
            expected = torch.empty_strided(size, stride, dtype=dtype, device="opencl:0")
            for name in ("shape", "dtype", "device", "requires_grad", "is_leaf"):
                assert getattr(made, name) == getattr(expected, name)
            assert made.stride() == expected.stride()
            assert made.untyped_storage().nbytes() == expected.untyped_storage().nbytes()
    with torch.inference_mode():
        assert runtime.empty_strided((2,), (1,), runtime.dtype_code(torch.float32), 0).is_inference()


def test_wrappers_raise_as_torch_does(device):
    code = runtime.dtype_code(torch.float32)
    with pytest.raises(RuntimeError, match="negative dimension"):
        runtime.empty_strided((-2,), (1,), code, 0)
    with pytest.raises(RuntimeError, match="device"):
        runtime.empty_strided((2,), (1,), code, 99)
    with pytest.raises(torch.OutOfMemoryError):
        runtime.empty_strided((1 << 50,), (1,), code, 0)
    with pytest.raises(TypeError):
        runtime.empty_strided((2,), (1,))
    with pytest.raises((TypeError, SystemError)):
        runtime.empty_strided(2, 1, code, 0)
    assert runtime.empty_strided((2,), (1,), code, 0).fill_(3).sum().item() == 6


def test_freezing_makes_weights_constants(device):
    model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Flatten(), nn.Linear(8 * 36, 5))
    model, x = model.eval().to(device), torch.randn(2, 3, 8, 8, device=device)
    with torch._inductor.config.patch(freezing=True), torch.no_grad():
        close(torch.compile(model)(x), model(x))


def test_convolutions_keep_the_layout_of_their_inputs(device):
    model = nn.Sequential(nn.Conv2d(64, 128, 3, bias=False), nn.Conv2d(128, 128, 3, bias=False)).to(device)
    x = torch.randn(2, 64, 16, 16, device=device)
    with torch.no_grad(), torch._inductor.config.patch(force_disable_caches=True):
        result, (code,) = run_and_get_code(torch.compile(model), x)
    assert "_opencl.add(" not in code
    close(result, model(x), rtol=1e-3, atol=1e-3)


@pytest.mark.slow
@requires_torch("2.13", "a registry of benchmarkers by device")
def test_images_of_changing_size_after_strided_convolutions(device):
    model = nn.ModuleList([nn.Conv2d(3, 4, 3, stride=2), nn.GroupNorm(2, 4)])
    moved = copy.deepcopy(model).to(device)

    def function(model, x):
        return F.adaptive_avg_pool2d(model[1](model[0](F.max_pool2d(x, 2))).sigmoid(), 3)

    compiled = torch.compile(functools.partial(function, moved), dynamic=True)
    for size in (20, 26):
        x = torch.randn(2, 3, size, size)
        there = x.to(device).requires_grad_()
        here = x.clone().requires_grad_()
        actual, expected = compiled(there), function(model, here)
        close(actual.cpu(), expected)
        actual.square().sum().backward()
        expected.square().sum().backward()
        close(there.grad.cpu(), here.grad)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_gelu_is_as_exact_as_that_of_eager_mode(device, dtype):
    x = torch.linspace(-12, 12, 4096).to(device, dtype).requires_grad_()
    exact = x.detach().cpu().double().requires_grad_()
    F.gelu(exact).sum().backward()
    errors = []
    for gelu in (F.gelu, torch.compile(F.gelu)):
        x.grad = None
        result = gelu(x)
        result.sum().backward()
        errors.append([(a.cpu().double() - b).abs().max() for a, b in ((result, F.gelu(exact)), (x.grad, exact.grad))])
    for eager, compiled in zip(*errors, strict=True):
        assert compiled <= 1.5 * eager


def test_fractional_pooling_of_changing_sizes(device):
    """The halved size is an index in the kernel, and a float in the value ranges of Inductor."""

    def function(x, samples):
        return torch.ops.aten.fractional_max_pool2d(x, (2, 2), (x.shape[-2] // 2, x.shape[-1] // 2), samples)[0]

    compiled = torch.compile(function, dynamic=True)
    for size in (20, 26):
        x, samples = torch.randn(2, 4, size, size, device=device), torch.rand(2, 4, 2, device=device)
        close(compiled(x, samples), function(x, samples))


@pytest.mark.parametrize("options", [{"max_autotune": True}, {"coordinate_descent_tuning": True}])
def test_autotuning(device, options):
    a, b = torch.randn(16, 4096, device=device), torch.randn(4096, 16, device=device)
    function = lambda a, b: torch.relu(a @ b) + 1  # noqa: E731 compiled and not
    close(torch.compile(function, options=options)(a, b), function(a, b), rtol=1e-3, atol=1e-3)
    seconds = torch._inductor.runtime.benchmarking.benchmarker.benchmark(function, (a, b), {})
    assert 0 < seconds < 1e4


def test_an_exported_program_may_be_compiled_but_not_ahead_of_time(device):
    model, x = nn.Sequential(nn.Linear(8, 16), nn.GELU()).to(device).eval(), torch.randn(4, 8, device=device)
    with torch.no_grad():
        program = torch.export.export(model, (x,))
        close(torch.compile(program.module())(x), model(x))
        with pytest.raises(Exception, match="no wrapper in C\\+\\+ and no ahead-of-time compilation"):
            torch._inductor.aoti_compile_and_package(program)


def test_compiled_graphs_follow_the_current_stream(device):
    function = torch.compile(lambda x: (x.sin() * 2).sum(1))
    x = torch.randn(64, 128, device=device)
    stream = torch.opencl.Stream()
    stream.wait_stream(torch.opencl.current_stream())
    with torch.opencl.stream(stream):
        result = function(x)
    stream.synchronize()
    close(result, (x.sin() * 2).sum(1))


@pytest.mark.slow
def test_processes_may_fill_the_caches_at_once(tmp_path):
    code = """
        import torch
        x = torch.randn(8, 40, device="opencl")
        function = lambda x: (x.sin() * 2 + 1).softmax(1)
        torch.testing.assert_close(torch.compile(function)(x), function(x))
    """
    environment = os.environ | {
        "TORCHINDUCTOR_CACHE_DIR": str(tmp_path / "inductor"),
        "TORCH_OPENCL_CACHE_DIR": str(tmp_path / "programs"),
    }
    command = [sys.executable, "-c", textwrap.dedent(code)]
    processes = [subprocess.Popen(command, env=environment, stderr=subprocess.PIPE) for _ in range(2)]
    for process in processes:
        errors = process.communicate(timeout=180)[1]
        assert process.returncode == 0, errors.decode()


def relative(score, b, h, q, k):
    return score + (q - k) * 0.1


def causal(b, h, q, k):
    return q >= k


@pytest.mark.parametrize("masked", [False, True])
def test_flex_attention(device, masked):
    from torch.nn.attention.flex_attention import create_block_mask, flex_attention

    query, key, value = (torch.randn(2, 4, 64, 16, device=device, requires_grad=True) for _ in range(3))
    mask = create_block_mask(causal, None, None, 64, 64, device=device) if masked else None
    places = torch.arange(64, device=device)
    scores = query @ key.transpose(-2, -1) / 4 + (places[:, None] - places) * 0.1
    if masked:
        scores = scores.masked_fill(places[:, None] < places, -torch.inf)
    expected = scores.softmax(-1) @ value
    gradients = torch.autograd.grad(expected.square().sum(), (query, key, value))
    actual = torch.compile(flex_attention, fullgraph=True)(query, key, value, score_mod=relative, block_mask=mask)
    close(actual, expected)
    close(torch.autograd.grad(actual.square().sum(), (query, key, value)), gradients, rtol=1e-3, atol=1e-3)


def test_gradients_of_tensors_captured_by_flex_attention_are_refused(device):
    from torch.nn.attention.flex_attention import flex_attention

    query, bias = torch.randn(1, 2, 64, 16, device=device), torch.randn(2, device=device, requires_grad=True)

    def biased(score, batch, head, query_index, key_index):
        return score + bias[head]

    with pytest.raises(Exception, match="no gradients of tensors that score_mod captures"):
        torch.compile(flex_attention, fullgraph=True)(query, query, query, score_mod=biased).sum().backward()
    detached = bias.detach()
    torch.compile(flex_attention)(query, query, query, score_mod=lambda s, b, h, i, j: s + detached[h])


def test_scaled_dot_product_attention_with_a_computed_mask(device):
    query, key, value = (torch.randn(2, 4, 32, 16, device=device) for _ in range(3))
    function = lambda q, k, v: F.scaled_dot_product_attention(q, k, v, (q[..., :1] > 0).expand(-1, -1, -1, 32))  # noqa: E731
    close(torch.compile(function)(query, key, value), function(query, key, value), equal_nan=True)


@pytest.mark.slow
@pytest.mark.skipif(not (MODELS / "transformers").is_dir(), reason="`make models` installs transformers")
def test_generating_with_a_static_cache(tmp_path):
    code = """
        import torch
        from transformers import LlamaConfig, LlamaForCausalLM
        torch.manual_seed(0)
        config = LlamaConfig(
            vocab_size=100, hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4,
            num_key_value_heads=2, max_position_embeddings=64, pad_token_id=0, bos_token_id=1, eos_token_id=None,
        )
        model = LlamaForCausalLM(config).eval()
        text = torch.randint(2, 100, (2, 5))
        options = {"max_new_tokens": 8, "do_sample": False, "attention_mask": torch.ones_like(text)}
        expected = model.generate(text, **options)
        model, text = model.to("opencl"), text.to("opencl")
        options["attention_mask"] = options["attention_mask"].to("opencl")
        model.forward = torch.compile(model.forward)
        actual = model.generate(text, cache_implementation="static", **options)
        print(actual.cpu().equal(expected))
    """
    path = os.pathsep.join([os.environ.get("PYTHONPATH", ""), str(MODELS)])
    environment = {"PYTHONPATH": path, "TORCHINDUCTOR_CACHE_DIR": str(tmp_path), "HF_HUB_OFFLINE": "1"}
    assert output_of(code, **environment).splitlines()[-1] == "True"


@pytest.mark.parametrize("kind", [torch.optim.NAdam, torch.optim.ASGD, torch.optim.Adamax])
def test_compiled_optimizers_follow_schedules(device, kind):
    def weights(device, compiles):
        torch.manual_seed(0)
        layer = nn.Linear(4, 3)
        layer.to(device)
        optimizer = kind(layer.parameters(), lr=0.1)
        schedule = torch.optim.lr_scheduler.StepLR(optimizer, 2)
        step = torch.compile(optimizer.step) if compiles else optimizer.step
        for _ in range(4):
            optimizer.zero_grad()
            layer(torch.ones(2, 4, device=device)).square().sum().backward()
            step()
            schedule.step()
        return layer.weight.detach().cpu()

    close(weights(device, compiles=True), weights(torch.device("cpu"), compiles=False))


@pytest.mark.parametrize("forced", [False, True])
def test_convolutions_keep_their_layout_unless_another_is_forced(device, monkeypatch, forced):
    from torch._inductor.graph import GraphLowering

    decide, decided = GraphLowering.decide_layout_opt, []
    monkeypatch.setattr(
        GraphLowering,
        "decide_layout_opt",
        staticmethod(lambda gm, *args, **options: decided.append(decide(gm, *args, **options)) or decided[-1]),
    )
    model = torch.nn.Conv2d(3, 8, 3).to(device)
    with torch._inductor.config.patch(force_layout_optimization=forced, force_disable_caches=True):
        torch.compile(model)(torch.rand(2, 3, 8, 8, device=device)).sum().backward()
    assert decided == [forced, forced]
