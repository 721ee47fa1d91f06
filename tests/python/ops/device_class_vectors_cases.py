"""Like device_class_cases.py, for vectors: tensors of which all, some or none of the vectors are aligned.

Run with TORCH_OPENCL_SPECIALIZE=eager, as alignment is a constant of specialised kernels.
"""

from collections.abc import Callable
from itertools import product

import pytest
import torch
import torch.nn.functional as F
from torch.testing import assert_close

# Elements before the first row, and between rows. All vectors are aligned only in the first layout.
LAYOUTS = [(0, 0), (1, 0), (0, 1)]
# Sizes of at least 2^16 elements: rows of whole vectors and of some elements more, and columns that are too few for
# vectors of floats.
MATRICES = [(40, 2048), (33, 2051), (1100, 130), (1100, 64)]
FLOATS = [torch.float32, torch.float16]
# Relative and absolute, for results in these dtypes of sums in float32.
TOLERANCES = {torch.float32: (1e-4, 2e-5), torch.float16: (4e-3, 4e-3)}


def laid_out(values: torch.Tensor, layout: tuple[int, int], device: str) -> torch.Tensor:
    """Copy a matrix to a device, with the elements of `layout` before it and between its rows."""
    (offset, gap), (rows, columns) = layout, values.shape
    memory = values.new_zeros(offset + rows * (columns + gap), device=device)
    return memory.as_strided((rows, columns), (columns + gap, 1), offset).copy_(values)


def check(function: Callable, dtype: torch.dtype, layouts: list[tuple[int, int]]) -> None:
    """Compare results, and gradients where there are any, with those of float64 on the CPU."""
    for shape, layout in product(MATRICES, layouts):
        values = torch.randn(shape).to(dtype)
        found, expected = [], []
        for device, x, results in (
            ("opencl", laid_out(values, layout, "opencl"), found),
            ("cpu", values.double(), expected),
        ):
            x.requires_grad_()
            result = function(x)
            results.append(result.detach())
            if result.requires_grad:
                weights = torch.arange(result.numel(), device=device).remainder(7).sub(3).view_as(result)
                results.extend(torch.autograd.grad(result, x, weights.to(result.dtype)))
        relative, absolute = TOLERANCES[dtype]
        for one, other in zip(found, expected, strict=True):
            assert_close(
                one.cpu().double(),
                other.double(),
                rtol=relative,
                atol=absolute * max(1, other.abs().max().item()),
                msg=lambda text, at=(shape, layout): f"{at}: {text}",
            )


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize(
    "reduction",
    [
        lambda x: x.sum(1),
        lambda x: x.sum(0),
        lambda x: x.sum(),
        lambda x: x.var(1),
        lambda x: x.var(0),
        lambda x: x.var(),
        lambda x: x.detach().argmax(0),
        lambda x: x.detach().argmax(1),
        lambda x: x.detach().argmax(),
    ],
    ids=[
        *("rows", "columns", "all", "variance of rows", "variance of columns", "variance of all"),
        *("argmax of columns", "argmax of rows", "argmax of all"),
    ],
)
def test_reductions(reduction: Callable, dtype: torch.dtype):
    torch.manual_seed(0)
    check(reduction, dtype, LAYOUTS)


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("dim", [0, 1])
@pytest.mark.parametrize("function", [torch.softmax, torch.log_softmax], ids=lambda function: function.__name__)
def test_softmax(function: Callable, dim: int, dtype: torch.dtype):
    torch.manual_seed(0)
    check(lambda x: function(x, dim), dtype, LAYOUTS[:2])


def of_images(norm: Callable) -> Callable:
    """Apply a norm to images whose positions are the columns of a matrix, and whose channels and samples are rows."""
    return lambda x: norm(x.reshape(1, x.shape[0], x.shape[1], 1))


def of_channels_last(norm: Callable) -> Callable:
    """Apply a norm to images whose channels are the columns of a matrix."""

    def apply(x: torch.Tensor) -> torch.Tensor:
        images = x.t().unsqueeze(0).unsqueeze(-1)
        # PyTorch's CPU has wrong gradients for channels-last images whose gradient is contiguous.
        return norm(images.contiguous() if x.device.type == "cpu" else images)

    return apply


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize(
    "norm",
    [
        lambda x: F.layer_norm(x, x.shape[1:], torch.ones_like(x[0]) * 2, torch.ones_like(x[0])),
        lambda x: F.rms_norm(x, x.shape[1:], torch.ones_like(x[0]) * 2),
        of_images(lambda x: F.batch_norm(x, None, None, torch.ones_like(x[0, :, 0, 0]) * 2, training=True)),
        of_channels_last(lambda x: F.batch_norm(x, None, None, torch.ones_like(x[0, :, 0, 0]) * 2, training=True)),
    ],
    ids=["layer", "root mean square", "batch", "batch of channels-last"],
)
def test_norms(norm: Callable, dtype: torch.dtype):
    torch.manual_seed(0)
    check(norm, dtype, LAYOUTS[:2])


