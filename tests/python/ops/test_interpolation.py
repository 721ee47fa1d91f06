"""Interpolation, padding and grids beyond OpInfo's samples: many sizes, layouts, extreme values."""

import time
from collections.abc import Callable

import pytest
import torch
from float64 import computed
from op_samples import NoFallback, assert_near_exact, assert_same
from op_table import covers
from releases import requires_torch
from torch.nn import functional as F

MODES = {
    "nearest": 4, "nearest-exact": 4, "bilinear": 4, "bicubic": 4, "linear": 3, "trilinear": 5,
}  # fmt: skip
SHAPES = {3: (2, 3, 11), 4: (2, 3, 7, 11), 5: (1, 2, 5, 7, 4)}


def both_ways(function, device: torch.device, *inputs: torch.Tensor) -> None:
    """Compare the result and gradients with the CPU's, and if they differ, with results in float64."""

    def run(where: torch.device, dtype: torch.dtype = torch.float32) -> list[torch.Tensor]:
        here = [tensor.detach().to(where, dtype).requires_grad_() for tensor in inputs]
        result = function(*here)
        weights = torch.linspace(-1, 2, result.numel()).view(result.shape).to(where, result.dtype)
        return [result, *torch.autograd.grad((result * weights).sum(), here)]

    with NoFallback():
        actual = run(device)
    cpu = torch.device("cpu")
    rounded = run(cpu)
    assert_near_exact(actual, rounded, run(cpu, torch.float64))
    # A position near an edge may be on its other side in float64, so the CPU's error there is not a useful limit.
    assert_same(actual, rounded, rtol=1e-5, atol=1e-4)


FORMATS = {3: (), 4: (torch.channels_last,), 5: (torch.channels_last_3d,)}
# The nearest modes have no align_corners.
CORNERS = [(mode, corners) for mode in MODES for corners in (None, True) if not (corners and "nearest" in mode)]


@pytest.mark.parametrize("factor", [0.3, 0.5, 0.97, 1.0, 1.6, 2.0, 5.5])
@pytest.mark.parametrize(("mode", "align_corners"), CORNERS)
def test_sizes(mode: str, align_corners: bool | None, factor: float, device: torch.device) -> None:
    shape = SHAPES[MODES[mode]]
    size = [max(1, int(factor * extent)) for extent in shape[2:]]
    for memory_format in (torch.contiguous_format, *FORMATS[len(shape)]):
        values = torch.randn(shape).contiguous(memory_format=memory_format)
        both_ways(lambda x: F.interpolate(x, size=size, mode=mode, align_corners=align_corners), device, values)
        if align_corners is None:
            both_ways(lambda x: F.interpolate(x, scale_factor=factor, mode=mode), device, values)


@pytest.mark.parametrize("factor", [0.4, 2.0, 3.1])
@pytest.mark.parametrize("mode", ["nearest", "bilinear", "bicubic"])
def test_rows_of_several_vectors(mode: str, factor: float, device: torch.device) -> None:
    both_ways(lambda x: F.interpolate(x, scale_factor=factor, mode=mode), device, torch.randn(2, 3, 5, 77))


@pytest.mark.parametrize(
    ("mode", "shape", "factor"), [("linear", (3,), 8), ("bilinear", (7, 5), 32), ("trilinear", (2, 3, 2), 9)]
)
def test_gradients_of_great_factors(mode: str, shape: tuple[int, ...], factor: int, device: torch.device) -> None:
    sizes = [size * factor for size in shape]
    expected, ours = torch.zeros(1, 2, *shape, requires_grad=True), torch.zeros(1, 2, *shape, requires_grad=True)
    F.interpolate(expected, size=sizes, mode=mode).sum().backward()
    F.interpolate(ours.to(device), size=sizes, mode=mode).sum().backward()
    # Up to 1000 weighted gradients are added, in another order.
    torch.testing.assert_close(ours.grad, expected.grad, rtol=1e-5, atol=0)


