"""Lightning: `Trainer(accelerator="opencl")` and `Fabric(accelerator="opencl")`."""

import json

import pytest
import torch
import torch_opencl
from groups import run_program

pytest.importorskip("lightning", reason="lightning is not installed: make libraries")
import lightning


class Regression(lightning.LightningModule):
    """A small network that records its losses."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.layers = torch.nn.Sequential(torch.nn.Linear(8, 32), torch.nn.GELU(), torch.nn.Linear(32, 1))
        self.losses = []
        self.seen = set()

    def training_step(self, batch, _):
        x, y = batch
        self.seen |= {x.device.type, self.device.type}
        loss = torch.nn.functional.mse_loss(self.layers(x), y)
        self.losses.append(loss.item())
        return loss

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters(), lr=1e-2)


def trained(folder, batch_size=16, part=slice(None), **options):
    options = {"max_epochs": 1, "logger": False, "enable_progress_bar": False, "enable_model_summary": False} | options
    generator = torch.Generator().manual_seed(1)
    data = torch.utils.data.TensorDataset(*(torch.randn(64, size, generator=generator)[part] for size in (8, 1)))
    model = Regression()
    run = lightning.Trainer(default_root_dir=str(folder), enable_checkpointing=False, **options)
    run.fit(model, torch.utils.data.DataLoader(data, batch_size=batch_size))
    return run, model


@pytest.mark.parametrize("precision", ["32-true", "bf16-mixed", "16-mixed", "bf16-true"])
def test_trainer_gives_the_losses_of_the_cpu(device, tmp_path, precision):
    run, model = trained(tmp_path, accelerator="opencl", devices=1, precision=precision)
    assert model.seen == {"opencl"}
    assert run.strategy.root_device == torch.device("opencl", 0)
    _, on_cpu = trained(tmp_path, accelerator="cpu")
    tolerance = 1e-4 if precision == "32-true" else 5e-2
    torch.testing.assert_close(torch.tensor(model.losses), torch.tensor(on_cpu.losses), rtol=tolerance, atol=tolerance)


def test_auto_chooses_the_device_only_if_enabled(device, tmp_path):
    assert trained(tmp_path, accelerator="auto")[1].seen == {"cpu"}
    torch_opencl.integrations.enable("lightning")
    assert trained(tmp_path, accelerator="auto")[1].seen == {"opencl"}


def test_devices_that_are_not_there_are_refused(device):
    with pytest.raises(ValueError, match=r"there are \d+ OpenCL devices, and devices \[1000\] were requested"):
        lightning.Trainer(accelerator="opencl", devices=[1000])


@pytest.mark.parametrize("precision", ["32-true", "16-mixed"])
def test_fabric_sets_up_models_on_the_device(device, precision):
    fabric = lightning.Fabric(accelerator="opencl", devices=1, precision=precision)
    fabric.launch()
    assert fabric.device == torch.device("opencl", 0)
    model = torch.nn.Linear(4, 4)
    model, optimizer = fabric.setup(model, torch.optim.SGD(model.parameters(), lr=0.1))
    loss = model(fabric.to_device(torch.ones(2, 4))).square().sum()
    fabric.backward(loss)
    optimizer.step()
    assert loss.device.type == "opencl"


@pytest.mark.parametrize("mode", ["power", "binsearch"])
def test_the_batch_size_finder_continues_after_out_of_memory(device, tmp_path, mode):
    class Loaded(Regression):
        batch_size = 2

        def training_step(self, batch, index):
            if len(batch[0]) > 8:
                torch.empty(2**50, dtype=torch.uint8, device=self.device)
            return super().training_step(batch, index)

        def train_dataloader(self):
            data = torch.utils.data.TensorDataset(torch.randn(64, 8), torch.randn(64, 1))
            return torch.utils.data.DataLoader(data, batch_size=self.batch_size)

    options = {"logger": False, "enable_progress_bar": False, "enable_model_summary": False, "max_epochs": 1}
    run = lightning.Trainer(default_root_dir=str(tmp_path), accelerator="opencl", devices=1, **options)
    model = Loaded()
    found = lightning.pytorch.tuner.Tuner(run).scale_batch_size(model, mode=mode, steps_per_trial=1, max_trials=6)
    assert found == 8 or (mode == "binsearch" and 4 <= found <= 8)


@pytest.mark.parametrize("strategy", ["ddp", "fsdp"])
def test_two_processes_give_the_losses_of_one(device, tmp_path, strategy):
    program = """
import json, os, sys
from pathlib import Path
from test_lightning import trained

if __name__ == "__main__":
    folder, strategy = Path(sys.argv[1]), sys.argv[2]
    # Lightning's own sampler would shuffle.
    options = {"part": slice(int(os.environ.get("LOCAL_RANK", 0)), None, 2), "use_distributed_sampler": False}
    run, model = trained(folder, accelerator="opencl", devices=[0, 0], strategy=strategy, **options)
    assert model.seen == {"opencl"}
    (folder / f"{run.global_rank}.json").write_text(json.dumps(model.losses))
"""
    run_program([], program, tmp_path, strategy)
    losses = [torch.tensor(json.loads((tmp_path / f"{rank}.json").read_text())) for rank in range(2)]
    _, alone = trained(tmp_path, batch_size=32, accelerator="cpu")
    torch.testing.assert_close((losses[0] + losses[1]) / 2, torch.tensor(alone.losses), rtol=1e-4, atol=1e-4)
