"""Empty tensors: results, gradients and errors equal the CPU's; kernels read nothing out of bounds."""

import pytest
import torch
from torch.nn import functional as F


def both(use, device, *shapes):
    """Outputs and gradients of `use` for tensors of `shapes`, on the CPU and on the device, or the errors."""
    found = []
    for where in ("cpu", device):
        generator = torch.Generator().manual_seed(0)
        tensors = [torch.randn(shape, generator=generator).to(where).requires_grad_() for shape in shapes]
        try:
            out = use(*tensors)
            grads = torch.autograd.grad(out, tensors, torch.ones_like(out), allow_unused=True)
            found.append([result.detach().cpu() for result in (out, *grads) if result is not None])
        except RuntimeError as error:
            found.append(str(error))
    return found


@pytest.mark.parametrize("padding", [(3, 0), (4, 0)])
@pytest.mark.parametrize("channels", [(8, 16), (2, 3)])
def test_a_transposed_convolution_whose_output_would_be_empty_is_refused(device, padding, channels):
    source, result = channels
    expected, got = both(
        lambda x, w: F.conv_transpose2d(x, w, None, 1, padding), device, (1, source, 5, 5), (source, result, 2, 2)
    )
    assert "Output size is too small" in expected
    assert got == expected


def test_the_gradients_of_a_convolution_of_no_data_are_zeros(device):
    image, weight = torch.ones(1, 8, 0, 5, device=device), torch.ones(16, 8, 3, 3, device=device)
    grads = torch.ops.aten.convolution_backward_overrideable(
        torch.ones(1, 16, 2, 5, device=device), image, weight, [1, 1], [2, 1], [1, 1], False, [0, 0], 1, [True] * 3
    )
    assert grads[0].shape == image.shape
    assert not grads[1].any()
    assert grads[2].tolist() == [10] * 16


@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("groups", [1, 2])
@pytest.mark.parametrize("nothing", ["batch", "input channels", "height"])
def test_convolutions_of_nothing(device, nothing, groups, transposed):
    batch, channels, height = (
        0 if nothing == name else size for name, size in (("batch", 2), ("input channels", 4), ("height", 5))
    )
    weight = (channels, 6 // groups, 3, 3) if transposed else (6, channels // groups, 3, 3)
    convolve = F.conv_transpose2d if transposed else F.conv2d
    expected, got = both(
        lambda x, w, b: convolve(x, w, b, padding=2, groups=groups), device, (batch, channels, height, 6), weight, (6,)
    )
    if isinstance(expected, str):
        assert isinstance(got, str)
    else:
        torch.testing.assert_close(got, expected, equal_nan=True)


@pytest.mark.parametrize("reduction", ["none", "mean", "sum"])
@pytest.mark.parametrize("shape", [(0, 4), (0, 4, 2, 3), (3, 4, 0, 3)])
def test_losses_of_no_samples(device, shape, reduction):
    def loss(x):
        target = torch.zeros(x.shape[0], *x.shape[2:], dtype=torch.long, device=x.device)
        return F.nll_loss(x, target, reduction=reduction)

    expected, got = both(loss, device, shape)
    torch.testing.assert_close(got, expected, equal_nan=True)


@pytest.mark.parametrize("mode", ["sum", "mean", "max"])
@pytest.mark.parametrize(
    ("indices", "offsets", "rows"),
    [([], [0, 0], 4), ([], [], 4), ([], [0, 0], 0), ([0, 1], [], 4), ([0, 1], [0], 0)],
)
def test_bags_of_no_embeddings(device, mode, indices, offsets, rows):
    weight = torch.ones(rows, 3, device=device, requires_grad=True)
    use = lambda: F.embedding_bag(  # noqa: E731
        torch.tensor(indices, dtype=torch.long, device=device),
        weight,
        torch.tensor(offsets, dtype=torch.long, device=device),
        mode=mode,
    )
    if indices and not rows:
        with pytest.raises(RuntimeError, match="found idx to be 0"):
            use().cpu()
        return
    out = use()
    assert out.tolist() == [[0, 0, 0]] * len(offsets)
    out.sum().backward()
    assert not weight.grad.any()


@pytest.mark.parametrize("shape", [(0, 3), (3, 0)])
def test_indices_into_empty_tensors_are_checked(device, shape):
    for where in ("cpu", device):
        x, index = torch.zeros(shape, device=where), torch.tensor([5], device=where)
        with pytest.raises(
            (RuntimeError, IndexError), match=r"should be positive|out of DATA bounds|out of range in self"
        ):
            x.index_select(0, index)
        with pytest.raises((RuntimeError, IndexError)):
            F.embedding(index, x)


@pytest.mark.parametrize("bias", [(3, 3), (7,)])
def test_a_matmul_without_rows_checks_the_shape_of_its_bias(device, bias):
    expected, got = both(torch.addmm, device, bias, (0, 4), (4, 5))
    assert "must match the existing size" in expected
    assert got == expected
    for where in ("cpu", device):
        with pytest.raises(RuntimeError, match="must match the existing size"):
            F.linear(torch.zeros(0, 4, device=where), torch.zeros(5, 4, device=where), torch.zeros(3, device=where))


def test_max_of_a_0d_tensor(device):
    for where in ("cpu", device):
        values, indices = torch.topk(torch.tensor(3.0, device=where), 0)
        assert (values.item(), indices.item()) == (3, 0)
