"""3x3 convolutions with many channels, which use Winograd convolution when it is faster."""

import itertools
import os

import pytest
import torch
from op_samples import NoFallback, assert_near_exact
from torch.nn import functional

# The tolerance of PyTorch's own tests of nn.functional.conv2d in float32 on Apple's GPUs.
TOLERANCE = 5e-5
# Channels-last formats by the number of spatial dimensions.
MEMORY_FORMATS = {1: [], 2: [torch.channels_last], 3: [torch.channels_last_3d]}
# Images, channels, output channels, height, width. All are large enough for Winograd to be faster on a CPU.
SHAPES = [(2, 64, 64, 28, 28), (3, 65, 72, 17, 23), (2, 130, 50, 21, 14), (1, 48, 64, 40, 33)]


def as_it_is(tensor: torch.Tensor) -> torch.Tensor:
    return tensor


def channels_last(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.contiguous(memory_format=torch.channels_last)


def part_of_a_larger(tensor: torch.Tensor) -> torch.Tensor:
    """A view with an offset, surrounded by NaN that must not affect the result."""
    images, channels, height, width = tensor.shape
    larger = tensor.new_full((images + 1, channels + 2, height + 1, width + 3), torch.nan)
    view = larger[1:, 1:-1, :-1, 2:-1]
    view.copy_(tensor)
    return view


def transposed(tensor: torch.Tensor) -> torch.Tensor:
    """Neither rows nor channels are dense."""
    return tensor.transpose(-1, -2).contiguous().transpose(-1, -2)


def results(use, operands: list[torch.Tensor]) -> list[torch.Tensor]:
    """The result, its gradients, and second derivatives."""
    operands = [operand.detach().requires_grad_() for operand in operands]
    out = use(*operands)
    weighing = torch.linspace(-1, 1, out.numel(), dtype=out.dtype).view(out.shape).to(out.device)
    first = torch.autograd.grad(out, operands, weighing * out.detach(), create_graph=True)
    second = torch.autograd.grad(sum(part.square().mean() for part in first[:2]), operands[:2])
    return [out, *first, *second]


def check(use, operands: list[torch.Tensor], device: torch.device, layout=as_it_is) -> None:
    """Compare results with the CPU's in float64, relative to the largest element."""
    expected = results(use, [operand.double() for operand in operands])
    with NoFallback():
        actual = results(
            use, [layout(operand.to(device)) if operand.dim() == 4 else operand.to(device) for operand in operands]
        )
    for got, wanted in zip(actual, expected, strict=True):
        scale = wanted.abs().max().clamp(min=1e-30)
        torch.testing.assert_close(got.cpu().double() / scale, wanted / scale, rtol=0, atol=TOLERANCE)


def operands(shape: tuple[int, ...], *, bias: bool = False) -> list[torch.Tensor]:
    images, channels, out, height, width = shape
    weight = torch.randn(out, channels, 3, 3) / (9 * channels) ** 0.5
    return [torch.randn(images, channels, height, width), weight, *([torch.randn(out)] if bias else [])]


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("layout", [as_it_is, channels_last, part_of_a_larger, transposed])
def test_layouts(shape, layout, device):
    check(lambda x, w, b: functional.conv2d(x, w, b, padding=1), operands(shape, bias=True), device, layout)


@pytest.mark.parametrize("padding", [0, 1, 2, (1, 2), (4, 0), "same", "valid"], ids=str)
def test_padding(padding, device):
    check(lambda x, w: functional.conv2d(x, w, padding=padding), operands((2, 64, 64, 18, 27)), device)


def test_a_transposed_convolution(device):
    use = lambda x, w, b: functional.conv_transpose2d(x, w.transpose(0, 1), b, padding=1)  # noqa: E731
    check(use, operands((2, 64, 80, 19, 22), bias=True), device)


@pytest.mark.parametrize("size", [(1, 1), (1, 30), (30, 1), (3, 4)], ids=str)
def test_images_smaller_than_a_tile(size, device):
    check(lambda x, w: functional.conv2d(x, w, padding=1), operands((40, 64, 64, *size)), device)


def test_no_images(device):
    x, weight = operands((0, 64, 64, 28, 28))
    x, weight = x.to(device).requires_grad_(), weight.to(device).requires_grad_()
    out = functional.conv2d(x, weight, padding=1)
    out.sum().backward()
    assert out.shape == (0, 64, 28, 28) and x.grad.shape == x.shape
    assert weight.grad.eq(0).all()


def test_mixed_layouts(device):
    x, weight = (operand.to(device) for operand in operands((2, 64, 72, 28, 21)))
    expected = functional.conv2d(x.cpu().double(), weight.cpu().double(), padding=1)
    for image in (x, channels_last(x)):
        for kernel in (weight, channels_last(weight), weight.transpose(2, 3).contiguous().transpose(2, 3)):
            actual = functional.conv2d(image, kernel, padding=1).cpu().double()
            torch.testing.assert_close(actual, expected, rtol=TOLERANCE, atol=TOLERANCE)


def test_every_run_has_the_same_bits(device):
    x, weight = (operand.to(device) for operand in operands((2, 64, 64, 28, 28)))
    runs = [results(lambda x, w: functional.conv2d(x, w, padding=1), [x, weight]) for _ in range(3)]
    for run in runs[1:]:
        assert all(torch.equal(first, again) for first, again in zip(runs[0], run, strict=True))


def skip_without_winograd() -> None:
    """Skip tests that only devices with Winograd convolution can pass."""
    properties = torch.opencl.get_device_properties()
    if properties.type != "cpu" or os.environ.get("TORCH_OPENCL_DEVICE_CLASS") == "gpu":
        pytest.skip("Winograd convolution is for CPUs")
    if properties.local_mem_bytes < 256 << 10:
        pytest.skip("tiles of 64 channels need 256 KiB of local memory")


def spread(use, operands: list[torch.Tensor], device: torch.device) -> tuple[int, int]:
    """Count NaN that only the device returns, and NaN that only the CPU returns."""
    expected = use(*(operand.double() for operand in operands)).isnan()
    actual = use(*(operand.to(device) for operand in operands)).isnan().cpu()
    return int((actual & ~expected).sum()), int((expected & ~actual).sum())


def gradient_of(wanted: int):
    """The gradient of a convolution's input (0) or weight (1)."""
    shape = ([1, 1], [1, 1], [1, 1], False, [0, 0], 1)
    mask = [wanted == 0, wanted == 1, False]
    return lambda *operands: torch.ops.aten.convolution_backward(*operands, None, *shape, mask)[wanted]


def test_winograd_is_used_for_large_convolutions(device):
    """Winograd is detected by NaN, which it spreads over tiles, or over all elements of a kernel.

    There are so many tiles that it is faster with any number of cores.
    """
    skip_without_winograd()
    x, weight = operands((8, 64, 64, 56, 56))
    gradient = torch.randn(8, 64, 56, 56)
    # At a position that two of three kernel elements read or write.
    x[1, 2, 0, 0] = gradient[1, 2, 0, 0] = torch.nan
    for use, of in [
        (lambda x, w: functional.conv2d(x, w, padding=1), [x, weight]),
        (gradient_of(0), [gradient, x, weight]),
        (gradient_of(1), [gradient, x, weight]),
    ]:
        more, fewer = spread(use, of, device)
        assert more > 0 and fewer == 0


@pytest.mark.parametrize(
    "use",
    [
        lambda x, w: functional.conv2d(x, w, padding=2, dilation=2),
        lambda x, w: functional.conv2d(x, w, padding=1, stride=2),
        lambda x, w: functional.conv2d(x, w[:, :16], padding=1, groups=4),
        pytest.param(
            lambda x, w: functional.conv2d(x.double(), w.double(), padding=1), marks=pytest.mark.needs_float64
        ),
    ],
    ids=["dilation", "stride", "groups", "double"],
)
def test_other_convolutions_do_not_use_winograd(use, device):
    x, weight = operands((2, 64, 64, 28, 28))
    x[1, 2, 0, 0] = torch.nan
    assert spread(use, [x, weight], device) == (0, 0)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("spatial", [1, 2, 3])
@pytest.mark.parametrize("is_transposed", [False, True])
def test_results_are_channels_last_if_input_or_weight_is(is_transposed, spatial, dtype, device):
    use = getattr(functional, f"conv{'_transpose' * is_transposed}{spatial}d")
    generator = torch.Generator().manual_seed(0)
    formats = [torch.contiguous_format, *MEMORY_FORMATS[spatial]]
    for channels, groups, kernel_size in [(6, 1, 3), (6, 6, 3)]:
        x = torch.randn(2, channels, *[5] * spatial, generator=generator).to(dtype)
        weight = torch.randn(channels, channels // groups, *[kernel_size] * spatial, generator=generator).to(dtype)
        for x_format, weight_format in itertools.product(formats, formats):
            results_on = {}
            for where, wide in (("cpu", dtype), ("exact", torch.float64), (device, dtype)):
                place = "cpu" if where == "exact" else where
                given = [
                    tensor.to(place, wide, memory_format=memory_format).requires_grad_()
                    for tensor, memory_format in ((x, x_format), (weight, weight_format))
                ]
                out = use(*given, groups=groups)
                results_on[where] = [out, *torch.autograd.grad(out, given, torch.ones_like(out))]
            # Not the CPU's layout, which depends on the number of threads.
            wanted = formats[-1] if formats[-1] in (x_format, weight_format) else torch.contiguous_format
            for rounded, exact, actual in zip(*results_on.values(), strict=True):
                layout = torch.empty(exact.shape, memory_format=wanted).stride()
                assert actual.stride() == layout, (channels, groups, kernel_size, x_format, weight_format)
                # CPUs without 16-bit float instructions accumulate in 16 bits.
                assert_near_exact(actual, rounded, exact)
