"""Pooling with windows wide enough for vector loads along their rows, and with ties and NaN."""

import pytest
import torch
from float64 import computed
from op_samples import NoFallback
from op_table import FLOATING, covers
from torch.nn import functional

# (planes' shape, windows): wide windows with or without overlap, narrow ones, both at once.
SHAPES = [((40, 48), (2, 3)), ((37, 61), (3, 3)), ((20, 20), (7, 1)), ((33, 17), (1, 1)), ((16, 100), (5, 7))]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64], ids=str)
@pytest.mark.parametrize("memory_format", [torch.contiguous_format, torch.channels_last], ids=str)
@pytest.mark.parametrize(("shape", "windows"), SHAPES, ids=str)
def test_adaptive(
    shape: tuple[int, int],
    windows: tuple[int, int],
    memory_format: torch.memory_format,
    dtype: torch.dtype,
    device: torch.device,
) -> None:
    # Multiples of 1/8 up to 4: their averages are exact in float32, and there are many ties.
    numbers = torch.randint(-32, 33, (3, 37, *shape), generator=torch.Generator().manual_seed(0)) / 8
    x = numbers.to(dtype).contiguous(memory_format=memory_format)
    # Up to 4: adjacent bfloat16 values differ by 2 epsilons.
    tolerance = {"rtol": 0, "atol": 1.6e-2 if dtype == torch.bfloat16 else 1e-5}
    for function in (functional.adaptive_avg_pool2d, functional.adaptive_max_pool2d):
        results = []
        for where in (device, torch.device("cpu")):
            leaf = x.detach().to(where).requires_grad_()
            with NoFallback():
                out = function(leaf, windows)
                (grad,) = torch.autograd.grad(out, leaf, (out.detach() / 4).to(dtype))
            results.append((out.detach().cpu(), grad.cpu()))
        for ours, expected in zip(*results, strict=True):
            torch.testing.assert_close(ours, expected, **tolerance)


# (spatial sizes, kernel_size, stride, padding, dilation): rows with at least a vector of outputs whose windows are
# inside the input, with strides for vector loads, for halves of two vectors, and for single elements; with and without
# borders.
ROWS = [
    ((67,), (3,), (2,), (1,), (1,)),
    ((64,), (3,), (3,), (0,), (1,)),
    ((16,), (1,), (1,), (0,), (1,)),
    ((5, 41), (2, 3), (1, 1), (1, 1), (1, 2)),
    ((6, 70), (3, 4), (2, 2), (1, 2), (2, 1)),
    ((3, 4, 37), (2, 2, 2), (1, 2, 2), (1, 0, 1), (1, 1, 1)),
]


@pytest.mark.parametrize("ceil_mode", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.int32, torch.uint8], ids=str)
@pytest.mark.parametrize("windows", ROWS, ids=str)
def test_rows_of_windows(
    windows: tuple[tuple[int, ...], ...], dtype: torch.dtype, ceil_mode: bool, device: torch.device
) -> None:
    sizes, kernel_size, stride, padding, dilation = windows
    generator = torch.Generator().manual_seed(0)
    # Few distinct values, so that there are ties.
    x = torch.randint(0, 9, (3, 11, *sizes), generator=generator).to(dtype)
    if dtype.is_floating_point:
        x[torch.rand(x.shape, generator=generator) < 0.02] = torch.nan
    max_pool = getattr(functional, f"max_pool{len(sizes)}d")
    results = []
    for where in (device, torch.device("cpu")):
        options = (kernel_size, stride, padding, dilation, ceil_mode)
        with NoFallback():
            results.append([tensor.cpu() for tensor in max_pool(x.to(where), *options, return_indices=True)])
    for ours, expected in zip(*results, strict=True):
        torch.testing.assert_close(ours, expected, rtol=0, atol=0, equal_nan=True)


