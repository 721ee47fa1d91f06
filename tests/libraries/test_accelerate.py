"""accelerate: training on the device that `Accelerator` chooses."""

import json

import pytest
import torch
import torch_opencl
from groups import run_program

accelerate = pytest.importorskip("accelerate", reason="accelerate is not installed: make libraries")


@pytest.fixture(autouse=True)
def fresh():
    accelerate.state.AcceleratorState._reset_state(reset_partial_state=True)
    yield
    accelerate.state.AcceleratorState._reset_state(reset_partial_state=True)


def trained(accelerator, steps=4, batch_size=16):
    """Train a small network; return the losses."""
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(8, 32), torch.nn.GELU(), torch.nn.Linear(32, 1))
    data = torch.utils.data.TensorDataset(torch.randn(steps * 16, 8), torch.randn(steps * 16, 1))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    model, optimizer, loader = accelerator.prepare(model, optimizer, torch.utils.data.DataLoader(data, batch_size))
    losses = []
    for x, y in loader:
        assert x.device.type == accelerator.device.type
        loss = torch.nn.functional.mse_loss(model(x), y)
        optimizer.zero_grad()
        accelerator.backward(loss)
        optimizer.step()
        losses.append(loss.item())
    return torch.tensor(losses)


@pytest.mark.parametrize("precision", ["no", "bf16", "fp16"])
def test_training_gives_the_losses_of_the_cpu(device, precision):
    torch_opencl.integrations.enable("accelerate")
    accelerator = accelerate.Accelerator(mixed_precision=precision)
    assert accelerator.device == device
    assert accelerator.mixed_precision == precision
    assert (accelerator.scaler is not None) == (precision == "fp16")
    losses = trained(accelerator)
    accelerate.state.AcceleratorState._reset_state(reset_partial_state=True)
    on_cpu = accelerate.Accelerator(cpu=True)
    assert on_cpu.device.type == "cpu"
    tolerance = 1e-4 if precision == "no" else 3e-2
    torch.testing.assert_close(losses, trained(on_cpu), rtol=tolerance, atol=tolerance)


def test_a_saved_state_brings_back_the_devices_random_numbers(device, tmp_path):
    torch_opencl.integrations.enable("accelerate")
    accelerator = accelerate.Accelerator()
    torch.rand(3, device=device)
    accelerator.save_state(str(tmp_path))
    expected = torch.rand(3, device=device)
    torch.rand(5, device=device)
    accelerator.load_state(str(tmp_path))
    assert torch.equal(torch.rand(3, device=device), expected)


def test_without_enable_nothing_changes_and_disable_puts_back(device):
    assert accelerate.Accelerator().device.type == "cpu"
    before = accelerate.utils.memory.clear_device_cache
    torch_opencl.integrations.enable("accelerate")
    assert accelerate.utils.memory.clear_device_cache is not before
    torch_opencl.integrations.disable("accelerate")
    assert accelerate.utils.memory.clear_device_cache is before


def test_device_maps_place_models_on_the_device(device):
    torch_opencl.integrations.enable("accelerate")
    model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Linear(4, 2))
    places = accelerate.infer_auto_device_map(model)
    assert set(places.values()) == {0}
    model = accelerate.dispatch_model(model, device_map={"0": 0, "1": "cpu"}, force_hooks=True)
    assert model[0].weight.device.type == "opencl"
    assert model(torch.ones(1, 4)).shape == (1, 2)


def test_two_processes_give_the_losses_of_one(device, tmp_path):
    program = """
import json, sys
from pathlib import Path
import accelerate, torch, torch_opencl
from test_accelerate import trained

torch_opencl.integrations.enable("accelerate")
accelerator = accelerate.Accelerator()
assert (accelerator.num_processes, accelerator.device.type) == (2, "opencl")
losses = trained(accelerator, steps=8)
folder = Path(sys.argv[1])
accelerator.save_state(folder / "state")
accelerator.load_state(folder / "state")
gathered = accelerator.gather(torch.full((1,), accelerator.process_index, device=accelerator.device))
assert gathered.tolist() == [0, 1]
(folder / f"{accelerator.process_index}.json").write_text(json.dumps(losses.tolist()))
accelerator.end_training()
"""
    launch = ["-m", "accelerate.commands.launch", "--multi_gpu", "--num_processes", "2", "--main_process_port", "0"]
    run_program(launch, program, tmp_path)
    losses = [torch.tensor(json.loads((tmp_path / f"{rank}.json").read_text())) for rank in range(2)]
    alone = trained(accelerate.Accelerator(cpu=True), steps=8, batch_size=32)
    torch.testing.assert_close((losses[0] + losses[1]) / 2, alone, rtol=1e-4, atol=1e-4)
