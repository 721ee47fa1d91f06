"""Libraries that need one line of setup or none: results on the device equal the CPU's."""

import copy

import pytest
import torch
import torch_opencl


def library(name):
    return pytest.importorskip(name, reason=f"{name} is not installed: make libraries", exc_type=ImportError)


def close(ours, theirs, tolerance=1e-3):
    torch.testing.assert_close(ours.cpu(), theirs, rtol=tolerance, atol=tolerance)


def test_safetensors_are_loaded_to_the_device(device, tmp_path):
    library("safetensors")
    from safetensors import safe_open, torch as files

    tensors = {"a": torch.randn(3, 4), "b": torch.arange(5), "c": torch.randn(4).bfloat16()}
    files.save_file({name: tensor.to(device) for name, tensor in tensors.items()}, tmp_path / "x.safetensors")
    torch_opencl.integrations.enable("safetensors")
    for place in ("opencl", "opencl:0", 0):
        loaded = files.load_file(tmp_path / "x.safetensors", device=place)
        assert {tensor.device.type for tensor in loaded.values()} == {"opencl"}
        assert all(torch.equal(loaded[name].cpu(), tensor) for name, tensor in tensors.items())
    import safetensors

    with safetensors.safe_open(tmp_path / "x.safetensors", framework="pt", device="opencl") as file:
        assert file.get_tensor("a").device.type == "opencl"
    del safe_open


def test_sentence_transformers_choose_the_device(device):
    library("sentence_transformers")
    from sentence_transformers import SentenceTransformer, models

    torch_opencl.integrations.enable("sentence_transformers")

    words = models.BoW(vocab=["a", "small", "sentence", "of", "words"])
    dense = models.Dense(5, 8)
    model = SentenceTransformer(modules=[words, dense])
    assert model.device.type == "opencl"
    sentences = ["a small sentence", "words of a sentence"]
    ours = model.encode(sentences, convert_to_tensor=True)
    assert ours.device.type == "opencl"
    theirs = SentenceTransformer(modules=[words, copy.deepcopy(dense)], device="cpu")
    close(ours, theirs.encode(sentences, convert_to_tensor=True))


def test_torchvision_operators_give_the_cpus_results_and_gradients(device):
    ops = library("torchvision.ops")
    boxes = torch.rand(40, 4) * 20
    boxes[:, 2:] += boxes[:, :2] + 1
    scores = torch.rand(40)
    assert torch.equal(ops.nms(boxes.to(device), scores.to(device), 0.4).cpu(), ops.nms(boxes, scores, 0.4))
    groups = torch.arange(40) % 3
    ours = ops.batched_nms(boxes.to(device), scores.to(device), groups.to(device), 0.4)
    assert torch.equal(ours.cpu(), ops.batched_nms(boxes, scores, groups, 0.4))

    image = torch.randn(1, 4, 24, 24)
    regions = torch.cat([torch.zeros(5, 1), boxes[:5].clamp(max=23)], 1)
    offset, weight = torch.randn(1, 18, 24, 24), torch.randn(6, 4, 3, 3)
    calls = {
        "roi_align": (lambda x, r: ops.roi_align(x, r, 5), (image, regions)),
        "roi_pool": (lambda x, r: ops.roi_pool(x, r, 5), (image, regions)),
        "ps_roi_align": (lambda x, r: ops.ps_roi_align(x, r, 2), (image, regions)),
        "deform_conv2d": (lambda x, o, w: ops.deform_conv2d(x, o, w, padding=1), (image, offset, weight)),
    }
    for name, (call, arguments) in calls.items():
        theirs = [each.clone().requires_grad_() for each in arguments]
        ours = [each.to(device).detach().requires_grad_() for each in arguments]
        results = call(*ours), call(*theirs)
        for result in results:
            result.square().sum().backward()
        close(*results)
        assert results[0].device.type == "opencl", name
        for mine, other in zip(ours, theirs, strict=True):
            if other.grad is not None:
                close(mine.grad, other.grad, 1e-2)


def test_a_detector_of_torchvision_is_as_sure_as_on_the_cpu(device):
    detection = library("torchvision.models.detection")
    torch.manual_seed(1)
    model = detection.ssdlite320_mobilenet_v3_large(weights=None, weights_backbone=None, num_classes=4).eval()
    images = [torch.rand(3, 96, 96)]
    with torch.no_grad():
        theirs = model(images)[0]
        ours = model.to(device)([image.to(device) for image in images])[0]
    assert ours["boxes"].device.type == "opencl"
    # Scores from random weights are close, so that rounding decides which boxes are kept; the highest ones always are.
    close(ours["scores"].sort().values[-3:], theirs["scores"].sort().values[-3:], 1e-2)


