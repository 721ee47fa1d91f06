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


class Sampled(nn.Module):
    """A model whose noise a scheduler takes away step by step.

    Args:
        scheduler: the name of its class.
    """

    def __init__(self, scheduler: str) -> None:
        super().__init__()
        import diffusers

        self.model = diffusers.UNet2DModel(**UNET)
        self.scheduler = getattr(diffusers, scheduler)()

    def forward(self, sample: torch.Tensor) -> torch.Tensor:
        """Return the sample after three steps."""
        self.scheduler.set_timesteps(3, device=sample.device)
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
    for scheduler in ("DDIMScheduler", "EulerDiscreteScheduler", "DPMSolverMultistepScheduler", "DDPMScheduler"):
        inputs = lambda: {"args": (torch.randn(1, 3, 16, 16),)}  # noqa: E731
        yield Case(f"diffusers/{scheduler}", partial(Sampled, scheduler), inputs, trains=False, tolerance=1e-3)
