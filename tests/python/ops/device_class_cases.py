"""The kernels of both device classes, compared with the CPU: test_device_class.py runs these with each class.

Sizes are on both sides of each kernel choice: groups and items, one split and several, full tiles and edges.
"""

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from float64 import computed
from op_samples import WIDER

TOLERANCES = {
    torch.float16: 2e-3,
    torch.float32: 1e-5,
    torch.float64: 1e-12,
    torch.complex64: 1e-5,
    torch.complex128: 1e-12,
}


def check(work: Callable[..., torch.Tensor], *inputs: torch.Tensor, times: float = 1) -> None:
    """Compare results and gradients on the device with the CPU's; dtypes of TOLERANCES are compared with a wider dtype.

    The largest element is the scale of the tolerance.
    """
    tolerance = times * max(TOLERANCES.get(tensor.dtype, 0) for tensor in inputs)

    def run(device: str, dtypes: dict[torch.dtype, torch.dtype]) -> list[torch.Tensor]:
        tensors = [tensor.to(dtypes.get(tensor.dtype, tensor.dtype)).to(device).detach() for tensor in inputs]
        leaves = [t.requires_grad_() for t in tensors if t.is_floating_point() or t.is_complex()]
        result = work(*tensors)
        if not result.requires_grad:
            return [result.cpu()]
        weight = torch.linspace(-1, 1, result.numel()).reshape(result.shape).to(result)
        return [result.detach().cpu(), *(g.cpu() for g in torch.autograd.grad(result, leaves, weight))]

    wider = {dtype: WIDER[dtype] for dtype in TOLERANCES if dtype in WIDER}
    for ours, expected in zip(run("opencl", {}), run("cpu", wider), strict=True):
        largest = expected.abs().max().item() if expected.numel() else 0
        is_exact = not (expected.is_floating_point() or expected.is_complex())
        atol = 0 if is_exact else tolerance * (1 + largest)
        torch.testing.assert_close(ours.to(expected.dtype), expected, rtol=0, atol=atol)


@pytest.mark.parametrize("size", [1, 63, 1000, 40001])
def test_pointwise(size: int):
    a, b = torch.randn(size), torch.rand(size) + 1
    check(lambda a, b: (a / b).tanh() * a.exp(), a, b)
    check(lambda a, b: a.half() + b, a, b)
    for dtype in (torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64):
        check(lambda a, dtype=dtype: (a * 100).abs().to(dtype), a.clamp(-1, 1))
    check(lambda a, b: torch.div(a * 100, b, rounding_mode="floor"), a, b)


def test_special_functions():
    x = torch.linspace(0.3, 19, 2003)
    for function in (torch.digamma, torch.special.i1e, torch.special.erfcx, torch.igamma, torch.special.zeta):
        arguments = (x + 1, x) if function in (torch.igamma, torch.special.zeta) else (x,)
        with torch.no_grad():
            torch.testing.assert_close(function(*(t.to("opencl") for t in arguments)).cpu(), function(*arguments))
    for name in ("bessel_j0", "airy_ai", "modified_bessel_k0", "spherical_bessel_j0"):
        function = getattr(torch.special, name)
        torch.testing.assert_close(function(x.to("opencl")).cpu(), function(x))


def test_strided_copies():
    check(lambda a: a.t().contiguous() + a[::2, 3].sum(), torch.randn(70, 45))
    check(lambda a: a.transpose(1, 2).contiguous().triu(1), torch.randn(3, 40, 37))
    for dtype in (torch.uint8, torch.bfloat16, torch.int64):
        numbers = torch.arange(3 * 41 * 37).reshape(3, 41, 37).remainder(199).to(dtype)
        check(lambda a: a[:, 1:, 2:].transpose(1, 2).contiguous(), numbers)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.int64, torch.uint8], ids=str)
