"""Like device_class_cases.py, for operators that torchvision declares: here they are declared without it."""

import itertools
import math

import pytest
import torch
from float64 import computed

SIZES = "SymInt batch_size, SymInt channels, SymInt height, SymInt width"
POOLED = "float spatial_scale, SymInt pooled_height, SymInt pooled_width"
SAMPLED = "int sampling_ratio, bool aligned"


def interpolated(image: torch.Tensor, y: float, x: float) -> torch.Tensor:
    """Interpolate linearly between the pixels around a position; 0 beyond one pixel outside."""
    height, width = image.shape[1:]
    if not (-1 <= y <= height and -1 <= x <= width):
        return torch.zeros_like(image[:, 0, 0])
    y, x = max(y, 0.0), max(x, 0.0)
    top, left = min(int(y), height - 1), min(int(x), width - 1)
    bottom, right = min(top + 1, height - 1), min(left + 1, width - 1)
    upper = torch.lerp(image[:, top, left], image[:, top, right], x - left)
    lower = torch.lerp(image[:, bottom, left], image[:, bottom, right], x - left)
    return torch.lerp(upper, lower, y - top)


def roi_align(features: torch.Tensor, rois: torch.Tensor, *arguments: float) -> torch.Tensor:
    """Average bilinear samples of each bin of each region: He, Gkioxari, Dollár and Girshick, Mask R-CNN (2017)."""
    scale, height, width, ratio, aligned = arguments
    out = features.new_zeros(len(rois), features.shape[1], height, width)
    for k, (image, *corners) in enumerate(rois.tolist()):
        left, top, right, bottom = (corner * scale - (0.5 if aligned else 0) for corner in corners)
        bins = [(bottom - top) / height, (right - left) / width]
        if not aligned:
            bins = [max(bottom - top, 1.0) / height, max(right - left, 1.0) / width]
        rows, columns = (ratio if ratio > 0 else math.ceil(size) for size in bins)
        for i, j, p, q in itertools.product(range(height), range(width), range(rows), range(columns)):
            y = top + (i + (p + 0.5) / rows) * bins[0]
            x = left + (j + (q + 0.5) / columns) * bins[1]
            out[k, :, i, j] += interpolated(features[int(image)], y, x) / (rows * columns)
    return out


def roi_align_backward(grad: torch.Tensor, rois: torch.Tensor, *arguments: float) -> torch.Tensor:
    """Differentiate `roi_align` by features, in which it is linear."""
    scale, height, width, *sizes, ratio, aligned = arguments
    features = grad.new_zeros(sizes, requires_grad=True)
    with torch.enable_grad():
        out = roi_align(features, rois, scale, height, width, ratio, aligned)
        return torch.autograd.grad(out, features, grad)[0]


@pytest.fixture(scope="module", autouse=True)
def _declared():
    """Declare the operators and their CPU functions, as importing torchvision does."""
    if hasattr(torch.ops.torchvision, "roi_align"):
        yield
        return
    library = torch.library.Library("torchvision", "FRAGMENT")
    library.define(f"roi_align(Tensor input, Tensor rois, {POOLED}, {SAMPLED}) -> Tensor")
    library.define(f"_roi_align_backward(Tensor grad, Tensor rois, {POOLED}, {SIZES}, {SAMPLED}) -> Tensor")
    library.impl("roi_align", roi_align, "CPU")
    library.impl("_roi_align_backward", roi_align_backward, "CPU")
    yield
    library._destroy()


@pytest.mark.parametrize("ratio", [2, 0])
@pytest.mark.parametrize("aligned", [False, True])
@pytest.mark.parametrize("dtype", computed((torch.float32, torch.float64, torch.float16)), ids=str)
def test_regions_of_feature_maps(dtype: torch.dtype, aligned: bool, ratio: int):
    features = torch.randn(2, 5, 7, 9, dtype=torch.float64)
    # Whole, within a pixel, empty, inverted, partly and entirely outside.
    corners = [(0, 0, 18, 14), (5, 3, 6, 4), (4, 4, 4, 4), (9, 9, 3, 2), (-6, -6, 30, 5), (40, 40, 60, 60)]
    rois = torch.tensor([(k % 2, *each) for k, each in enumerate(corners)], dtype=torch.float64)
    shape = (0.5, 2, 3)
    grad = torch.randn(len(rois), 5, 2, 3, dtype=torch.float64)
    torch.opencl.reset_fallbacks()
    ours = torch.ops.torchvision.roi_align(
        features.to("opencl", dtype), rois.to("opencl", dtype), *shape, ratio, aligned
    )
    back = torch.ops.torchvision._roi_align_backward(
        grad.to("opencl", dtype), rois.to("opencl", dtype), *shape, *features.shape, ratio, aligned
    )
    tolerance = {torch.float16: 1e-2, torch.float32: 1e-5, torch.float64: 1e-10}[dtype]
    expected = roi_align(features, rois, *shape, ratio, aligned)
    torch.testing.assert_close(ours.cpu().double(), expected, rtol=tolerance, atol=tolerance)
    expected = roi_align_backward(grad, rois, *shape, *features.shape, ratio, aligned)
    torch.testing.assert_close(back.cpu().double(), expected, rtol=tolerance, atol=tolerance)
    assert not torch.opencl.fallbacks()
