"""torch_opencl.integrations.enable("cuda"): CUDA scripts run on the device, and disable restores everything."""

import json
from pathlib import Path

import pytest
import torch
import torch_opencl
from processes import output_of, run_python

SCRIPTS = Path(__file__).parent / "cuda_scripts"
# As a user calls it before the script's own imports.
ENABLED = """
    import runpy, sys, torch_opencl
    torch_opencl.integrations.enable("cuda")
    runpy.run_path(sys.argv[1], run_name="__main__")
"""
ON_CPU = "import runpy, sys; runpy.run_path(sys.argv[1], run_name='__main__')"


def result(code, name, *arguments):
    # The arguments of the script begin after its name.
    program = code.replace("runpy.run_path(sys.argv[1]", "sys.argv.pop(0); runpy.run_path(sys.argv[0]")
    variables = {"TORCH_OPENCL_SPECIALIZE": "never", "TORCH_OPENCL_FALLBACK": "error"}
    return json.loads(output_of(program, str(SCRIPTS / f"{name}.py"), *arguments, **variables).splitlines()[-1])


@pytest.mark.slow
def test_an_image_classifier_trains_on_the_device_as_on_the_cpu(tmp_path):
    ours = result(ENABLED, "digits", "--save", str(tmp_path / "a.pt"))
    theirs = result(ON_CPU, "digits", "--save", str(tmp_path / "b.pt"))
    assert (ours["devices"], theirs["devices"]) == (["opencl"], ["cpu"])
    torch.testing.assert_close(torch.tensor(ours["losses"]), torch.tensor(theirs["losses"]), rtol=1e-2, atol=1e-3)
    assert abs(ours["accuracy"] - theirs["accuracy"]) < 0.02 and ours["accuracy"] > 0.7


@pytest.mark.parametrize("dtype", [[], ["--bf16"]], ids=["float16", "bfloat16"])
def test_a_gpt_with_autocast_and_a_scaler_trains_as_in_float32_on_the_cpu(dtype):
    ours, theirs = result(ENABLED, "gpt", *dtype), result(ON_CPU, "gpt", *dtype)
    assert (ours["devices"], theirs["devices"]) == (["opencl"], ["cpu"])
    assert ours["scale"] == (1.0 if dtype else 65536.0), "no step was left out"
    torch.testing.assert_close(torch.tensor(ours["losses"]), torch.tensor(theirs["losses"]), rtol=2e-2, atol=2e-2)
    assert ours["losses"][-1] < ours["losses"][0] - 0.5


def test_streams_events_memory_and_random_states_are_those_of_the_device():
    assert result(ENABLED, "streams") == {"close": True, "repeats": True, "devices": ["opencl"]}


@pytest.fixture
def enabled():
    torch_opencl.integrations.enable("cuda")
    yield
    torch_opencl.integrations.disable("cuda")


@pytest.mark.parametrize("spell", ["cuda", "cuda:0", torch.device("cuda"), torch.device("cuda", 0)])
def test_every_way_to_name_a_device(device, enabled, spell):
    x = torch.arange(4.0)
    made = {
        "zeros": torch.zeros(2, device=spell),
        "tensor": torch.tensor([1.0], device=spell),
        "like": torch.empty_like(x, device=spell),
        "fftfreq": torch.fft.fftfreq(4, device=spell),
        "window": torch.hann_window(4, device=spell),
        "to": x.to(spell),
        "to with dtype": x.to(spell, torch.float16),
        "to named": x.to(device=spell),
        "cuda": x.cuda(spell),
        "new": x.new_full((2,), 1.0, device=spell),
        "module": torch.nn.Linear(2, 2).to(spell).weight,
        "module made there": torch.nn.LayerNorm(2, device=spell).weight,
        "drawn": torch.rand(3, device=spell, generator=torch.Generator(device=spell)),
        "storage": torch.tensor([], device=spell).set_(x.untyped_storage().cuda(spell)),
    }
    assert {name: tensor.device for name, tensor in made.items() if tensor.device != device} == {}
    assert x.to("cpu").device.type == "cpu" and x.to("meta").device.type == "meta"
    with torch.device(spell):
        assert torch.ones(2).device == device
    torch.set_default_device(spell)
    try:
        assert torch.tensor([1.0]).device == device
    finally:
        torch.set_default_device(None)
    assert torch.cuda.memory_allocated(spell) == torch.opencl.memory_allocated(device)
    assert x.pin_memory().is_pinned()


def test_old_names_of_types_and_methods_without_a_device(device, enabled):
    x = torch.arange(3.0)
    assert x.cuda().device == x.cuda(0).device == torch.nn.Linear(2, 2).cuda().weight.device == device
    assert torch.cuda.FloatTensor([1.0]).device == x.type("torch.cuda.HalfTensor").device == device
    assert x.type(torch.cuda.DoubleTensor).dtype == torch.float64 if torch.opencl.get_device_properties().fp64 else True
    assert x.type(torch.LongTensor).device.type == "cpu" and x.type() == "torch.FloatTensor"
    assert isinstance(torch.default_generator, torch.Generator)