@pytest.mark.parametrize("begin", [1, 2])
def test_views_that_begin_between_vectors(begin: int, dtype: torch.dtype):
    """Whole vectors are loaded and stored only at aligned addresses."""
    numbers = (torch.randn(70, 612) * 9).to(dtype)

    # Sliced on the device, because copies to it keep strides only of dense tensors.
    def flat(a: torch.Tensor) -> torch.Tensor:
        return a.flatten()[begin:]

    def columns(a: torch.Tensor) -> torch.Tensor:
        return a[:, begin : begin + 601]

    def rows(a: torch.Tensor) -> torch.Tensor:
        return flat(a)[: 64 * 601].view(64, 601)

    check(lambda a: flat(a) + flat(a).flip(0).flip(0), numbers)
    check(lambda a: flat(a.clone()).fill_(3), numbers)
    check(lambda a: flat(a.clone()).add_(1), numbers)
    check(lambda a: flat(a).sum(), numbers)
    check(lambda a: columns(a).sum(1), numbers)
    check(lambda a: columns(a).amax(0), numbers)
    check(lambda a: columns(a).contiguous(), numbers)
    check(lambda a: columns(a).t().contiguous(), numbers)
    check(lambda a: columns(a).argmax(1), numbers)
    if dtype.is_floating_point:
        check(lambda a: rows(a).softmax(1), numbers)
        # The gradient is computed from the result, which was rounded to the dtype.
        check(lambda a: rows(a).log_softmax(0), numbers, times=2)
        check(lambda a: F.layer_norm(rows(a), (601,)), numbers)
        check(lambda a: rows(a).var(1), numbers)
        check(lambda a: torch._foreach_add([a, flat(a)], 1)[1], numbers)
        check(lambda a: rows(a) @ flat(a)[: 601 * 70].view(601, 70), numbers)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.float64, torch.complex64])
def test_strided_operands(dtype: torch.dtype):
    """Rows that begin between vectors, strided rows, and operands that are dense along another dimension."""

    def r(*sizes: int) -> torch.Tensor:
        return torch.randn(sizes).to(dtype)

    check(lambda a, b: a[:, 1:] * b[:, :-1], r(19, 515), r(19, 515))
    check(lambda a, b: a[:, 8:24] * b[:, 16:32] + a[0, :16], r(19, 48), r(19, 64))
    check(lambda a, b: a[:, ::3] + b[::2, :7], r(70, 21), r(140, 9))
    check(lambda a, b: a.t() + b, r(61, 77), r(77, 61))
    check(lambda a, b: a.t() * b + a.t(), r(16, 16), r(16, 16))
    check(lambda a, b: a.permute(2, 0, 1) + b, r(9, 65, 33), r(33, 9, 65))
    check(lambda a, b: a.transpose(1, 3) * b, r(2, 17, 3, 35), r(2, 35, 3, 17))
    check(lambda a, b: a.t() + b, r(300, 5), r(5, 300))
    with torch.no_grad():
        check(lambda a, b: torch.add(a, b, out=a.new_empty(61, 77).t()), r(77, 61), r(77, 61))
        check(lambda a, b: a.t().mul_(b) + 0, r(61, 77), r(77, 61))


@pytest.mark.parametrize(
    ("shape", "dim"), [((40001,), 0), ((70, 300), 1), ((70, 300), 0), ((3000, 5), 1), ((5, 3000, 3), 1)]
)
def test_reductions(shape: tuple[int, ...], dim: int):
    x = torch.randn(shape) + 1
    check(lambda a: a.sum(dim), x)
    check(lambda a: a.var(dim), x)
    check(lambda a: a.amax(dim), x)
    check(lambda a: a.argmin(dim), x)
    check(lambda a: a.softmax(dim), x)
    check(lambda a: a.log_softmax(dim), x)
    check(lambda a: a.cumsum(dim), x)
    check(lambda a: a.cummax(dim).values, x)
    check(lambda a: (a * 3).round().cummin(dim).indices, x)
    check(lambda a: (a * 3).round().log().cummax(dim).indices, x)
    check(lambda a: a.sort(stable=True, dim=dim).indices, x)
    check(lambda a: a.median(dim).values, x)
    check(lambda a: (a.abs() * 10).long().sum(dim), x)


