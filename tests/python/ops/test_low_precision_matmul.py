"""Matmuls of narrow dtypes: results of another dtype, integers of 8 and 4 bits, float8 with scales."""

import pytest
import torch
from op_table import covers

aten = torch.ops.aten
SIZES = pytest.mark.parametrize("size", [(3, 5, 4), (17, 64, 33), (130, 300, 70), (1, 512, 96)], ids=str)


def assert_near(actual: torch.Tensor, exact: torch.Tensor, tolerance: float) -> None:
    """Compare with the float64 result, relative to the largest value."""
    scale = exact.abs().max().clamp(min=1e-30)
    torch.testing.assert_close(actual.cpu().double() / scale, exact / scale, rtol=0, atol=tolerance)


@SIZES
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
@covers(*(f"{op}.dtype{out}" for op in ("mm", "bmm", "addmm", "baddbmm") for out in ("", "_out")))
def test_results_in_float32(dtype, size, device, no_fallback):
    m, k, n = size
    a, b, bias = torch.randn(2, m, k).to(dtype), torch.randn(2, k, n).to(dtype), torch.randn(2, m, n)
    exact = a.double() @ b.double()
    a, b, bias = a.to(device), b.to(device), bias.to(device)
    added = -0.5 * bias.cpu().double() + 2 * exact
    calls = {
        "mm": (torch.mm, (a[0], b[0]), {}, exact[0]),
        "bmm": (torch.bmm, (a, b), {}, exact),
        "addmm": (torch.addmm, (bias[0], a[0], b[0]), {"beta": -0.5, "alpha": 2}, added[0]),
        "baddbmm": (torch.baddbmm, (bias, a, b), {"beta": -0.5, "alpha": 2}, added),
    }
    for name, (function, operands, scales, wanted) in calls.items():
        actual = function(*operands, out_dtype=torch.float32, **scales)
        assert actual.dtype == torch.float32
        # Not rounded to the inputs' dtype.
        assert_near(actual, wanted, 1e-6)
        out = torch.empty(0, device=device)
        getattr(aten, name).dtype_out(*operands, torch.float32, **scales, out=out)
        assert torch.equal(out.cpu(), actual.cpu())
    assert torch.mm(a[0], b[0].mT.contiguous().mT, out_dtype=dtype).dtype == dtype
    half = bias[0].to(dtype)
    assert_near(torch.addmm(half, a[0], b[0], out_dtype=torch.float32), half.cpu().double() + exact[0], 1e-6)


def test_other_output_dtypes_are_refused(device):
    a = torch.ones(4, 4, device=device)
    for operands, dtype in (((a, a), torch.float64), ((a.half(), a.half()), torch.bfloat16)):
        with pytest.raises(RuntimeError, match="out_dtype must be the same as input dtype"):
            torch.mm(*operands, out_dtype=dtype)
    with pytest.raises(RuntimeError, match="same dtype"):
        torch.mm(a.half(), a, out_dtype=torch.float32)
    with pytest.raises(RuntimeError, match="shapes cannot be multiplied"):
        torch.mm(a.half(), a[:3].half(), out_dtype=torch.float32)
    with pytest.raises(RuntimeError, match="provided out tensor"):
        aten.mm.dtype_out(a.half(), a.half(), torch.float32, out=a.half())


@pytest.mark.parametrize("dtype", [torch.int8, torch.uint8], ids=str)
@pytest.mark.parametrize("size", [(3, 5, 4), (17, 1100, 33), (40, 2050, 24), (5, 0, 3), (0, 4, 3)], ids=str)
@covers("_int_mm", "_int_mm.out")
def test_integers_are_exact(size, dtype, device, no_fallback):
    m, k, n = size
    a, b = torch.randint(-128, 128, (m, k)), torch.randint(-128, 128, (k, n))
    a = (a + 128 if dtype == torch.uint8 else a).to(dtype)
    if m:
        a[0], b[:, 0] = a.new_tensor(255 if dtype == torch.uint8 else -128), -128
    exact = (a.long() @ b).int()
    b = b.to(torch.int8)
    assert torch.equal(torch._int_mm(a.to(device), b.to(device)).cpu(), exact)
    assert torch.equal(torch._int_mm(a.to(device), b.to(device).t().contiguous().t()).cpu(), exact)
    out = torch.empty(m, n, dtype=torch.int32, device=device)
    assert torch._int_mm(a.to(device), b.to(device), out=out) is out
    assert torch.equal(out.cpu(), exact)


