"""Distances between points: few points are compared directly, many by a matmul."""

import pytest
import torch
from float64 import computed
from op_samples import NoFallback
from op_table import covers


@pytest.mark.parametrize("points", [4, 40])
@pytest.mark.parametrize("p", [1.0, 2.0, 3.0])
def test_distances_of_batches_and_their_gradients(device, p, points):
    on_host = [torch.randn(2, 1, points, 5), torch.randn(3, points + 1, 5)]
    on_device = [tensor.to(device).requires_grad_() for tensor in on_host]
    expected, result = torch.cdist(*[t.requires_grad_() for t in on_host], p=p), torch.cdist(*on_device, p=p)
    torch.testing.assert_close(result.cpu(), expected)
    expected.cos().sum().backward()
    result.cos().sum().backward()
    for ours, theirs in zip(on_device, on_host, strict=True):
        torch.testing.assert_close(ours.grad.cpu(), theirs.grad)


@pytest.mark.parametrize("mode", ["use_mm_for_euclid_dist", "donot_use_mm_for_euclid_dist"])
def test_compute_mode(device, mode):
    x, y = torch.randn(30, 4), torch.randn(6, 4)
    result = torch.cdist(x.to(device), y.to(device), compute_mode=mode)
    torch.testing.assert_close(result.cpu(), torch.cdist(x, y, compute_mode=mode))


def test_operands_that_are_not_lists_of_points_are_refused(device):
    for x, y in [
        (torch.ones(3, 4), torch.ones(3, 5)),
        (torch.ones(4), torch.ones(3, 4)),
        (torch.ones(2, 2).int(),) * 2,
    ]:
        with pytest.raises(RuntimeError):
            torch.cdist(x.to(device), y.to(device))


def test_distances_of_empty_tensors(device):
    for x, y in [(torch.ones(0, 4), torch.ones(30, 4)), (torch.ones(30, 0), torch.ones(3, 0))]:
        torch.testing.assert_close(torch.cdist(x.to(device), y.to(device)).cpu(), torch.cdist(x, y))


def test_inference_mode_and_pairs_of_one_list(device):
    x = torch.randn(30, 4)
    with torch.inference_mode():
        distances = torch.cdist(x.to(device), x.to(device)).cpu()
    # By squares and a matmul, the distance of a point from itself is the square root of a rounding error.
    expected = torch.cdist(x.double(), x.double(), compute_mode="donot_use_mm_for_euclid_dist")
    torch.testing.assert_close(distances.double().square(), expected.square(), atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(torch.pdist(x.to(device)).cpu(), torch.pdist(x))


@pytest.mark.parametrize("dtype", computed((torch.float32, torch.float64)), ids=str)
@pytest.mark.parametrize("p", [0.0, 0.7, 1.0, 2.0, 3.0, float("inf")])
@covers("_pdist_forward", "_pdist_backward")
def test_distances_within_a_list_and_their_gradients(device, p, dtype):
    torch.manual_seed(0)
    x = torch.randn(9, 4).to(dtype)
    x[3] = x[5]
    results = []
    for where in ("cpu", device):
        leaf = x.to(where).requires_grad_()
        with NoFallback():
            distances = torch.pdist(leaf, p)
            (grad,) = torch.autograd.grad(distances, leaf, torch.linspace(-1, 1, 36, dtype=dtype).to(where))
        results.append([distances.detach().cpu(), grad.cpu()])
    for ours, theirs in zip(results[1], results[0], strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-5)
    assert torch.pdist(x[:1].to(device), p).shape == (0,)


@pytest.mark.parametrize("points", [2, 40])
@pytest.mark.parametrize("p", [1.0, 2.0, 3.0, float("inf")])
def test_gradients_of_distances_in_batches(device, p, points):
    """vmap batches only the gradient, or only the points."""
    x, y = torch.randn(4, points, 3), torch.randn(points + 1, 3)
    weights = torch.randn(5, points, points + 1)

    def distances(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return torch.cdist(a, b, p)

    def gradient(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return torch.func.grad(lambda a: distances(a, b).square().sum())(a)

    pull_back = torch.func.vjp(distances, x[0], y)[1]
    expected = [torch.stack(gradients) for gradients in zip(*map(pull_back, weights), strict=True)]
    pull_back = torch.func.vjp(distances, x[0].to(device), y.to(device))[1]
    for ours, theirs in zip(torch.func.vmap(pull_back)(weights.to(device)), expected, strict=True):
        torch.testing.assert_close(ours.cpu(), theirs)
    expected = torch.stack([gradient(each, y) for each in x])
    actual = torch.func.vmap(gradient, in_dims=(0, None))(x.to(device), y.to(device))
    torch.testing.assert_close(actual.cpu(), expected)


@pytest.mark.parametrize(
    ("x_size", "y_size", "in_dims"),
    [
        ((3, 4, 2), (3, 6, 5, 2), (0, 0)),
        ((6, 4, 2), (6, 6, 5, 2), (0, 0)),
        ((3, 4, 2), (6, 5, 2), (0, None)),
        ((4, 2), (3, 6, 5, 2), (None, 0)),
    ],
)
def test_gradients_of_distances_between_points_of_other_ranks(device, x_size, y_size, in_dims):
    x, y = torch.randn(x_size), torch.randn(y_size)

    def gradients(a: torch.Tensor, b: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return torch.func.grad(lambda a, b: torch.cdist(a, b, 1.5).square().sum(), argnums=(0, 1))(a, b)

    size = max(t.size(0) for t, dim in zip((x, y), in_dims, strict=True) if dim == 0)
    pairs = ([t if dim is None else t[i] for t, dim in zip((x, y), in_dims, strict=True)] for i in range(size))
    expected = [torch.stack(found) for found in zip(*(gradients(a, b) for a, b in pairs), strict=True)]
    for there in (device, torch.device("cpu")):
        actual = torch.func.vmap(gradients, in_dims=in_dims)(x.to(there), y.to(there))
        for ours, theirs in zip(actual, expected, strict=True):
            torch.testing.assert_close(ours.cpu(), theirs)