@pytest.mark.parametrize(
    ("shape", "dim"),
    [((1031, 37), 0), ((2, 259, 65), 1), ((1501, 9), 1), ((9001, 2), 0), ((7, 300), 0), ((5, 2, 3), 1)],
)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_reductions_of_columns(shape: tuple[int, ...], dim: int, dtype: torch.dtype):
    """Few columns are split over the items of a group, many are not, and the last groups are partly filled."""
    x = torch.randn(shape, dtype=dtype)
    check(lambda a: a.sum(dim), x)
    check(lambda a: a.std(dim), x)
    check(lambda a: a.softmax(dim), x)
    check(lambda a: a.log_softmax(dim), x)
    ties = (x * 4).round()
    check(lambda a: a.argmax(dim), ties)
    check(lambda a: a.min(dim).indices, ties.long())
    check(lambda a: a.long().prod(dim), ties)
    check(lambda a: a.bool().any(dim).long(), ties)
    if dtype == torch.float32:
        check(lambda a: a.sum(dim), torch.complex(x, x.flip(0)))
    # A layer's bias gradient: kept and reduced dimensions alternate.
    if len(shape) == 3:
        check(lambda a: a.sum((0, dim)), x)
        check(lambda a: a.var((0, dim)), x)


def test_results_of_many_splits():
    """Long rows are split, and items combine the partial results."""
    x = torch.randn(2, 200_003)
    check(lambda a: a.var(1), x)
    check(lambda a: a.std(), x)
    check(lambda a: (a * 9).round().argmax(1), x)
    check(lambda a: (a * 9).round().argmin(), x)
    for length in (37, 530, 2100):
        rows = (x[:, :length] * 9).round()
        check(lambda a: a.argmax(1), torch.cat((rows, rows.masked_fill(rows == 4, torch.nan))))
    # The gradient of a weight sums 42000 elements, in parts that depend on the device's compute units.
    check(lambda a, w: F.batch_norm(a, None, None, w, w, True), torch.randn(700, 2, 60), torch.rand(2) + 1, times=2)


def test_extremes_in_columns():
    """Non-finite values affect only their own columns, whichever item read them."""
    x = torch.randn(259, 35)
    x[257, 3] = x[100, 4] = x[101, 4] = torch.nan
    x[17, 5] = torch.inf
    x[:, 6] = -torch.inf
    x[3:, 7] = -torch.inf
    for work in (
        lambda a: a.sum(0),
        lambda a: a.var(0),
        lambda a: a.amax(0),
        lambda a: a.softmax(0),
        lambda a: a.log_softmax(0),
        lambda a: a.argmax(0),
        lambda a: a.min(0).indices,
        lambda a: a.max(0).values,
    ):
        torch.testing.assert_close(work(x.to("opencl")).cpu(), work(x), equal_nan=True)


def test_normalisation_of_columns():
    for shape in ((259, 67), (33, 5), (3, 300)):
        x, weight, bias = torch.randn(shape), torch.rand(shape[1]) + 0.5, torch.randn(shape[1])
        check(lambda x, w, b: F.batch_norm(x, None, None, w, b, True), x, weight, bias)
        check(lambda x, w, b, n=shape[1:]: F.layer_norm(x, n, w, b), x, weight, bias)
    x = torch.randn(3, 17, 9, 35).permute(0, 3, 1, 2)
    check(lambda x, w: F.batch_norm(x, None, None, w, None, True), x, torch.rand(35) + 0.5)


@pytest.mark.parametrize("size", [(3, 5, 2), (64, 64, 64), (70, 130, 33), (1, 200, 1030), (65, 3, 2000)])
def test_matmuls(size: tuple[int, int, int]):
    rows, columns, depth = size
    a, b = torch.randn(rows, depth), torch.randn(depth, columns)
    check(torch.mm, a, b)
    check(lambda a, b: (b.t() @ a.t()).t() * 2, a, b)


@pytest.mark.parametrize("dtype", [torch.float16, torch.complex64])
def test_matmuls_of_other_dtypes(dtype: torch.dtype):
    a, b = (torch.randn(70, 33) * 9).to(dtype), (torch.randn(33, 65) * 9).to(dtype)
    with torch.no_grad():
        check(torch.mm, a, b)


def test_matmuls_with_biases_and_batches():
    check(
        lambda c, a, b: torch.addmm(c, a, b, alpha=0.5, beta=2),
        torch.randn(90),
        torch.randn(70, 80),
        torch.randn(80, 90),
    )
    for use_gelu in (False, True):
        with torch.no_grad():
            check(
                lambda c, a, b, use_gelu=use_gelu: torch._addmm_activation(c, a, b, use_gelu=use_gelu),
                torch.randn(90),
                torch.randn(70, 80),
                torch.randn(80, 90),
            )
    check(torch.baddbmm, torch.randn(5, 33, 20), torch.randn(5, 33, 17), torch.randn(5, 17, 20))
    check(lambda a, b: torch.bmm(a.expand(4, -1, -1), b), torch.randn(1, 9, 8), torch.randn(4, 8, 70))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.float64, torch.complex64, torch.int64], ids=str)