def test_peft_trains_adapters(device):
    peft, transformers = library("peft"), library("transformers")
    torch.manual_seed(0)
    config = transformers.GPT2Config(vocab_size=64, n_positions=16, n_embd=32, n_layer=1, n_head=2)
    config.resid_pdrop = config.embd_pdrop = config.attn_pdrop = 0.0
    model = peft.get_peft_model(
        transformers.GPT2LMHeadModel(config),
        peft.LoraConfig(r=4, target_modules=["c_attn"], task_type="CAUSAL_LM", fan_in_fan_out=True),
    )
    tokens = torch.randint(0, 64, (2, 8))
    losses = []
    for place, each in (("cpu", copy.deepcopy(model)), (device, model)):
        each.to(place)
        optimizer = torch.optim.AdamW((p for p in each.parameters() if p.requires_grad), lr=1e-2)
        for _ in range(3):
            loss = each(input_ids=tokens.to(place), labels=tokens.to(place)).loss
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.detach().cpu())
    torch.testing.assert_close(torch.stack(losses[3:]), torch.stack(losses[:3]), rtol=1e-3, atol=1e-3)


def test_diffusers_run_a_pipeline(device):
    diffusers = library("diffusers")
    torch.manual_seed(0)
    unet = diffusers.UNet2DModel(
        sample_size=8,
        in_channels=3,
        out_channels=3,
        layers_per_block=1,
        block_out_channels=(8, 16),
        norm_num_groups=4,
        down_block_types=("DownBlock2D", "AttnDownBlock2D"),
        up_block_types=("AttnUpBlock2D", "UpBlock2D"),
    )
    pipeline = diffusers.DDIMPipeline(unet, diffusers.DDIMScheduler())
    pipeline.set_progress_bar_config(disable=True)

    def images():
        generator = torch.Generator().manual_seed(5)
        return torch.from_numpy(pipeline(num_inference_steps=2, generator=generator, output_type="np").images)

    theirs = images()
    pipeline.to(device)
    assert pipeline.device.type == "opencl"
    close(images(), theirs, 1e-2)


def test_torchaudio_computes_spectra(device):
    transforms = library("torchaudio.transforms")
    sound = torch.randn(1, 4000)
    for make in (
        lambda: transforms.MelSpectrogram(n_fft=256, n_mels=32),
        lambda: transforms.MFCC(melkwargs={"n_fft": 256, "n_mels": 40}),
    ):
        close(make().to(device)(sound.to(device)), make()(sound), 1e-2)
    close(transforms.Resample(16000, 8000).to(device)(sound.to(device)), transforms.Resample(16000, 8000)(sound))


def test_ultralytics_predicts_on_the_device_by_its_name(device):
    ultralytics = library("ultralytics")
    import numpy as np

    torch_opencl.integrations.enable("ultralytics")
    model = ultralytics.YOLO("yolov8n.yaml")
    image = np.random.default_rng(0).integers(0, 255, (64, 64, 3), dtype=np.uint8)
    options = {"imgsz": 64, "conf": 0.0, "max_det": 5, "verbose": False}
    theirs = copy.deepcopy(model).predict(image, device="cpu", **options)[0].boxes
    ours = model.predict(image, device="opencl", **options)[0].boxes
    assert ours.data.device.type == "opencl"
    close(ours.conf, theirs.conf, 1e-3)


@pytest.mark.parametrize("precision", [True, False, "bf16"], ids=str)
def test_ultralytics_scales_gradients_in_float16(device, tmp_path, monkeypatch, precision):
    monkeypatch.setenv("YOLO_CONFIG_DIR", str(tmp_path))
    library("ultralytics")
    import cv2
    import numpy as np
    from ultralytics.engine import trainer
    from ultralytics.models.yolo.detect import DetectionTrainer

    # The check compares with a model that it would download.
    monkeypatch.setattr(trainer, "check_amp", lambda model: True)
    torch_opencl.integrations.enable("ultralytics")
    for part in ("train", "val"):
        for kind in ("images", "labels"):
            (tmp_path / kind / part).mkdir(parents=True)
        cv2.imwrite(str(tmp_path / "images" / part / "0.png"), np.full((64, 64, 3), 40, np.uint8))
        (tmp_path / "labels" / part / "0.txt").write_text("0 0.5 0.5 0.4 0.4\n")
    data = tmp_path / "data.yaml"
    data.write_text(f"path: {tmp_path}\ntrain: images/train\nval: images/val\nnames: [a]\n")
    options = {"imgsz": 64, "batch": 1, "workers": 0, "plots": False, "val": False, "verbose": False, "epochs": 1}
    options |= {"data": str(data), "model": "yolov8n.yaml", "device": "opencl", "amp": precision}
    run = DetectionTrainer(overrides=options | {"project": str(tmp_path)})
    run._setup_train()
    assert run.device.type == "opencl" and run.scaler._device == "opencl"
    assert run.scaler.is_enabled() == (precision is True)
    if precision is True:
        # As when a run continues from a checkpoint: the scaler's state is read.
        state = run.scaler.state_dict() | {"scale": 128.0}
        run.scaler = torch.amp.GradScaler("cuda", enabled=False)
        run._load_checkpoint_state({"scaler": state})
        assert run.scaler.get_scale() == 128.0
        batch = run.preprocess_batch(next(iter(run.train_loader)))
        with trainer.autocast(run.amp, device="opencl"):
            loss, _ = run.model(batch)
        run.scaler.scale(loss.sum()).backward()
        parameter = next(parameter for parameter in run.model.parameters() if parameter.grad is not None)
        before, scaled = parameter.detach().clone(), parameter.grad.clone()
        run.optimizer_step()
        # The step divided the gradient in place, and changed the parameter.
        torch.testing.assert_close(parameter.grad * 128.0, scaled)
        assert not torch.equal(parameter, before)


