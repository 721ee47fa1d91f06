"""Models of torchvision and timm."""

import importlib
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import torch
from torch import nn

from models.case import Case
from models.catalogue.plain import image

# Smaller than they are published, where that is slow.
CLASSIFIERS = {
    "resnet18": {},
    "mobilenet_v3_small": {},
    "shufflenet_v2_x0_5": {},
    "squeezenet1_1": {},
    "regnet_y_400mf": {},
    "efficientnet_b0": {},
    "densenet121": {},
    "mnasnet0_5": {},
}
TIMM = {
    "resnet10t": {},
    "vit_tiny_patch16_224": {"img_size": 64, "depth": 3},
    "deit_tiny_patch16_224": {"img_size": 64, "depth": 3},
    "convnext_atto": {},
    "mixer_s32_224": {"img_size": 64},
    "mobilevitv2_050": {},
    "edgenext_xx_small": {},
    "ghostnet_050": {},
    "efficientnet_lite0": {},
    "swin_tiny_patch4_window7_224": {
        "img_size": 56,
        "depths": (1, 1, 1, 1),
        "embed_dim": 32,
        "num_heads": (1, 2, 4, 8),
    },
    "eva02_tiny_patch14_224": {"img_size": 56, "depth": 2},
    "regnetx_002": {},
    "levit_128s": {"img_size": 224},
    "repvgg_a0": {},
    "fastvit_t8": {},
}


def _make(module: str, name: str, **options: Any) -> nn.Module:
    return getattr(importlib.import_module(module), name)(**options)


def _boxes() -> dict[str, Any]:
    targets = [
        {
            "boxes": torch.tensor([[5.0, 5.0, 40.0, 30.0], [20.0, 10.0, 60.0, 60.0]]),
            "labels": torch.tensor([1, 3]),
            "masks": (torch.rand(2, 64, 64) < 0.5).byte(),
            "keypoints": torch.tensor([10.0, 10.0, 1.0]).repeat(2, 3, 1),
        }
        for _ in range(2)
    ]
    return {"args": ([torch.rand(3, 64, 64) for _ in range(2)], targets)}


def _sum_of_losses(losses: dict[str, torch.Tensor]) -> torch.Tensor:
    return torch.stack(list(losses.values())).sum()


def _detector(name: str, **options: Any) -> Case:
    sizes = {} if name.startswith("ssd") else {"min_size": 64, "max_size": 96}
    options = {"weights": None, "weights_backbone": None, "num_classes": 5, **sizes, **options}
    return Case(
        f"torchvision/{name}",
        partial(_make, "torchvision.models.detection", name, **options),
        _boxes,
        loss=_sum_of_losses,
        # Scores of random weights are nearly equal: rounding decides which boxes stay.
        evaluates=False,
        tolerance=1e-3,
    )


def _timm(name: str, options: dict[str, Any]) -> Callable[[], nn.Module]:
    return partial(_make, "timm", "create_model", model_name=name, num_classes=10, **options)


def cases() -> Iterator[Case]:
    """List the models.

    Yields:
        Each model.
    """
    for name, options in CLASSIFIERS.items():
        build = partial(_make, "torchvision.models", name, weights=None, num_classes=10, **options)
        yield Case(f"torchvision/{name}", build, partial(image, 4, 3, 64, 64), tolerance=1e-3)
    vit = {"image_size": 32, "patch_size": 8, "num_layers": 2, "num_heads": 2, "hidden_dim": 32, "mlp_dim": 64}
    yield Case(
        "torchvision/vit",
        partial(_make, "torchvision.models", "VisionTransformer", **vit),
        partial(image, 2, 3, 32, 32),
    )
    swin = {"patch_size": [4, 4], "embed_dim": 16, "depths": [2, 2], "num_heads": [2, 4], "window_size": [4, 4]}
    yield Case(
        "torchvision/swin",
        partial(_make, "torchvision.models", "SwinTransformer", **swin, stochastic_depth_prob=0.0),
        partial(image, 2, 3, 64, 64),
    )
    for name in ("lraspp_mobilenet_v3_large", "deeplabv3_mobilenet_v3_large"):
        build = partial(
            _make, "torchvision.models.segmentation", name, weights=None, weights_backbone=None, num_classes=5
        )
        yield Case(f"torchvision/{name}", build, partial(image, 2, 3, 96, 96), tolerance=1e-3)
    yield Case(
        "torchvision/r3d_18",
        partial(_make, "torchvision.models.video", "r3d_18", weights=None, num_classes=5),
        partial(image, 1, 3, 4, 32, 32),
        tolerance=1e-3,
    )
    yield _detector("fasterrcnn_mobilenet_v3_large_320_fpn")
    yield _detector("ssdlite320_mobilenet_v3_large")
    yield _detector("retinanet_resnet50_fpn_v2")
    yield _detector("fcos_resnet50_fpn")
    yield _detector("maskrcnn_resnet50_fpn")
    yield _detector("keypointrcnn_resnet50_fpn", num_keypoints=3)
    for name, options in TIMM.items():
        side = options.get("img_size", 96)
        yield Case(f"timm/{name}", _timm(name, options), partial(image, 2, 3, side, side), tolerance=1e-3)