def test_matmuls_of_vectors(dtype: torch.dtype):
    """Vectors for one work-group, for several, and strided vectors."""
    for size in (1, 255, 300, 20000, 300_001):
        a, b = (torch.randn(size) * 3).to(dtype), (torch.randn(2 * size) * 3).to(dtype)
        with torch.no_grad():
            check(lambda a, b, size=size: torch.dot(a, b[:size]), a, b)
            check(lambda a, b: torch.dot(b[::2], a), a, b)


def test_large_tiles():
    """A matmul with enough tiles for the larger tile size on any device with few compute units."""
    with torch.no_grad():
        check(torch.mm, torch.randn(1100, 40), torch.randn(40, 1300))
        check(lambda a, b: torch.mm(a.t(), b.t()), torch.randn(41, 1100), torch.randn(1300, 41))


@pytest.mark.parametrize("left", ["rows", "columns", "steps"])
@pytest.mark.parametrize("right", ["rows", "columns", "steps"])
def test_matmuls_of_any_layout(left: str, right: str):
    """Operands that are dense along either dimension, or along neither."""

    def laid_out(rows: int, columns: int, how: str) -> torch.Tensor:
        step = 2 if how == "steps" else 1
        tensor = torch.randn(rows, columns * step + 1).to("opencl")[:, 1::step]
        return tensor.t().contiguous().t() if how == "columns" else tensor

    with torch.no_grad():
        for rows, columns, depth in [(67, 69, 21), (64, 64, 32), (1, 70, 40), (70, 1, 1)]:
            a, b = laid_out(rows, depth, left), laid_out(depth, columns, right)
            out = torch.zeros(columns, rows, device="opencl").t()
            torch.addmm(out.clone(), a, b, beta=0.5, out=out)
            torch.testing.assert_close(out.cpu(), a.cpu() @ b.cpu())