@pytest.mark.parametrize("size", [(1, 1), (3, 5), (7, 11), (20, 2), (16, 40)])
@pytest.mark.parametrize("align_corners", [False, True])
@pytest.mark.parametrize(
    "mode", ["bilinear", "bicubic", pytest.param("lanczos", marks=requires_torch("2.12", "this filter"))]
)
@covers(
    "_upsample_bicubic2d_aa",
    "_upsample_bicubic2d_aa_backward",
    "_upsample_lanczos2d_aa",
    "_upsample_lanczos2d_aa_backward",
)
def test_smoothing(mode: str, align_corners: bool, size: tuple[int, int], device: torch.device) -> None:
    op = getattr(torch.ops.aten, f"_upsample_{mode}2d_aa")
    both_ways(lambda x: op(x, size, align_corners), device, torch.randn(2, 3, 7, 11))


@pytest.mark.parametrize("channels", [2, 3, 17])
@pytest.mark.parametrize("mode", ["nearest", "bilinear", "bicubic"])
def test_channels_last_images(mode: str, channels: int, device: torch.device) -> None:
    generator = torch.Generator().manual_seed(0)
    image = torch.randn(2, channels, 37, 43, generator=generator).contiguous(memory_format=torch.channels_last)
    for size in ((60, 150), (20, 21)):
        results = []
        for where in (torch.device("cpu"), device):
            x = image.to(where).requires_grad_()
            y = F.interpolate(x, size=size, mode=mode)
            assert y.is_contiguous(memory_format=torch.channels_last)
            (grad,) = torch.autograd.grad(y.square().sum(), x)
            results.append((y.detach().cpu(), grad.cpu()))
        torch.testing.assert_close(results[1], results[0], rtol=1e-4, atol=1e-4)


def test_nan_affects_only_the_outputs_that_read_it(device: torch.device) -> None:
    values = torch.zeros(1, 1, 8, 8)
    values[0, 0, 0, 0] = float("nan")
    values[0, 0, 5, 5] = float("inf")
    for mode in ("nearest", "bilinear", "bicubic"):
        expected = F.interpolate(values, size=(5, 19), mode=mode)
        assert_same(F.interpolate(values.to(device), size=(5, 19), mode=mode), expected)
    # Elements that no output reads get no NaN gradient.
    wide = torch.zeros(1, 1, 8, device=device, requires_grad=True)
    gradient = torch.full((1, 1, 2), float("nan"), device=device)
    (grad,) = torch.autograd.grad(F.interpolate(wide, size=2), wide, gradient)
    assert grad.isnan().sum().item() == 2


