"""Expanded tensors, such as the gradients of sums: right, and no slower than dense ones."""

import statistics
import time
from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from op_samples import assert_near_exact
from torch import Tensor

Layer = Callable[[Tensor, Tensor], Tensor]

LAYERS: dict[str, tuple[Layer, tuple[int, ...], tuple[int, ...]]] = {
    "conv1d": (lambda x, w: F.conv1d(x, w, w[:, 0, 0], padding=1), (2, 6, 19), (8, 6, 3)),
    "conv2d_3x3": (lambda x, w: F.conv2d(x, w, w[:, 0, 0, 0], padding=1), (3, 6, 11, 13), (8, 6, 3, 3)),
    "conv2d_1x1": (F.conv2d, (3, 6, 11, 13), (8, 6, 1, 1)),
    "conv2d_strided": (lambda x, w: F.conv2d(x, w, padding=1, stride=2), (3, 6, 11, 13), (8, 6, 3, 3)),
    "conv2d_depthwise": (lambda x, w: F.conv2d(x, w, padding=1, groups=6), (3, 6, 11, 13), (6, 1, 3, 3)),
    "conv2d_grouped": (lambda x, w: F.conv2d(x, w, padding=1, groups=2), (3, 6, 11, 13), (8, 3, 3, 3)),
    "conv3d": (lambda x, w: F.conv3d(x, w, padding=1), (2, 3, 5, 6, 7), (4, 3, 3, 3, 3)),
    "conv_transpose2d": (lambda x, w: F.conv_transpose2d(x, w, stride=2), (3, 6, 5, 7), (6, 4, 2, 2)),
    "mm": (torch.mm, (37, 41), (41, 43)),
    "bmm": (torch.bmm, (3, 37, 41), (3, 41, 43)),
    "max_pool2d": (lambda x, w: F.max_pool2d(x * w, 2), (3, 6, 10, 12), (1,)),
    "adaptive_avg_pool2d": (lambda x, w: F.adaptive_avg_pool2d(x * w, 3), (3, 6, 10, 12), (1,)),
    "interpolate": (lambda x, w: F.interpolate(x * w, scale_factor=2, mode="bilinear"), (3, 6, 5, 6), (1,)),
    "pad": (lambda x, w: F.pad(x * w, (1, 2, 1, 0), mode="reflect"), (3, 6, 5, 6), (1,)),
}


def expansions(shape: tuple[int, ...]) -> list[Tensor]:
    """Make tensors of a shape, expanded in all dimensions, in the first, in the last, and in all but the first."""
    kept = ((), range(1, len(shape)), range(len(shape) - 1), (0,))
    generator = torch.Generator().manual_seed(0)
    sizes = [[size if dim in dims else 1 for dim, size in enumerate(shape)] for dims in kept]
    return [torch.randn(size, generator=generator).expand(shape) for size in sizes]


def to_device(tensor: Tensor, device: torch.device) -> Tensor:
    """Copy an expanded tensor as an expanded tensor."""
    if 0 not in tensor.stride():
        return tensor.to(device)
    once = tensor[tuple(slice(0, 1) if stride == 0 else slice(None) for stride in tensor.stride())]
    return once.to(device).expand(tensor.shape)


def run(layer: Layer, tensors: list[Tensor], device: torch.device) -> list[Tensor]:
    """Return a layer's result and gradients."""
    first, second, gradient = (to_device(tensor, device) for tensor in tensors)
    operands = [first.requires_grad_(), second.requires_grad_()]
    result = layer(*operands)
    return [result, *torch.autograd.grad(result, operands, gradient.expand_as(result))]


@pytest.mark.parametrize("name", LAYERS)
def test_expanded_operands_and_gradients_give_the_cpus_results(name: str, device: torch.device) -> None:
    layer, first, second = LAYERS[name]
    generator = torch.Generator().manual_seed(1)
    x, w = torch.randn(first, generator=generator), torch.randn(second, generator=generator)
    result = layer(x, w)
    dense = torch.randn(result.shape, generator=generator)
    cases = [[x, w, gradient] for gradient in expansions(tuple(result.shape))]
    # The gradient of a maximum is ambiguous for ties.
    if name != "max_pool2d":
        cases += [[repeated, w, dense] for repeated in expansions(first)]
    cases += [[x, repeated, dense] for repeated in expansions(second)]
    for case in cases:
        actual, expected = run(layer, case, device), run(layer, case, torch.device("cpu"))
        if name == "conv2d_3x3":
            # Winograd convolution on CPUs: its transforms subtract values that may cancel, as with equal weights.
            torch.testing.assert_close([tensor.cpu() for tensor in actual], expected, rtol=1e-4, atol=1e-4)
        else:
            exact = run(layer, [tensor.double() for tensor in case], torch.device("cpu"))
            assert_near_exact(actual, expected, exact)


def times(calls: list[Callable[[], object]]) -> list[float]:
    """Return the median time of each call; calls alternate."""
    measured: list[list[float]] = [[] for _ in calls]
    for _ in range(9):
        for call, found in zip(calls, measured, strict=True):
            torch.opencl.synchronize()
            start = time.perf_counter()
            call()
            torch.opencl.synchronize()
            found.append(time.perf_counter() - start)
    return [statistics.median(found[2:]) for found in measured]


def test_a_convolution_of_expanded_input_is_not_slower(device: torch.device) -> None:
    x, w = torch.randn(4, 64, 40, 40, device=device), torch.randn(64, 64, 3, 3, device=device)
    repeated = torch.ones((), device=device).expand(x.shape)
    # The best of three: other processes may use the cores during one of them.
    rounds = [times([lambda: F.conv2d(x, w, padding=1), lambda: F.conv2d(repeated, w, padding=1)]) for _ in range(3)]
    assert min(expanded / dense for dense, expanded in rounds) < 2  # gathering single elements takes 4.5 times as long


def test_expanded_gradients_of_a_convolution_are_not_slower(device: torch.device) -> None:
    x = torch.randn(4, 64, 40, 40, device=device, requires_grad=True)
    w = torch.randn(64, 64, 3, 3, device=device, requires_grad=True)
    y = F.conv2d(x, w, padding=1)
    gradient, one = torch.randn(y.shape, device=device), torch.ones((), device=device).expand(y.shape)

    def backward(given: Tensor) -> None:
        torch.autograd.grad(y, (x, w), given, retain_graph=True)

    # The best of three, as above.
    rounds = [times([lambda: backward(gradient), lambda: backward(one)]) for _ in range(3)]
    assert min(expanded / dense for dense, expanded in rounds) < 1.6  # otherwise 2.3 times as long