@pytest.mark.parametrize("count_include_pad", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16], ids=str)
@pytest.mark.parametrize("windows", ROWS, ids=str)
def test_averages_of_rows_of_windows(
    windows: tuple[tuple[int, ...], ...], dtype: torch.dtype, count_include_pad: bool, device: torch.device
) -> None:
    sizes, kernel_size, stride, padding, _ = windows
    x = torch.randint(-32, 33, (3, 11, *sizes), generator=torch.Generator().manual_seed(0)).to(dtype) / 8
    average = getattr(functional, f"avg_pool{len(sizes)}d")
    options = (kernel_size, stride, padding, True, count_include_pad)
    with NoFallback():
        ours = average(x.to(device), *options)
    # The CPU adds 16-bit values of volumes in 16 bits.
    torch.testing.assert_close(ours.cpu(), average(x.double(), *options).to(dtype))


def test_no_windows(device: torch.device) -> None:
    with NoFallback():
        assert functional.avg_pool2d(torch.empty(0, 3, 40, 40, device=device), 2).shape == (0, 3, 20, 20)
        assert functional.max_pool2d(torch.empty(0, 3, 40, 40, device=device), 2).shape == (0, 3, 20, 20)


@pytest.mark.parametrize("width", [16, 31, 48, 100])
def test_adaptive_max_takes_the_first_of_equals_and_any_nan(width: int, device: torch.device) -> None:
    x = torch.randint(0, 3, (1, 40, 3, width), generator=torch.Generator().manual_seed(0)).float()
    x[0, 1, 1, width // 2] = torch.nan
    x[0, 2, 2, width - 1] = torch.nan
    x[0, 3] = -torch.inf
    for windows in ((1, 1), (3, 1), (2, 2), (3, 3)):
        expected, places = functional.adaptive_max_pool2d(x, windows, return_indices=True)
        found, ours = functional.adaptive_max_pool2d(x.to(device), windows, return_indices=True)
        torch.testing.assert_close(found.cpu(), expected, rtol=0, atol=0, equal_nan=True)
        assert torch.equal(ours.cpu(), places)


@pytest.mark.parametrize("memory_format", [torch.contiguous_format, torch.channels_last])
@pytest.mark.parametrize("dtype", [torch.float32, torch.int32])
def test_windows_entirely_in_the_padding(
    dtype: torch.dtype, memory_format: torch.memory_format, device: torch.device
) -> None:
    # Both elements of each window are in the padding.
    x = torch.arange(8).reshape(1, 2, 4, 1).to(dtype).contiguous(memory_format=memory_format)
    windows = {"kernel_size": (1, 2), "stride": 1, "padding": (0, 1), "dilation": (1, 2)}
    result = functional.max_pool2d(x.to(device), **windows).cpu()
    assert torch.equal(result, functional.max_pool2d(x, **windows))


@pytest.mark.parametrize("batch", [True, False])
def test_three_spatial_dimensions_stay_channels_last(batch: bool, device: torch.device) -> None:
    x = torch.randn(1, 5, 6, 7, 8).contiguous(memory_format=torch.channels_last_3d)
    results = []
    for where in (device, torch.device("cpu")):
        leaf = (x if batch else x.squeeze(0)).to(where).requires_grad_()
        output, indices = functional.max_pool3d(leaf, (2, 3, 2), return_indices=True)
        output.square().sum().backward()
        for result in (output, indices):
            images = result if batch else result.unsqueeze(0)
            assert images.is_contiguous(memory_format=torch.channels_last_3d)
        results.append((output.detach().cpu(), indices.cpu(), leaf.grad.cpu()))
    for ours, expected in zip(*results, strict=True):
        assert torch.equal(ours, expected)


@pytest.mark.parametrize("dtype", computed(FLOATING), ids=str)
@pytest.mark.parametrize(
    ("shape", "kernel_size", "output_size"),
    [((2, 3, 17, 13), (2, 3), (8, 5)), ((3, 9, 9), (3, 2), (1, 8)), ((2, 3, 9, 12, 11), (2, 3, 1), (5, 1, 6))],
)
@covers(
    "fractional_max_pool2d",
    "fractional_max_pool2d_backward",
    "fractional_max_pool3d",
    "fractional_max_pool3d_backward",
    "fractional_max_pool3d_backward.grad_input",
)
def test_windows_at_random_positions(
    shape: tuple[int, ...],
    kernel_size: tuple[int, ...],
    output_size: tuple[int, ...],
    dtype: torch.dtype,
    device: torch.device,
) -> None:
    torch.manual_seed(0)
    spatial = len(kernel_size)
    # Few distinct values, exact in 16 bits, with ties; and a NaN.
    x = torch.randint(0, 50, shape).to(dtype)
    x.view(-1)[7] = float("nan")
    batch = 1 if len(shape) == spatial + 1 else shape[0]
    samples = (torch.randint(0, 16, (batch, shape[-spatial - 1], spatial)) / 16).to(dtype)
    pool = getattr(functional, f"fractional_max_pool{spatial}d_with_indices")
    exact = torch.float32 if dtype.itemsize == 2 else dtype
    results = []
    for where, kind in (("cpu", exact), (device, dtype)):
        leaf = x.to(kind).to(where).requires_grad_()
        with NoFallback():
            values, indices = pool(
                leaf, kernel_size, output_size=output_size, _random_samples=samples.to(kind).to(where)
            )
            (grad,) = torch.autograd.grad(values, leaf, torch.ones_like(values))
        results.append([values.detach().to("cpu", dtype), indices.cpu(), grad.to("cpu", dtype)])
    for ours, theirs in zip(results[1], results[0], strict=True):
        torch.testing.assert_close(ours, theirs, equal_nan=True)


def test_fractional_pooling_with_random_samples_of_the_device(device: torch.device) -> None:
    x = torch.arange(20.0, device=device).view(1, 1, 4, 5)
    with NoFallback():
        values = functional.fractional_max_pool2d(x, 2, output_ratio=(0.5, 0.5))
    assert values.shape == (1, 1, 2, 2)
    # The last window is at the end.
    assert values[0, 0, -1, -1] == 19


@pytest.mark.parametrize("spatial", (2, 3))
def test_random_positions_for_fewer_images_are_refused(spatial: int, device: torch.device) -> None:
    pool = getattr(functional, f"fractional_max_pool{spatial}d")
    x = torch.randn(2, 3, *[8] * spatial, device=device)
    for sizes, message in (((1, 3, spatial), "size.0."), ((2, 2, spatial), "size.1."), ((2, 3, 1), "size.2.")):
        with pytest.raises(RuntimeError, match=f"Expect _random_samples.{message}"):
            pool(x, 2, output_size=3, _random_samples=torch.rand(sizes, device=device))


@covers("adaptive_avg_pool3d_backward.grad_input")
def test_gradient_of_adaptive_average_into_a_given_tensor(device: torch.device) -> None:
    x, grad = torch.randn(2, 3, 5, 6, 7), torch.randn(2, 3, 2, 3, 4)
    expected = torch.ops.aten._adaptive_avg_pool3d_backward(grad, x)
    out = torch.empty(0, device=device)
    with NoFallback():
        torch.ops.aten.adaptive_avg_pool3d_backward.grad_input(grad.to(device), x.to(device), grad_input=out)
    torch.testing.assert_close(out.cpu(), expected)


def test_a_window_that_lies_in_the_padding_has_no_gradient(device: torch.device) -> None:
    """Dilation places all of its elements there; ATen's CPU kernel writes out of bounds then."""
    x = torch.zeros(2, 1, 1, device=device, requires_grad=True)
    out = functional.max_pool1d(x, 2, padding=1, dilation=2)
    assert out.isneginf().all()
    assert torch.autograd.grad(out.sum(), x)[0].eq(0).all()