@pytest.mark.parametrize("mode", ["reflect", "replicate"])
@pytest.mark.parametrize("padding", [(2, 1), (0, 3, 1, 0), (-1, 2, 2, -2), (1, 1, 0, 2, 3, 0)])
def test_padding(mode: str, padding: tuple[int, ...], device: torch.device) -> None:
    shape = (2, 3, *(5, 6, 7)[: len(padding) // 2])
    both_ways(lambda x: F.pad(x, padding, mode), device, torch.randn(shape))
    both_ways(lambda x: F.pad(x, padding, mode), device, torch.randn(shape).transpose(0, 1))


@pytest.mark.parametrize(
    ("mode", "antialias"),
    [("bilinear", False), ("bicubic", False), ("bilinear", True), ("bicubic", True), ("lanczos", True)],
)
@pytest.mark.parametrize("channels", [3, 5])
def test_images_of_bytes(mode: str, antialias: bool, channels: int, device: torch.device) -> None:
    if mode == "lanczos" and not hasattr(torch.ops.aten, "_upsample_lanczos2d_aa"):
        pytest.skip("PyTorch has lanczos from 2.12 on")
    image = torch.randint(0, 256, (2, channels, 40, 50), dtype=torch.uint8)
    for size in ((60, 70), (20, 30), (40, 25)):
        for there in (image.to(device), image.to(device, memory_format=torch.channels_last)):
            with NoFallback():
                ours = F.interpolate(there, size, mode=mode, antialias=antialias)
            expected = F.interpolate(image, size, mode=mode, antialias=antialias)
            assert_same(ours, expected)


@pytest.mark.parametrize("mode", ["bilinear", "bicubic"])
@pytest.mark.parametrize("shape", [(2, 3, 13, 17), (1, 6, 1, 9), (3, 1, 5, 2)])
def test_images_of_bytes_by_scales_and_corners(mode: str, shape: tuple[int, ...], device: torch.device) -> None:
    image = torch.randint(0, 256, shape, dtype=torch.uint8)
    for options in (
        {"scale_factor": (1.7, 0.6)},
        {"scale_factor": 0.3, "antialias": True, "recompute_scale_factor": True},
        {"size": (1, 2)},
        {"size": (7, 17), "align_corners": True},
        {"size": shape[2:]},
    ):
        if options.get("antialias") and min(shape[2:]) < 4:
            continue
        with NoFallback():
            found = F.interpolate(image.to(device), mode=mode, **options)
        assert_same(found, F.interpolate(image, mode=mode, **options))
    # The result is stored with strides that are not those of an image.
    out = torch.zeros(shape[0], shape[1], 8, 10, dtype=torch.uint8, device=device).transpose(2, 3)
    torch.ops.aten.upsample_bilinear2d.out(image.to(device), [10, 8], False, out=out)
    assert_same(out, F.interpolate(image, (10, 8), mode="bilinear"))
    # A step that does not fit the sizes.
    torch.ops.aten._upsample_bilinear2d_aa(image.to(device), [8, 4], False, None, 1e-10)


@pytest.mark.parametrize("dtype", [torch.int32, torch.int64, torch.uint8], ids=str)
def test_padding_of_integers(dtype: torch.dtype, device: torch.device) -> None:
    values = torch.arange(30).view(1, 5, 6).to(dtype) + (2**40 if dtype == torch.int64 else 0)
    with NoFallback():
        assert_same(F.pad(values.to(device), (2, 1), "reflect"), F.pad(values, (2, 1), "reflect"))


def test_a_long_padding_takes_about_as_long_as_a_short_one(device: torch.device) -> None:
    signal = torch.randn(1, 200_000)
    both_ways(lambda x: F.pad(x, (1000, 1000), "reflect"), device, signal)
    there = signal.to(device).requires_grad_()

    def seconds(padding: int) -> float:
        torch.opencl.synchronize()
        start = time.perf_counter()
        F.pad(there, (padding, padding), "reflect").sum().backward()
        torch.opencl.synchronize()
        return time.perf_counter() - start

    long, short = (min(seconds(padding) for _ in range(10)) for padding in (1000, 1))
    # Searching all of the padding for an element would take several hundred times as long.
    assert long < 20 * short


@pytest.mark.parametrize("shape", [(1, 3, 12), (4, 12, 7)])
@covers("reflection_pad2d_backward.grad_input", "replication_pad2d_backward.grad_input")
def test_gradients_of_padding_with_out(shape: tuple[int, ...], device: torch.device) -> None:
    values, grad = torch.randn(shape), torch.randn(shape[0], shape[1] + 2, shape[2] + 3)
    for name in ("reflection_pad2d_backward", "replication_pad2d_backward"):
        op = getattr(torch.ops.aten, name)
        expected = op(grad, values, (1, 2, 1, 1))
        out = torch.empty(0, device=device)
        op.grad_input(grad.to(device), values.to(device), (1, 2, 1, 1), grad_input=out)
        assert_same(out, expected)
        with pytest.raises(RuntimeError, match="sizes"):
            op(grad.to(device), values.to(device), (2, 2, 1, 1))


@pytest.mark.parametrize("align_corners", [False, True])
@pytest.mark.parametrize("padding", ["zeros", "border", "reflection"])
@pytest.mark.parametrize("mode", ["bilinear", "nearest", "bicubic"])
def test_grids(mode: str, padding: str, align_corners: bool, device: torch.device) -> None:
    """Positions in, at the edge of, and far outside the input; fewer channels than a vector, as many, and more."""
    grid = torch.randn(2, 6, 5, 2) * 1.5
    grid[0, 0, 0] = torch.tensor([-1.0, 1.0])
    grid[0, 0, 1] = torch.tensor([1e6, -1e6])
    for channels in (3, 16, 21):
        values = torch.randn(2, channels, 7, 9)
        how = {"mode": mode, "padding_mode": padding, "align_corners": align_corners}
        both_ways(lambda x, y, how=how: F.grid_sample(x, y, **how), device, values, grid)
    if mode != "bicubic":
        volume, places = torch.randn(2, 3, 4, 5, 6), torch.randn(2, 3, 4, 2, 3)
        both_ways(lambda x, y, how=how: F.grid_sample(x, y, **how), device, volume, places)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_gradients_of_large_grids_in_16_bits(dtype: torch.dtype, device: torch.device) -> None:
    """So many positions that the program is specialised; the inputs are 16-bit, and the sums are float32."""
    values, grid = torch.zeros(4, 8, 3, 2), torch.rand(4, 50, 50, 2) * 2 - 1
    weights = torch.linspace(0.5, 1.75, 4 * 8 * 50 * 50).view(4, 8, 50, 50).to(dtype)
    x = values.to(device, dtype).requires_grad_()
    F.grid_sample(x, grid.to(device, dtype), align_corners=False).backward(weights.to(device))
    expected = values.requires_grad_()
    F.grid_sample(expected, grid.to(dtype).float(), align_corners=False).backward(weights.float())
    torch.testing.assert_close(x.grad.cpu(), expected.grad.to(dtype))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_large_16_bit_channels_last_images(dtype: torch.dtype, device: torch.device) -> None:
    """Offsets within such images do not fit 16 bits."""
    generator = torch.Generator().manual_seed(0)
    values = torch.randn(1, 16, 96, 96, generator=generator).to(dtype).to(memory_format=torch.channels_last)
    grid = (torch.rand(1, 40, 40, 2, generator=generator) * 2 - 1).to(dtype)
    inputs = [tensor.to(device).requires_grad_() for tensor in (values, grid)]
    expected = [tensor.float().requires_grad_() for tensor in (values, grid)]
    result, wanted = (F.grid_sample(*both, mode="nearest", align_corners=True) for both in (inputs, expected))
    assert (result.cpu() == wanted.to(dtype)).float().mean() > 0.9  # positions between two pixels may round to either
    F.grid_sample(*inputs, align_corners=True).sum().backward()
    F.grid_sample(*expected, align_corners=True).sum().backward()
    for ours, theirs in zip(inputs, expected, strict=True):
        torch.testing.assert_close(ours.grad.cpu().float(), theirs.grad, rtol=0.05, atol=0.05 * theirs.grad.abs().max())


def test_grids_of_channels_last_images_and_affine_maps(device: torch.device) -> None:
    values = torch.randn(2, 20, 6, 8).contiguous(memory_format=torch.channels_last)
    theta = torch.tensor([[[0.8, -0.3, 0.1], [0.2, 1.1, -0.2]]]).repeat(2, 1, 1)

    def warp(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return F.grid_sample(x, F.affine_grid(y, (2, 20, 5, 7), align_corners=False), align_corners=False)

    both_ways(warp, device, values, theta)


@covers("affine_grid_generator")
@pytest.mark.parametrize("align_corners", [False, True])
@pytest.mark.parametrize("size", [(2, 3, 5, 7), (2, 3, 1, 4), (2, 1, 3, 4, 5), (2, 1, 1, 1, 1)], ids=str)
def test_affine_maps_of_images_and_volumes(size: tuple[int, ...], align_corners: bool, device: torch.device) -> None:
    theta = torch.randn(2, len(size) - 2, len(size) - 1, generator=torch.Generator().manual_seed(0))
    both_ways(lambda theta: F.affine_grid(theta, size, align_corners=align_corners), device, theta)
    permuted = theta.permute(1, 2, 0).contiguous().permute(2, 0, 1)
    both_ways(lambda theta: F.affine_grid(theta, size, align_corners=align_corners), device, permuted)
    half = theta.bfloat16()
    torch.testing.assert_close(
        F.affine_grid(half.to(device), size, align_corners=align_corners).cpu(),
        F.affine_grid(half.float(), size, align_corners=align_corners).bfloat16(),
        rtol=2e-2,
        atol=2e-2,
    )
    with pytest.raises(RuntimeError):
        torch.affine_grid_generator(theta[:1].to(device), size, align_corners)


@pytest.mark.parametrize(
    "windows",
    [
        {"kernel_size": 3},
        {"kernel_size": (2, 3), "stride": 2, "padding": (1, 2)},
        {"kernel_size": 2, "dilation": (2, 3), "padding": 1, "stride": (1, 2)},
    ],
)
@covers("col2im.out", "im2col.out")
def test_windows_as_columns(windows: dict, device: torch.device) -> None:
    values = torch.randn(2, 3, 8, 9)
    both_ways(lambda x: F.unfold(x, **windows), device, values)
    columns = F.unfold(values, **windows)
    both_ways(lambda x: F.fold(x, (8, 9), **windows), device, columns)
    both_ways(lambda x: F.fold(x, (8, 9), **windows), device, columns[0])
    pairs = [
        tuple(value) if isinstance(value := windows.get(key, default), tuple) else (value, value)
        for key, default in (("kernel_size", 1), ("dilation", 1), ("padding", 0), ("stride", 1))
    ]
    out = torch.empty(0, device=device)
    with NoFallback():
        assert_same(torch.ops.aten.im2col.out(values.to(device), *pairs, out=out), columns)
        out = torch.empty(0, device=device)
        torch.ops.aten.col2im.out(columns.to(device), (8, 9), *pairs, out=out)
    assert_same(out, F.fold(columns, (8, 9), **windows))


def test_columns_of_windows_of_one_element_are_a_copy(device: torch.device) -> None:
    values = torch.randn(2, 3, 4, 5, device=device)
    expected = values.cpu()
    F.unfold(values, 1).add_(1)
    assert_same(values, expected)


@pytest.mark.parametrize("sampler", (torch.grid_sampler_2d, torch.grid_sampler_3d))
def test_a_grid_of_another_batch_is_refused_before_its_dimensions(sampler: Callable, device: torch.device) -> None:
    for spatial in (2, 3):
        x = torch.randn(5, 5, *[5] * spatial, device=device)
        grid = torch.zeros(1, *[4] * spatial, spatial, device=device)
        with pytest.raises(RuntimeError, match="expected grid and input to have same batch size"):
            sampler(x, grid, 0, 0, True)


@pytest.mark.parametrize("mode", ["nearest", "nearest-exact"])
@pytest.mark.parametrize("dtype", computed([torch.float32, torch.float64]), ids=str)
def test_positions_near_an_integer_are_those_of_float32(dtype: torch.dtype, mode: str, device: torch.device) -> None:
    """The CPU computes float64 positions in float64, but positions for gradients and for small images in float32."""
    for size, output_size in ((1388, 1333), (3961, 8850), (20000, 30011), (8191, 24576)):
        x = torch.arange(size, dtype=torch.float32)[None, None]
        ours = F.interpolate(x.to(device, dtype), size=output_size, mode=mode)
        torch.testing.assert_close(ours.cpu().float(), F.interpolate(x, size=output_size, mode=mode), rtol=0, atol=0)


@pytest.mark.parametrize("factor", [1.05, 1.2, 2.1, 2.2])
def test_images_of_equal_or_doubled_size_keep_or_repeat_their_pixels(factor: float, device: torch.device):
    """For any factor; lines and volumes follow the factor."""
    for shape in ((1, 2, 4, 5), (2, 1, 3, 4)):
        both_ways(lambda x: F.interpolate(x, scale_factor=factor, mode="nearest"), device, torch.randn(shape))
    for shape in ((1, 2, 4), (1, 2, 4, 4, 4)):
        x = torch.randn(shape)
        ours = F.interpolate(x.to(device), scale_factor=factor, mode="nearest")
        assert torch.equal(ours.cpu(), F.interpolate(x, scale_factor=factor, mode="nearest"))


@pytest.mark.parametrize("mode", ["nearest", "nearest-exact"])
@pytest.mark.parametrize("dtype", computed([torch.float64, torch.float32]), ids=str)
def test_nearest_gradients_go_to_the_pixel_that_was_read(mode: str, dtype: torch.dtype, device: torch.device):
    """At positions where float32 and float64 round to different pixels."""
    sizes = [(47, 0.7, None), (97, 3.3333, None), (13, 2.6, None), (49, None, 98 * 3), (123, None, 410), (3, 1.3, None)]
    for length, scale, size in sizes:
        for dims in (1, 2, 3):
            shape = (1, 1, *([2] * (dims - 1)), length)
            x = torch.arange(length, dtype=dtype, device=device).expand(shape).clone().requires_grad_()
            how = {"size": [2] * (dims - 1) + [size]} if size else {"scale_factor": (*([1.0] * (dims - 1)), scale)}
            result = F.interpolate(x, mode=mode, **how)
            (grad,) = torch.autograd.grad(result.sum(), x)
            read = torch.bincount(result.detach().flatten().long().cpu(), minlength=length)
            assert grad.sum(dim=tuple(range(x.dim() - 1))).long().tolist() == read.tolist(), (length, scale, size, dims)