def test_integer_matmul_refuses_arguments_as_the_cpu_does(device):
    a = torch.ones(4, 4, dtype=torch.int8)
    calls = [
        (a, a.to(torch.uint8), {}),
        (a[:, :3], a, {}),
        (a[0], a, {}),
        (a, a, {"out": torch.empty(3, 4, dtype=torch.int32)}),
    ]
    for first, second, given in calls:
        for where in ("cpu", device):
            with pytest.raises(RuntimeError, match="int_mm"):
                torch._int_mm(first.to(where), second.to(where), **{key: t.to(where) for key, t in given.items()})


ROUNDING = {torch.float32: 2e-6, torch.float16: 1e-3, torch.bfloat16: 8e-3}


@SIZES
@pytest.mark.parametrize("dtype", ROUNDING, ids=str)
@covers("_weight_int8pack_mm")
def test_weights_of_8_bits(dtype, size, device, no_fallback):
    m, k, n = size
    x, weight = torch.randn(m, k).to(dtype), torch.randint(-128, 128, (n, k), dtype=torch.int8)
    scales = (torch.rand(n) + 0.5).to(dtype)
    actual = torch._weight_int8pack_mm(x.to(device), weight.to(device), scales.to(device))
    assert actual.dtype == dtype
    assert_near(actual, x.double() @ weight.double().t() * scales.double(), ROUNDING[dtype])


