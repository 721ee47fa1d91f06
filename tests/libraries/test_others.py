"""Libraries that need a line or nothing: what they compute on the device is what they compute on the CPU."""

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
    # Random weights are sure of nothing, so that a last bit decides which boxes are kept: the surest are in any case.
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