@pytest.mark.filterwarnings("ignore:.torch.cuda.amp")
def test_autocast_has_cudas_dtype_and_scalers_scale_on_the_device(device, enabled):
    x = torch.ones(4, 4, device=device)
    for context, dtype in [
        (torch.autocast("cuda"), torch.float16),
        (torch.cuda.amp.autocast(), torch.float16),
        (torch.cuda.amp.autocast(dtype=torch.bfloat16), torch.bfloat16),
        (torch.amp.autocast("cuda", enabled=False), torch.float32),
    ]:
        with context:
            assert (x @ x).dtype == dtype
    for scaler in (torch.amp.GradScaler("cuda"), torch.amp.GradScaler(), torch.cuda.amp.GradScaler()):
        assert scaler.is_enabled()
        assert scaler.scale(x).device == device

    class Double(torch.autograd.Function):
        @staticmethod
        @torch.amp.custom_fwd(device_type="cuda", cast_inputs=torch.float32)
        def forward(ctx, x):
            return x * 2

        @staticmethod
        @torch.amp.custom_bwd(device_type="cuda")
        def backward(ctx, gradient):
            return gradient * 2

    with torch.autocast("cuda"):
        assert Double.apply(x.half()).dtype == torch.float32


def test_checkpoints_of_any_location_are_loaded_to_the_device(device, enabled, tmp_path):
    torch.save({"w": torch.arange(3.0)}, tmp_path / "x.pt")
    for place in ("cuda", "cuda:0", torch.device("cuda"), {"cpu": "cuda:0"}, lambda storage, _: storage.cuda()):
        loaded = torch.load(tmp_path / "x.pt", map_location=place, weights_only=True)["w"]
        assert loaded.device == device and loaded.tolist() == [0, 1, 2]
    assert torch.load(tmp_path / "x.pt", weights_only=True)["w"].device.type == "cpu"


def test_the_backward_pass_and_other_threads_see_the_same(device, enabled):
    seen = []
    x = torch.ones(3, device="cuda", requires_grad=True)
    x.register_hook(lambda gradient: seen.append(torch.ones(3, device="cuda").device) or gradient)
    x.sum().backward()
    assert seen == [device]


@pytest.mark.slow
def test_compiled_functions_take_the_name_whenever_the_compiler_is_imported():
    code = """
        import sys
        if sys.argv[1] == "before": import torch._inductor.utils
        import torch, torch_opencl
        torch_opencl.integrations.enable("cuda")
        @torch.compile
        def compiled(x):
            return x * 2 + torch.ones(4, device="cuda") + torch.zeros(4).to("cuda") + torch.zeros(1).cuda()
        assert compiled(torch.ones(4, device="cuda")).tolist() == [3.0] * 4
        torch_opencl.integrations.disable("cuda")
        assert torch._inductor.utils.GPU_TYPES[0] == "cuda"
        assert torch.compile(lambda x: x + 1)(torch.ones(4, device="opencl")).tolist() == [2.0] * 4
    """
    for time in ("before", "after"):
        output_of(code, time)


@pytest.mark.filterwarnings("ignore:.torch.jit")
def test_scripted_functions_know_the_functions_that_are_replaced(enabled):
    def scripted(x: torch.Tensor) -> torch.Tensor:
        return x + torch.ones(2)

    assert torch.jit.script(scripted)(torch.ones(2)).tolist() == [2.0, 2.0]


def test_data_parallel_on_one_device(device, enabled):
    model = torch.nn.DataParallel(torch.nn.Linear(4, 2).cuda())
    assert model(torch.ones(3, 4, device="cuda")).device == device


@pytest.fixture
def disabled_at_the_end():
    yield
    torch_opencl.integrations.disable("cuda")


def test_disable_puts_everything_back_and_no_name_enables_it(device, disabled_at_the_end):
    def state():
        names = {
            (module.__name__, name): value
            for module in (
                torch,
                torch.cuda,
                torch.cuda.random,
                torch.amp,
                torch.serialization,
                torch.fft,
                torch.opencl,
            )
            for name, value in vars(module).items()
        }
        classes = (torch.Tensor, torch.autocast, torch.amp.GradScaler, torch.utils._device.DeviceContext)
        return names | {(each, name): value for each in classes for name, value in vars(each).items()}

    before = state()
    for _ in range(2):
        torch_opencl.integrations.enable("cuda")
        torch_opencl.integrations.enable("cuda")
        assert torch.cuda.is_available() and state() != before
        torch_opencl.integrations.disable()
        after = state()
        assert {name for name in before if after.get(name) is not before[name]} == set()
        assert after.keys() == before.keys()
    assert not torch.cuda.is_available()
    with pytest.raises(ValueError, match="Expected an opencl device"):
        torch.opencl.synchronize("cuda")
    assert "cuda" not in torch_opencl.integrations.enable()
    torch_opencl.integrations.disable()


def test_a_real_cuda_device_is_not_hidden(monkeypatch, disabled_at_the_end):
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    with pytest.raises(RuntimeError, match='there are 2 CUDA devices, which "cuda" means'):
        torch_opencl.integrations.enable("cuda")
    assert torch.Tensor.cuda is torch._C.TensorBase.cuda


def test_without_an_opencl_device_scripts_see_no_cuda_device():
    code = "import torch, torch_opencl; torch_opencl.integrations.enable('cuda'); print(torch.cuda.is_available())"
    assert run_python(code, TORCH_OPENCL_DEVICES="").stdout == "False\n"
