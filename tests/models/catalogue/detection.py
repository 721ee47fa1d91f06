"""Detectors of torchvision, and its operators for them."""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import torch
from torch import nn

from models.case import Case
from models.catalogue.images import make

REGIONS = 7


class Regions(nn.Module):
    """An operator on regions of the features of a convolution.

    Args:
        operator: takes torchvision.ops, features and regions.
        channels: of the features.
    """

    def __init__(self, operator: Callable[[Any, torch.Tensor, torch.Tensor], Any], channels: int) -> None:
        super().__init__()
        self.features, self.operator = nn.Conv2d(3, channels, 3, padding=1), operator

    def forward(self, image: torch.Tensor, regions: torch.Tensor) -> Any:
        """Apply the operator to the regions."""
        from torchvision import ops

        return self.operator(ops, self.features(image), regions)


# Operators by name, and their number of channels.
OPERATORS: dict[str, tuple[Callable[[Any, torch.Tensor, torch.Tensor], Any], int]] = {
    "roi_align": (lambda ops, x, regions: ops.roi_align(x, regions, 3, 0.5, 2), 8),
    "roi_align aligned": (lambda ops, x, regions: ops.roi_align(x, regions, (2, 3), 0.5, aligned=True), 8),
    "roi_pool": (lambda ops, x, regions: ops.roi_pool(x, regions, 3, 0.5), 8),
    "ps_roi_align": (lambda ops, x, regions: ops.ps_roi_align(x, regions, 2, 0.5, 2), 8),
    "ps_roi_pool": (lambda ops, x, regions: ops.ps_roi_pool(x, regions, 2, 0.5), 8),
    "deform_conv2d": (
        lambda ops, x, _: ops.deform_conv2d(
            x[:, :3], x[:, 3:21], x.new_ones(5, 3, 3, 3), mask=x[:, 21:30].sigmoid(), padding=1
        ),
        30,
    ),
    "nms": (lambda ops, _, regions: ops.batched_nms(regions[:, 1:], regions[:, 4], regions[:, 0].long(), 0.3), 1),
}


def _regions() -> dict[str, Any]:
    corners = torch.rand(REGIONS, 2) * 40
    # The last one extends beyond the image, and the one before is empty.
    ends = corners + torch.rand(REGIONS, 2) * 30
    ends[-2:] = torch.stack([corners[-2], corners[-1] + 50])
    image = torch.randint(2, (REGIONS, 1)).float()
    return {"args": (torch.randn(2, 3, 32, 32), torch.cat([image, corners, ends], 1))}


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
    few = {"rpn_post_nms_top_n_train": 100, "box_batch_size_per_image": 32} if "rcnn" in name else {}
    options = {"weights": None, "weights_backbone": None, "num_classes": 5, **sizes, **few, **options}
    return Case(
        f"torchvision/{name}",
        partial(make, "torchvision.models.detection", name, **options),
        _boxes,
        loss=_sum_of_losses,
        # Scores from random weights are nearly equal: rounding decides which boxes are kept.
        evaluates=False,
        tolerance=1e-3,
        narrow=("keypoints",),
    )


def cases() -> Iterator[Case]:
    """List the models.

    Yields:
        Each model.
    """
    for name, (operator, channels) in OPERATORS.items():
        yield Case(f"torchvision/{name}", partial(Regions, operator, channels), _regions, trains=name != "nms")
    yield _detector("fasterrcnn_mobilenet_v3_large_320_fpn")
    yield _detector("ssdlite320_mobilenet_v3_large")
    yield _detector("retinanet_resnet50_fpn_v2")
    yield _detector("fcos_resnet50_fpn")
    yield _detector("maskrcnn_resnet50_fpn")
    yield _detector("keypointrcnn_resnet50_fpn", num_keypoints=3)