def test_sums_into_other_layouts():
    """Several reduced dimensions, which splits cross, and results at addresses that are not aligned."""
    torch.manual_seed(0)
    x = torch.randn(64, 2, 16386)
    for dim in ((0, 2), (1,), (0,)):
        expected = x.sum(dim)
        for offset in (0, 1):
            memory = torch.zeros(expected.numel() + offset, device="opencl")
            out = memory[offset:].view_as(expected)
            torch.sum(x.to("opencl"), dim, out=out)
            assert_close(out.cpu(), expected, rtol=1e-4, atol=1e-2)


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int32, torch.int64], ids=str)
def test_sums_of_integers(dtype: torch.dtype):
    torch.manual_seed(0)
    for shape, layout in product(MATRICES, LAYOUTS):
        values = torch.randint(100, shape).to(dtype)
        x = laid_out(values, layout, "opencl")
        for dim in ((0,), (1,), (0, 1)):
            assert x.sum(dim).cpu().equal(values.sum(dim)), (shape, layout, dim)


def assert_agrees(found: torch.Tensor, expected: torch.Tensor) -> None:
    """Compare a result on the device with the same in float64."""
    relative, absolute = TOLERANCES[found.dtype]
    assert_close(found.cpu().double(), expected, rtol=relative, atol=absolute * expected.abs().max().item())


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("transposes", list(product((False, True), repeat=2)), ids=str)
def test_matmuls(transposes: tuple[bool, bool], dtype: torch.dtype):
    """Whole blocks and edges, and a sum over k that is split into parts."""
    for (rows, k, columns), layout in product([(128, 64, 132), (70, 37, 66), (16, 4100, 24)], LAYOUTS):
        shapes = [(rows, k), (k, columns)]
        operands, wide = [], []
        for shape, is_transposed in zip(shapes, transposes, strict=True):
            values = torch.randn(shape[::-1] if is_transposed else shape).to(dtype)
            operands.append(laid_out(values, layout, "opencl"))
            wide.append(values.double())
        a, b = (x.t() if flag else x for x, flag in zip(operands, transposes, strict=True))
        left, right = (x.t() if flag else x for x, flag in zip(wide, transposes, strict=True))
        bias = torch.randn(columns).to(dtype)
        assert_agrees(torch.addmm(bias.to("opencl"), a, b), torch.addmm(bias.double(), left, right))


def test_elements_further_apart_than_32_bit_offsets_reach():
    """Matrix rows, and images, of which the last begins at element 2^31."""
    distance = 1 << 30
    if torch.opencl.get_device_properties().total_memory < 8 * distance:
        pytest.skip("needs a device with 8 GiB of memory")
    memory = torch.empty(2 * distance + 4096, dtype=torch.float16, device="opencl")
    for start in (0, distance, 2 * distance):
        memory[start : start + 4096] = torch.randn(4096).half().to("opencl")
    a, b = memory.as_strided((3, 700), (distance, 3)), torch.randn(700, 40).half()
    assert_agrees(a @ b.to("opencl"), a.cpu().double() @ b.double())
    x, weight = memory.as_strided((3, 24, 9, 9), (distance, 81, 9, 1)), torch.randn(40, 24, 3, 3).half()
    assert_agrees(F.conv2d(x, weight.to("opencl")), F.conv2d(x.cpu().double(), weight.double()))


@pytest.mark.parametrize("offset", [0, 1])
@pytest.mark.parametrize("name", ["SGD", "Adam", "AdamW", "Adagrad"])
def test_fused_optimizers(name: str, offset: int):
    torch.manual_seed(0)
    values, gradients = torch.randn(2, 70_002)
    results = []
    for device, dtype, how in (("opencl", torch.float32, {"fused": True}), ("cpu", torch.float64, {"foreach": False})):
        parameter = torch.nn.Parameter(values.to(device, dtype)[offset:-1])
        parameter.grad = gradients.to(device, dtype)[offset:-1]
        options = {"momentum": 0.9} if name == "SGD" else {}
        optimizer = getattr(torch.optim, name)([parameter], lr=0.1, **options, **how)
        for _ in range(2):
            optimizer.step()
        results.append(parameter.detach().cpu().float())
    assert_close(*results)
