"""Like device_class_cases.py, for matmuls and convolutions whose dtypes are narrow or differ."""

import pytest
import torch
import torch.nn.functional as F
from device_class_cases import check
from releases import RELEASE, release


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int32, torch.int64], ids=str)
@pytest.mark.parametrize("groups", [1, 6])
def test_convolutions_of_integers(groups: int, dtype: torch.dtype):
    numbers = [torch.randint(200, shape).to(dtype) for shape in ((2, 6, 13, 11), (12, 6 // groups, 3, 3), (12,))]
    check(lambda x, w, b: F.conv2d(x, w, b, padding=1, groups=groups), *numbers)
    check(lambda x, w: F.conv1d(x[:, :, 0], w[..., 0], groups=groups), *numbers[:2])


@pytest.mark.parametrize(("m", "k", "n"), [(1, 1100, 33), (70, 130, 65)])
def test_products_of_narrow_dtypes(m: int, k: int, n: int):
    """Products of bytes are exact, and sums of 16-bit matrices are not rounded to 16 bits."""
    a, b = torch.randint(-128, 128, (m, k)).to(torch.int8), torch.randint(-128, 128, (k, n)).to(torch.int8)
    check(torch._int_mm, a, b)
    if release("2.13") <= RELEASE:
        # CPUs of older PyTorch versions refuse it.
        check(torch._int_mm, a.view(torch.uint8), b)
    for dtype in (torch.float16, torch.bfloat16):
        x, y = torch.randn(m, k).to(dtype), torch.randn(k, n).to(dtype)
        exact = x.double() @ y.double()
        ours = torch.mm(x.to("opencl"), y.to("opencl"), out_dtype=torch.float32).cpu().double()
        torch.testing.assert_close(ours, exact, rtol=0, atol=1e-6 * exact.abs().max().item())


@pytest.mark.parametrize("rows", [1, 6, 40])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16], ids=str)
def test_packed_weights(dtype: torch.dtype, rows: int):
    """Few rows of x are multiplied with the packed weight, more rows with the unpacked values."""
    n, k, group = 40, 320, 32
    x, rounding = torch.randn(rows, k).to(dtype), {torch.float32: 2e-6, torch.float16: 2e-3, torch.bfloat16: 16e-3}

    def compare(ours: torch.Tensor, exact: torch.Tensor) -> None:
        tolerance = rounding[dtype] * exact.abs().max().item()
        torch.testing.assert_close(ours.cpu().double(), exact, rtol=0, atol=tolerance)

    weight, scales = torch.randint(-128, 128, (n, k), dtype=torch.int8), torch.rand(n).to(dtype)
    ours = torch._weight_int8pack_mm(*(tensor.to("opencl") for tensor in (x, weight, scales)))
    compare(ours, x.double() @ weight.double().t() * scales.double())

    values, parameters = torch.randint(16, (n, k)), torch.randn(k // group, n, 2).to(dtype)
    given = (values[:, ::2] * 16 + values[:, 1::2]).to(torch.uint8)
    scale, zero = (parameters[..., i].t().double().repeat_interleave(group, 1) for i in (0, 1))
    packed = torch._convert_weight_to_int4pack(given.to("opencl"), 2)
    ours = torch._weight_int4pack_mm(x.to("opencl"), packed, group, parameters.to("opencl"))
    compare(ours, x.double() @ ((values - 8) * scale + zero).t())


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.int16, torch.uint8, torch.bool], ids=str)
def test_narrow_elements_in_wide_vectors(dtype: torch.dtype):
    """Specialised programs for GPUs process eight elements at a time, at any offset and size."""
    numbers = torch.arange(70_003) % 11
    x = numbers.to(dtype)

    def work(tensor: torch.Tensor) -> list[torch.Tensor]:
        parts = tensor, tensor[1:], tensor[3:-2]
        return (
            [f(part) for part in parts for f in (torch.clone, lambda t: t | t if t.dtype == torch.bool else t + t)]
            + [part == part.flip(0) for part in parts]
            + [part.float() for part in parts]
        )

    moved = x.to("opencl")
    torch.opencl.warmup(lambda: work(moved))
    for ours, expected in zip(work(moved), work(x), strict=True):
        assert torch.equal(ours.cpu(), expected)