def test_stable_baselines_choose_the_device(device):
    agents = library("stable_baselines3")
    torch_opencl.integrations.enable("stable_baselines3")

    def agent(**options):
        return agents.PPO("MlpPolicy", "CartPole-v1", n_steps=16, batch_size=16, n_epochs=1, seed=1, **options)

    ours, theirs = agent(), agent(device="cpu")
    assert (ours.device.type, theirs.device.type) == ("opencl", "cpu")
    observations = ours.observation_space.sample()[None].repeat(4, 0)
    close(
        *(
            run.policy.get_distribution(run.policy.obs_to_tensor(observations)[0]).distribution.logits
            for run in (ours, theirs)
        )
    )
    ours.learn(32)
    assert {parameter.device.type for parameter in ours.policy.parameters()} == {"opencl"}
    torch_opencl.integrations.disable("stable_baselines3")
    assert agents.common.utils.get_device("auto").type == "cpu"


@pytest.mark.parametrize("precision", ["float32", "to_fp16", "to_bf16"])
def test_fastai_trains_on_the_device_in_the_precision_that_is_asked_for(device, precision):
    library("fastai.basics")
    from fastai import torch_core
    from fastai.basics import SGD, DataLoader, DataLoaders, Learner, MSELossFlat

    torch_opencl.integrations.enable("fastai")
    seen = set()

    class Watched(torch.nn.Linear):
        def forward(self, x):
            y = super().forward(x)
            seen.add((y.device.type, y.dtype))
            return y

    def losses(place):
        torch.manual_seed(0)
        rows = [(torch.randn(8), torch.randn(1)) for _ in range(32)]
        # Without a place: chosen as in `Datasets.dataloaders()`.
        place = place or torch_core.default_device()
        loaders = DataLoaders(*(DataLoader(rows, bs=8, device=place) for _ in range(2)), device=place)
        run = Learner(loaders, Watched(8, 1), loss_func=MSELossFlat(), opt_func=SGD, lr=0.1)
        if precision != "float32" and place.type == "opencl":
            # With the default scale the first gradients overflow, and steps are skipped.
            run = getattr(run, precision)(**({"init_scale": 256.0} if precision == "to_fp16" else {}))
        with run.no_bar(), run.no_logging():
            run.fit(2)
        return torch.tensor([float(loss) for loss in run.recorder.losses])

    assert DataLoaders(DataLoader([1.0], bs=1)).cuda().device.type == "opencl"
    ours = losses(None)
    dtype = {"float32": torch.float32, "to_fp16": torch.float16, "to_bf16": torch.bfloat16}[precision]
    # fastai computes a batch of zeros first, outside of autocast.
    assert ("opencl", dtype) in seen and {kind for kind, _ in seen} == {"opencl"}
    close(ours, losses(torch.device("cpu")), 1e-4 if precision == "float32" else 3e-2)
    assert torch_core.default_device(False).type == "cpu" and torch_core.default_device().type == "cpu"
    assert torch_core.default_device(None).type == "opencl"


def test_fallbacks_of_torchvision_and_torchaudio_are_right_and_counted(device):
    functional = library("torchaudio.functional")
    torch.opencl.reset_fallbacks()
    logits = torch.randn(2, 5, 4, 6)
    targets = torch.randint(1, 6, (2, 3), dtype=torch.int32)
    lengths = torch.tensor([5, 4], dtype=torch.int32), torch.tensor([3, 2], dtype=torch.int32)
    ours, theirs = (
        functional.rnnt_loss(*(each.to(place) for each in (logits, targets, *lengths)), blank=0)
        for place in (device, "cpu")
    )
    close(ours, theirs)
    scores = torch.randn(1, 10, 6).log_softmax(-1)
    labels = torch.tensor([[1, 2, 3]], dtype=torch.int32)
    ours, theirs = (functional.forced_align(scores.to(place), labels.to(place)) for place in (device, "cpu"))
    assert torch.equal(ours[0].cpu(), theirs[0])
    image = torch.randint(256, (1, 3, 8, 8), dtype=torch.uint8)
    ours, theirs = (
        torch.nn.functional.interpolate(image.to(place), (5, 5), mode="bilinear", antialias=True)
        for place in (device, "cpu")
    )
    assert torch.equal(ours.cpu(), theirs)
    # docs/libraries.md lists these: remove an operator that gets a kernel from here and from that page.
    names = {"torchaudio::rnnt_loss_forward", "torchaudio::forced_align", "aten::_upsample_bilinear2d_aa"}
    assert torch.opencl.fallbacks().keys() == names