@pytest.mark.parametrize(
    ("channels", "out", "layout", "options"),
    [
        (16, 24, torch.contiguous_format, {"padding": 1}),
        (16, 32, torch.contiguous_format, {"dilation": 2, "stride": 2, "padding": 2, "groups": 2}),
        (16, 24, torch.channels_last, {"padding": 1}),
        (8, 8, torch.contiguous_format, {"padding": 1, "groups": 8}),
        (7, 7, torch.channels_last, {"padding": 1, "groups": 7}),
        (70, 70, torch.channels_last, {"stride": 2, "groups": 70}),
    ],
)
def test_convolutions(channels: int, out: int, layout: torch.memory_format, options: dict[str, int]):
    x = torch.randn(2, channels, 13, 11).to(memory_format=layout)
    weight = torch.randn(out, channels // options.get("groups", 1), 3, 3)
    check(lambda x, w, b: F.conv2d(x, w, b, **options), x, weight, torch.randn(out))


def test_transposed_convolution():
    x, weight = torch.randn(2, 40, 7, 6), torch.randn(40, 24, 4, 4)
    check(lambda x, w: F.conv_transpose2d(x, w, stride=2, padding=1), x, weight)


def test_normalisation():
    x = torch.randn(6, 16, 9, 9)
    weight, bias = torch.rand(16) + 0.5, torch.randn(16)
    check(lambda x, w, b: F.batch_norm(x, None, None, w, b, True), x, weight, bias)
    check(lambda x, w, b: F.group_norm(x, 4, w, b), x, weight, bias)
    check(lambda x, w, b: F.layer_norm(x, (16,), w, b), x.permute(0, 2, 3, 1).contiguous(), weight, bias)
    check(lambda x: F.layer_norm(x, (16, 9, 9)), x)


def test_pooling_and_losses():
    x = torch.randn(4, 8, 17, 15)
    check(lambda x: F.max_pool2d(x, 3, 2, 1), x)
    check(lambda x: F.avg_pool2d(x, 3, 2, 1), x)
    targets = torch.randint(10, (333,))
    check(lambda x: F.cross_entropy(x, targets.to(x.device)), torch.randn(333, 10))
    check(lambda x: F.binary_cross_entropy_with_logits(x, torch.ones_like(x)), torch.randn(333, 10))


@pytest.mark.parametrize("mode", ["nearest", "bilinear", "bicubic", "area"])
def test_interpolation(mode: str):
    for layout in (torch.contiguous_format, torch.channels_last):
        x = torch.randn(2, 5, 11, 70).contiguous(memory_format=layout)
        check(lambda x: F.interpolate(x, size=(17, 131), mode=mode), x)
        check(lambda x: F.interpolate(x, size=(4, 33), mode=mode), x)


def test_lists_of_tensors():
    """More tensors than a launch takes, in more buffers, of several sizes, in float32 and wider dtypes."""
    sizes = [*range(1, 40), 1023, 1024, 1025, 5000, 70_000]
    for dtype in computed((torch.float32, torch.float64, torch.int64, torch.complex64)):
        values = [(torch.randn(size) * 9).to(dtype) for size in sizes]
        steps = [float(size) if dtype.is_floating_point else size for size in range(len(sizes))]

        def add(*values: torch.Tensor, steps: list[float] = steps) -> torch.Tensor:
            return torch.cat(torch._foreach_mul(torch._foreach_add(values, steps), values))

        with torch.no_grad():
            check(add, *values)
    for order in (1, 2, float("inf")):
        values = [torch.randn(size) for size in sizes]
        with torch.no_grad():
            check(lambda *values, order=order: torch.stack(torch._foreach_norm(values, order)), *values)


@pytest.mark.parametrize("name", ["SGD", "Adam", "AdamW", "Adagrad"])
def test_steps_of_optimizers(name: str):
    def train(*values: torch.Tensor) -> torch.Tensor:
        parameters = [value.detach().clone().requires_grad_() for value in values]
        optimizer = getattr(torch.optim, name)(parameters, lr=0.1, weight_decay=0.1, fused=True)
        for _ in range(3):
            for parameter in parameters:
                parameter.grad = parameter.detach().sin()
            optimizer.step()
        return torch.cat([parameter.detach() for parameter in parameters])

    sizes = [*range(1, 30), 1023, 1025, 5000]
    for dtype in computed((torch.float32, torch.float64)):
        check(train, *(torch.randn(size, dtype=dtype) for size in sizes))


@pytest.mark.parametrize("columns", [1, 3, 33, 70])
def test_matmuls_of_sparse_matrices(columns: int):
    torch.manual_seed(2)
    for rows, inner, density in ((1, 5000, 0.5), (300, 40, 0.1), (70, 900, 0.02), (5, 7, 0)):
        matrix = torch.randn(rows, inner).where(torch.rand(rows, inner) < density, 0)
        for dtype in computed((torch.float16, torch.float32, torch.float64, torch.int32, torch.complex64)):
            dense = (torch.randn(inner, columns) * 4).to(dtype)
            for layout in (torch.sparse_csr, torch.sparse_coo):
                sparse = (matrix * 4).to(dtype).to_sparse(layout=layout)
                wide = {torch.float16: torch.float32}.get(dtype, dtype)
                expected = (matrix * 4).to(dtype).to(wide) @ dense.to(wide)
                actual = (sparse.to("opencl") @ dense.to("opencl")).cpu().to(wide)
                tolerance = {torch.float16: 0.3, torch.float64: 1e-9, torch.int32: 0}.get(dtype, 2e-3)
                torch.testing.assert_close(actual, expected, rtol=tolerance / 100, atol=tolerance)


def test_recurrent_cells():
    torch.manual_seed(1)
    cells = {device: torch.nn.LSTM(5, 7).to(device) for device in ("cpu", "opencl")}
    cells["opencl"].load_state_dict(cells["cpu"].state_dict())
    check(lambda x: cells[x.device.type].to(x.dtype)(x)[0], torch.randn(4, 3, 5))


def test_random_numbers():
    x = torch.empty(100_003, device="opencl")
    assert abs(x.normal_().mean().item()) < 0.02
    assert abs(x.normal_().std().item() - 1) < 0.02
    assert abs(x.uniform_().mean().item() - 0.5) < 0.01
    assert sorted(torch.randperm(1001, device="opencl").tolist()) == list(range(1001))