def packed_as_cuda_does(weight: torch.Tensor, inner_k_tiles: int) -> torch.Tensor:
    """Pack values [n, k] one by one, as specified in the documentation of the layout."""
    n, k = weight.shape
    out = torch.zeros(n // 8, k // (inner_k_tiles * 16), 32, inner_k_tiles // 2, dtype=torch.int64)
    for row in range(n):
        for column in range(k):
            outer, rest = divmod(column, inner_k_tiles * 16)
            pair, rest = divmod(rest, 32)
            tile, rest = divmod(rest, 16)
            half, rest = divmod(rest, 8)
            thread, is_odd = row % 8 * 4 + rest // 2, rest % 2
            out[row // 8, outer, thread, pair] |= weight[row, column].item() << (is_odd * 16 + tile * 8 + half * 4)
    return torch.where(out >= 1 << 31, out - (1 << 32), out).int()


@pytest.mark.parametrize("dtype", ROUNDING, ids=str)
@pytest.mark.parametrize("inner_k_tiles", [2, 4, 8])
@covers("_convert_weight_to_int4pack", "_weight_int4pack_mm")
def test_weights_of_4_bits(inner_k_tiles, dtype, device, no_fallback):
    m, n, k, group = 5, 24, 256, 64
    values = torch.randint(0, 16, (n, k))
    given = (values[:, ::2] * 16 + values[:, 1::2]).to(torch.uint8)
    packed = torch._convert_weight_to_int4pack(given.to(device), inner_k_tiles)
    assert torch.equal(packed.cpu(), packed_as_cuda_does(values, inner_k_tiles))
    x, parameters = torch.randn(m, k).to(dtype), torch.randn(k // group, n, 2).to(dtype)
    scale, zero = (parameters[..., i].t().double().repeat_interleave(group, 1) for i in (0, 1))
    exact = x.double() @ ((values - 8) * scale + zero).t()
    actual = torch._weight_int4pack_mm(x.to(device), packed, group, parameters.to(device))
    assert actual.dtype == dtype
    # The weight is also rounded to the dtype.
    assert_near(actual, exact, 2 * ROUNDING[dtype])


@pytest.mark.parametrize("rows", [1, 4, 17, 80])
@pytest.mark.parametrize("group", [32, 64, 256])
@pytest.mark.parametrize("inner_k_tiles", [2, 4, 8])
def test_groups_of_4_bits_have_their_own_scale(inner_k_tiles, group, rows, device, no_fallback):
    n, k = 40, 768
    values = torch.randint(0, 16, (n, k))
    packed = torch._convert_weight_to_int4pack(
        (values[:, ::2] * 16 + values[:, 1::2]).to(torch.uint8).to(device), inner_k_tiles
    )
    # Rows of x and parameters that do not begin at the start of their storage.
    x, parameters = torch.randn(rows + 1, k), torch.randn(k // group + 1, n, 2)
    scale, zero = (parameters[1:, :, i].t().double().repeat_interleave(group, 1) for i in (0, 1))
    actual = torch._weight_int4pack_mm(x.to(device)[1:], packed, group, parameters.to(device)[1:])
    assert_near(actual, x[1:].double() @ ((values - 8) * scale + zero).t(), 2 * ROUNDING[torch.float32])


@pytest.mark.parametrize("dtype", ROUNDING, ids=str)
@pytest.mark.parametrize("group", [32, 128, 256])
@covers("_weight_int4pack_mm_with_scales_and_zeros")
def test_weights_of_4_bits_with_scales_and_zeros(group, dtype, device, no_fallback):
    n, k = 24, 256
    values = torch.randint(0, 16, (n, k))
    words = (values.view(n, k // 8, 8) << torch.arange(0, 32, 4)).sum(-1)
    packed = torch.where(words >= 1 << 31, words - (1 << 32), words).int()
    scales, zeros = torch.randn(k // group, n).to(dtype), torch.randint(0, 16, (k // group, n), dtype=torch.int8)
    scale, zero = (each.t().double().repeat_interleave(group, 1) for each in (scales, zeros))
    arguments = packed.to(device), group, scales.to(device), zeros.to(device)
    for rows in (1, 5, 40):
        x = torch.randn(rows, k).to(dtype)
        actual = torch._weight_int4pack_mm_with_scales_and_zeros(x.to(device), *arguments)
        assert actual.dtype == dtype
        assert_near(actual, x.double() @ ((values - zero) * scale).t(), 2 * ROUNDING[dtype])
    with pytest.raises(RuntimeError, match=r"qZeros of shape \[8, 24\]"):
        torch._weight_int4pack_mm_with_scales_and_zeros(
            x.to(device), arguments[0], 32, scales[:0].to(device), arguments[3]
        )
    with pytest.raises(RuntimeError, match=r"int32 mat2 \[n, k / 8\]"):
        torch._weight_int4pack_mm_with_scales_and_zeros(x.to(device)[:, :8], *arguments)


def test_packed_weights_are_checked(device):
    weight = torch.zeros(16, 64, dtype=torch.uint8, device=device)
    with pytest.raises(RuntimeError, match="innerKTiles"):
        torch._convert_weight_to_int4pack(weight, 3)
    with pytest.raises(RuntimeError, match="dividable by 8"):
        torch._convert_weight_to_int4pack(weight[:9], 2)
    packed = torch._convert_weight_to_int4pack(weight, 2)
    x, parameters = torch.ones(2, 128, device=device), torch.ones(4, 16, 2, device=device)
    with pytest.raises(RuntimeError, match="qGroupSize"):
        torch._weight_int4pack_mm(x, packed, 33, parameters)
    with pytest.raises(RuntimeError, match="qScaleAndZeros"):
        torch._weight_int4pack_mm(x, packed, 64, parameters)
    with pytest.raises(RuntimeError, match="expect A"):
        torch._weight_int4pack_mm(x[:, :64], packed, 32, parameters)


FLOAT8 = [torch.float8_e4m3fn, torch.float8_e5m2]


@pytest.mark.parametrize("dtypes", [(a, b) for a in FLOAT8 for b in FLOAT8], ids=str)
@pytest.mark.parametrize("kind", ["tensorwise", "rowwise"])
@covers("_scaled_mm", "_scaled_mm.out", "_scaled_mm_v2", "_scaled_mm_v2.out")
def test_scaled_float8(kind, dtypes, device, no_fallback):
    m, k, n = 17, 48, 33
    a, b = torch.randn(m, k).to(dtypes[0]), torch.randn(n, k).to(dtypes[1]).t()
    scales = (
        (torch.tensor(0.5), torch.tensor([[3.0]])) if kind == "tensorwise" else (torch.rand(m, 1), torch.rand(1, n))
    )
    bias = torch.randn(n)
    exact = (a.double() * scales[0].double()) @ (b.double() * scales[1].double())
    recipe = 0 if kind == "tensorwise" else 1
    here = [tensor.to(device) for tensor in (a, b, *scales)]
    for out_dtype, tolerance in {torch.float32: 1e-6, torch.bfloat16: 8e-3, torch.float16: 1e-3}.items():
        actual = torch._scaled_mm(*here, bias=bias.to(device), out_dtype=out_dtype)
        assert actual.dtype == out_dtype
        assert_near(actual, exact + bias.double(), tolerance)
        second = torch._scaled_mm_v2(
            here[0], here[1], [here[2]], [recipe], [0], [here[3]], [recipe], [0], None, out_dtype
        )
        assert second.dtype == out_dtype
        assert_near(second, exact, tolerance)
        out = torch.empty(m, n, dtype=out_dtype, device=device)
        torch._scaled_mm(*here, out_dtype=out_dtype, out=out)
        assert torch.equal(out.cpu(), second.cpu())
        aten._scaled_mm_v2.out(
            here[0], here[1], [here[2]], [recipe], [0], [here[3]], [recipe], [0], None, out_dtype, out=out.zero_()
        )
        assert torch.equal(out.cpu(), second.cpu())
    # float8 results, divided by a scale.
    result_scale = torch.tensor(4.0)
    expected = torch._scaled_mm(a, b, *scales, scale_result=result_scale, out_dtype=dtypes[0])
    narrow = torch._scaled_mm(*here, scale_result=result_scale.to(device))
    assert narrow.dtype == dtypes[0]
    # Sums in another order may round to the adjacent value.
    step = 0.126 if dtypes[0] == torch.float8_e4m3fn else 0.26
    torch.testing.assert_close(narrow.cpu().float(), expected.float(), rtol=step, atol=1e-2)


def test_float8_with_scales_of_blocks(device, no_fallback):
    """As for CUDA: blocks of 1 x 128 or 128 x 128 elements, with the scales' rows along k padded to a multiple of 4."""
    m, k, n = 9, 256, 256
    a, b = torch.randn(m, k).to(FLOAT8[0]), torch.randn(n, k).to(FLOAT8[0])
    scale_a, scale_b, square = torch.rand(2, m).t(), torch.rand(2, n).t(), torch.rand(2, 4).t()
    wide_a = a.double() * scale_a.double().repeat_interleave(128, 1)
    by_rows = b.double() * scale_b.double().repeat_interleave(128, 1)
    by_squares = b.double() * square[:2].t().double().repeat_interleave(128, 0).repeat_interleave(128, 1)
    for scale, recipe, wide_b in ((scale_b, 4, by_rows), (square, 5, by_squares)):
        actual = torch._scaled_mm_v2(
            a.to(device), b.to(device).t(), [scale_a.to(device)], [4], [0], [scale.to(device)], [recipe], [0], None,
            torch.float32,
        )  # fmt: skip
        assert_near(actual, wide_a @ wide_b.t(), 1e-6)


def test_scaled_matmul_refuses_arguments_as_the_cpu_does(device):
    a, b = torch.randn(16, 32).to(FLOAT8[0]), torch.randn(32, 48).to(FLOAT8[0])
    one = torch.ones(())
    half_into_float = {"out": torch.empty(0), "out_dtype": torch.float16}
    calls = [
        (ValueError, "Invalid scaling configuration", (a, b, torch.ones(15, 1), torch.ones(1, 48)), {}),
        (ValueError, "Invalid scaling configuration", (a.float(), b, one, one), {}),
        (RuntimeError, "cannot be multiplied", (a, a, one, one), {}),
        (RuntimeError, "must be a matrix", (a[0], b, one, one), {}),
        (RuntimeError, "Bias must be size 48", (a, b, one, one), {"bias": torch.ones(47)}),
        # oneDNN, which ATen uses on some CPUs, raises the other error.
        ((ValueError, RuntimeError), "out_dtype must match", (a, b, one, one), half_into_float),
    ]
    for kind, message, arguments, options in calls:
        for where in ("cpu", device):
            given = {name: t.to(where) if isinstance(t, torch.Tensor) else t for name, t in options.items()}
            with pytest.raises(kind, match=message):
                torch._scaled_mm(*(tensor.to(where) for tensor in arguments), **given)
    with pytest.raises(ValueError, match="swizzle"):
        torch._scaled_mm_v2(a.to(device), b.to(device), [one], [0], [1], [one], [0], [0], None, torch.float32)
