"""Models of torchvision and timm."""

import importlib
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import torch
from torch import nn

from models.case import Case
from models.catalogue.plain import image

# Smaller than the published models if those are slow.
CLASSIFIERS = {
    "resnet18": {},
    "mobilenet_v3_small": {},
    "shufflenet_v2_x0_5": {},
    "squeezenet1_1": {},
    "regnet_y_400mf": {},
    "efficientnet_b0": {},
    "densenet121": {},
    "mnasnet0_5": {},
    "alexnet": {},
    "vgg11_bn": {},
    "mobilenet_v2": {},
    "googlenet": {"init_weights": False},
    "resnext50_32x4d": {},
    "wide_resnet50_2": {},
    "efficientnet_v2_s": {},
    "convnext_tiny": {},
}
TIMM = {
    "resnet10t": {},
    "vit_tiny_patch16_224": {"img_size": 64, "depth": 3},
    "deit_tiny_patch16_224": {"img_size": 64, "depth": 3},
    "convnext_atto": {},
    "resmlp_12_224": {"img_size": 64},
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
    "mobilenetv4_conv_small": {},
    "mobilenetv4_hybrid_medium": {},
    "mobileone_s0": {},
    "regnety_002": {},
    "nf_regnet_b0": {},
    "eca_nfnet_l0": {},
    "maxvit_rmlp_pico_rw_256": {"img_size": 64},
    "coatnet_nano_rw_224": {"img_size": 64},
    "convnextv2_atto": {},
    "inception_next_atto": {},
    "efficientformerv2_s0": {"img_size": 64},
    "tf_efficientnetv2_b0": {},
    "crossvit_tiny_240": {"img_size": 240},
    "cait_xxs24_224": {"img_size": 64, "depth": 3},
    "xcit_nano_12_p16_224": {"img_size": 64, "depth": 3},
    "poolformer_s12": {},
    "hrnet_w18_small": {},
    "dla34": {},
    "ese_vovnet19b_dw": {},
    "gcresnet33ts": {},
    "botnet26t_256": {"img_size": 64},
    "lambda_resnet26t": {"img_size": 64},
    "focalnet_tiny_srf": {},
    "davit_tiny": {},
    "mvitv2_tiny": {"img_size": 64},
    "hiera_tiny_224": {"img_size": 64},
    "swinv2_tiny_window8_256": {"img_size": 64},
    "gcvit_xxtiny": {"img_size": 64},
    "efficientvit_b0": {},
    "sequencer2d_s": {"img_size": 64},
    "resnest14d": {},
    "skresnet18": {},
    "gmlp_ti16_224": {"img_size": 64},
    "mambaout_femto": {},
    "pvt_v2_b0": {},
    "rexnet_100": {},
    "hgnetv2_b0": {},
}
MAXVIT = {
    "input_size": (64, 64),
    "stem_channels": 16,
    "partition_size": 2,
    "block_channels": [16, 32],
    "block_layers": [1, 1],
    "head_dim": 8,
    "stochastic_depth_prob": 0.0,
}


def make(module: str, name: str, **options: Any) -> nn.Module:
    """Build a model with a library function.

    Args:
        module: the function's module.
        name: the function.
        options: its arguments.

    Returns:
        The model.
    """
    return getattr(importlib.import_module(module), name)(**options)


def _timm(name: str, options: dict[str, Any]) -> Callable[[], nn.Module]:
    return partial(make, "timm", "create_model", model_name=name, num_classes=10, **options)


def cases() -> Iterator[Case]:
    """List the models.

    Yields:
        Each model.
    """
    for name, options in CLASSIFIERS.items():
        build = partial(make, "torchvision.models", name, weights=None, num_classes=10, **options)
        yield Case(f"torchvision/{name}", build, partial(image, 4, 3, 64, 64), tolerance=1e-3)
    vit = {"image_size": 32, "patch_size": 8, "num_layers": 2, "num_heads": 2, "hidden_dim": 32, "mlp_dim": 64}
    yield Case(
        "torchvision/vit",
        partial(make, "torchvision.models", "VisionTransformer", **vit),
        partial(image, 2, 3, 32, 32),
    )
    swin = {"patch_size": [4, 4], "embed_dim": 16, "depths": [2, 2], "num_heads": [2, 4], "window_size": [4, 4]}
    yield Case(
        "torchvision/swin",
        partial(make, "torchvision.models", "SwinTransformer", **swin, stochastic_depth_prob=0.0),
        partial(image, 2, 3, 64, 64),
    )
    yield Case(
        "torchvision/maxvit",
        partial(make, "torchvision.models", "MaxVit", **MAXVIT),
        partial(image, 2, 3, 64, 64),
        tolerance=1e-3,
    )
    for name in ("lraspp_mobilenet_v3_large", "deeplabv3_mobilenet_v3_large", "fcn_resnet50"):
        build = partial(
            make, "torchvision.models.segmentation", name, weights=None, weights_backbone=None, num_classes=5
        )
        yield Case(f"torchvision/{name}", build, partial(image, 2, 3, 96, 96), tolerance=1e-3)
    for name in ("r3d_18", "r2plus1d_18"):
        build = partial(make, "torchvision.models.video", name, weights=None, num_classes=5)
        yield Case(f"torchvision/{name}", build, partial(image, 2, 3, 4, 64, 64), tolerance=1e-3)
    yield Case(
        "torchvision/raft_small",
        partial(make, "torchvision.models.optical_flow", "raft_small", weights=None),
        lambda: {"args": (torch.rand(1, 3, 128, 128), torch.rand(1, 3, 128, 128)), "num_flow_updates": 2},
        tolerance=1e-3,
    )
    for name, options in TIMM.items():
        side = options.get("img_size", 96)
        yield Case(f"timm/{name}", _timm(name, options), partial(image, 2, 3, side, side), tolerance=1e-3)
