"""Models of diffusers."""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import torch
from torch import nn

from models.case import Case

BLOCKS = {"block_out_channels": (16, 32), "layers_per_block": 1, "norm_num_groups": 8}
UNET = {
    **BLOCKS,
    "sample_size": 16,
    "down_block_types": ("DownBlock2D", "AttnDownBlock2D"),
    "up_block_types": ("AttnUpBlock2D", "UpBlock2D"),
    "attention_head_dim": 8,
}
CONDITIONED = {
    **BLOCKS,
    "sample_size": 16,
    "down_block_types": ("CrossAttnDownBlock2D", "DownBlock2D"),
    "up_block_types": ("UpBlock2D", "CrossAttnUpBlock2D"),
    "cross_attention_dim": 24,
    "attention_head_dim": 8,
}
AUTOENCODER = {
    **BLOCKS,
    "down_block_types": ("DownEncoderBlock2D",) * 2,
    "up_block_types": ("UpDecoderBlock2D",) * 2,
}
DIT = {"num_attention_heads": 2, "attention_head_dim": 16, "in_channels": 4, "num_layers": 2, "sample_size": 16}
SD3 = {
    "sample_size": 16, "patch_size": 2, "in_channels": 4, "num_layers": 2, "attention_head_dim": 8,
    "num_attention_heads": 4, "joint_attention_dim": 24, "caption_projection_dim": 32, "pooled_projection_dim": 16,
    "out_channels": 4, "pos_embed_max_size": 16,
}  # fmt: skip
FLUX = {
    "patch_size": 1, "in_channels": 16, "num_layers": 1, "num_single_layers": 1, "attention_head_dim": 8,
    "num_attention_heads": 4, "joint_attention_dim": 24, "pooled_projection_dim": 16, "axes_dims_rope": (2, 2, 4),
}  # fmt: skip
VIDEO = CONDITIONED | {
    "down_block_types": ("CrossAttnDownBlock3D", "DownBlock3D"),
    "up_block_types": ("UpBlock3D", "CrossAttnUpBlock3D"),
}
SCHEDULERS = (
    "DDIMScheduler", "DDPMScheduler", "EulerDiscreteScheduler", "EulerAncestralDiscreteScheduler",
    "HeunDiscreteScheduler",
    "LMSDiscreteScheduler", "PNDMScheduler", "DPMSolverMultistepScheduler", "UniPCMultistepScheduler", "LCMScheduler",
)  # fmt: skip


class Sampled(nn.Module):
    """A model whose noise a scheduler removes step by step.

    Args:
        scheduler: the name of its class.
    """

    def __init__(self, scheduler: str) -> None:
        super().__init__()
        import diffusers

        self.model = diffusers.UNet2DModel(**UNET)
        self.scheduler = getattr(diffusers, scheduler)()

    def forward(self, sample: torch.Tensor) -> torch.Tensor:
        """Return the sample after four steps."""
        self.scheduler.set_timesteps(4, device=sample.device)
        for time in self.scheduler.timesteps:
            noise = self.model(self.scheduler.scale_model_input(sample, time), time).sample
            sample = self.scheduler.step(noise, time, sample).prev_sample
        return sample


def _made(name: str, **options: Any) -> Callable[[], nn.Module]:
    def build() -> nn.Module:
        import diffusers

        return getattr(diffusers, name)(**options)

    return build


def _noisy(channels: int) -> dict[str, Any]:
    return {"args": (torch.randn(2, channels, 16, 16), torch.tensor([10, 500]))}


def _packed() -> dict[str, Any]:
    return {
        "hidden_states": torch.randn(2, 16, 16),
        "encoder_hidden_states": torch.randn(2, 7, 24),
        "pooled_projections": torch.randn(2, 16),
        "timestep": torch.tensor([0.01, 0.5]),
        "img_ids": torch.randint(4, (16, 3)).float(),
        "txt_ids": torch.zeros(7, 3),
    }


def cases() -> Iterator[Case]:
    """List the models.

    Yields:
        Each model.
    """
    yield Case("diffusers/UNet2DModel", _made("UNet2DModel", **UNET), partial(_noisy, 3))
    yield Case(
        "diffusers/UNet2DConditionModel",
        _made("UNet2DConditionModel", **CONDITIONED),
        lambda: _noisy(4) | {"encoder_hidden_states": torch.randn(2, 7, 24)},
    )
    yield Case(
        "diffusers/AutoencoderKL", _made("AutoencoderKL", **AUTOENCODER), lambda: {"sample": torch.randn(1, 3, 32, 32)}
    )
    yield Case(
        "diffusers/DiT",
        _made("DiTTransformer2DModel", **DIT, patch_size=2),
        lambda: {
            "hidden_states": torch.randn(2, 4, 16, 16),
            "timestep": torch.tensor([10, 500]),
            "class_labels": torch.tensor([1, 7]),
        },
    )
    yield Case(
        "diffusers/SD3",
        _made("SD3Transformer2DModel", **SD3),
        lambda: {
            "hidden_states": torch.randn(2, 4, 16, 16),
            "encoder_hidden_states": torch.randn(2, 7, 24),
            "pooled_projections": torch.randn(2, 16),
            "timestep": torch.tensor([10, 500]),
        },
    )
    yield Case("diffusers/Flux", _made("FluxTransformer2DModel", **FLUX), _packed)
    yield Case(
        "diffusers/PixArt",
        _made("PixArtTransformer2DModel", **DIT, patch_size=2, cross_attention_dim=32, caption_channels=24),
        lambda: {
            "hidden_states": torch.randn(2, 4, 16, 16),
            "encoder_hidden_states": torch.randn(2, 7, 24),
            "timestep": torch.tensor([10, 500]),
            "added_cond_kwargs": {"resolution": None, "aspect_ratio": None},
        },
    )
    tiny = {"encoder_block_out_channels": (16, 16), "decoder_block_out_channels": (16, 16)}
    blocks = {"num_encoder_blocks": (1, 1), "num_decoder_blocks": (1, 1)}
    yield Case(
        "diffusers/AutoencoderTiny",
        _made("AutoencoderTiny", **tiny, **blocks),
        lambda: {"sample": torch.rand(1, 3, 32, 32)},
    )
    yield Case("diffusers/VQModel", _made("VQModel", **AUTOENCODER), lambda: {"sample": torch.randn(1, 3, 32, 32)})
    yield Case(
        "diffusers/UNet3DConditionModel",
        _made("UNet3DConditionModel", **VIDEO),
        lambda: {
            "args": (torch.randn(1, 4, 3, 16, 16), torch.tensor([10])),
            "encoder_hidden_states": torch.randn(1, 7, 24),
        },
        tolerance=1e-3,
    )
    for scheduler in SCHEDULERS:
        inputs = lambda: {"args": (torch.randn(1, 3, 16, 16),)}  # noqa: E731
        yield Case(f"diffusers/{scheduler}", partial(Sampled, scheduler), inputs, trains=False, tolerance=1e-3)
