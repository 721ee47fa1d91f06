"""torch.compile: the loops of generated kernels, at lengths that vectors and tiles divide and at others."""

import pytest
import torch
import torch.nn.functional as F
from processes import run_python
from torch import nn
from torch._inductor.utils import run_and_get_code


@pytest.fixture(autouse=True)
def fresh():
    torch._dynamo.reset()
    torch.manual_seed(0)


def check(function, *args, dynamic=None, **limits):
    """Compare a compiled function with eager operators."""
    actual = torch.compile(function, dynamic=dynamic, fullgraph=True)(*args)
    torch.testing.assert_close(actual, function(*args), equal_nan=True, **(limits or {"rtol": 1e-5, "atol": 1e-5}))


PERMUTATIONS = {
    "a transpose that is read": lambda x: x.transpose(-1, -2).contiguous() * 2 + 1,
    "a transpose that is written": lambda x: (x * 2 + 1).transpose(-1, -2).clone(memory_format=torch.preserve_format),
    "both layouts": lambda x: (x.relu(), x.transpose(-1, -2).contiguous().tanh(), x.movedim(0, -1).contiguous()),
    "a sum of two layouts": lambda x: x.transpose(0, -1).contiguous() + x.movedim(0, -1).reshape(-1)[0].sin(),
    "a masked transpose": lambda x: F.pad(x.transpose(-1, -2), (1, 2)).contiguous() + 1,
    "channels last": lambda x: x[None].to(memory_format=torch.channels_last) if x.dim() == 3 else x.t().contiguous(),
}


@pytest.mark.parametrize("dynamic", [False, True], ids=["static", "dynamic"])
@pytest.mark.parametrize("name", PERMUTATIONS)
def test_permuted_tensors(device, name, dynamic):
    compiled = torch.compile(PERMUTATIONS[name], dynamic=dynamic)
    for shape in ((64, 32), (37, 150), (3, 48, 33)):
        x = torch.randn(shape, device=device)
        torch.testing.assert_close(compiled(x), PERMUTATIONS[name](x), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.int64, torch.int8, torch.bool])
def test_permuted_tensors_of_other_dtypes(device, dtype):
    x = torch.randint(0, 2, (50, 64), device=device).to(dtype)
    check(lambda x: (x.t().contiguous(), x.t().contiguous() == x.t().logical_not()), x)


def test_a_view_with_an_offset_is_transposed(device):
    x = torch.randn(70, 90, device=device)[3:, 5:]
    check(lambda x: x.t().contiguous() + x.t().exp(), x)


def test_a_transpose_in_place(device):
    def function(x, y):
        return (x @ y).t().contiguous().add_(1), (x @ y).t().relu_()

    check(function, torch.randn(40, 30, device=device), torch.randn(30, 50, device=device), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("length", [1, 15, 17, 100, 1024, 5003])
def test_rows_of_any_length(device, length):
    x, y = torch.randn(3, length, device=device), torch.randn(length, device=device)

    def function(x, y):
        normed = F.layer_norm(F.gelu(x) + y, (length,), y, y)
        return x.softmax(-1) * y, x.log_softmax(-1), normed, x.square().mean(-1), F.dropout(x, 0.5).softmax(-1).isnan()

    check(function, x, y)


@pytest.mark.parametrize("columns", [1, 16, 50, 300])
def test_columns_of_any_number(device, columns):
    x = torch.randn(211, columns, device=device)
    check(lambda x: (x.sum(0), x.amax(0), x.argmin(0), x.var(0), x.softmax(0), (x > 0).any(0)), x)


@pytest.mark.parametrize("dynamic", [False, True], ids=["static", "dynamic"])
def test_reductions_over_outer_and_inner_dimensions(device, dynamic):
    compiled = torch.compile(function := lambda x: (x.sum((0, 2)), x.mean((0, 1)), x.amax((1, 2))), dynamic=dynamic)
    for shape in ((6, 20, 49), (3, 5, 64)):
        x = torch.randn(shape, device=device)
        torch.testing.assert_close(compiled(x), function(x), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("dynamic", [False, True], ids=["static", "dynamic"])
@pytest.mark.parametrize("widths", [(32, 48, 16), (512, 768, 4096), (30, 7, 100)], ids=str)
def test_joined_tensors(device, widths, dynamic):
    def function(a, b, c):
        joined = torch.cat([a, b * 2, c.exp()], 1)
        mirrored = torch.cat([-a[:, a.shape[1] // 2 :], a[:, : a.shape[1] // 2]], 1) * a
        sums = torch.cat([a, b], 1).sum(1)
        return (
            joined,
            mirrored,
            sums,
            F.pad(a, (16, 8)),
            F.pad(b, (3, 32)).amax(0),
            torch.cat([c, c + 1], 0),
            joined > 0,  # unlike 1, no value crosses 0 by rounding
        )

    tensors = [torch.randn(5, width, device=device) for width in widths]
    check(function, *tensors, dynamic=dynamic)
    check(function, *(tensor.bfloat16() for tensor in tensors), dynamic=dynamic, rtol=2e-2, atol=1e-2)


@pytest.mark.parametrize("dynamic", [False, True], ids=["static", "dynamic"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16, torch.int64, torch.uint8, torch.bool])
@pytest.mark.parametrize("shape", [(3, 37), (5, 64), (2, 3, 129), (1000,), (7, 1)], ids=str)
def test_reversed_rows_and_every_second_element(device, shape, dtype, dynamic):
    def function(x):
        back = x.flip(-1)
        return (
            back,
            x.flip(0),
            torch.where(back > 0, x, back),
            back.sum(-1),
            back[..., 1:],
            x[..., 1::2],
            x[..., ::2] + 1,
        )

    check(function, (torch.randn(shape, device=device) * 50).to(dtype), dynamic=dynamic)


@pytest.mark.parametrize("shape", [(2, 8, 16, 20), (3, 16, 12, 12), (2, 8, 3, 5)], ids=str)
def test_norms_of_groups_of_channels(device, shape):
    x, weight, bias = torch.randn(shape, device=device), *torch.randn(2, shape[1], device=device)
    check(lambda x, w, b: (F.group_norm(x, 4, w, b), F.instance_norm(x, weight=w), x.var((0, 2, 3))), x, weight, bias)


@pytest.mark.parametrize("length", [64, 96, 80])
def test_quotients_and_remainders_of_a_flat_index(device, length):
    x, few, many = torch.randn(6, 8 * length, device=device), *torch.randn(2, 8, length, device=device)

    def function(x, few, many):
        rows = few[:, 0].repeat_interleave(length)
        return x * rows, (x + many.flatten()).sum(1), x.flatten() * many.flatten().repeat(6), x.roll(length, 1)

    check(function, x, few, many)


def test_permuted_tensors_are_flattened_whose_sizes_change(device):
    @torch.compile(fullgraph=True)
    def flat(x, y):
        return x.transpose(1, 2).reshape(-1).relu(), y.transpose(1, 2).flatten(1) * 2

    for a, b, c in ((8, 15, 33), (9, 17, 35), (4, 16, 64)):
        x, y = torch.randn(a, b, c, device=device), torch.randn(b, 4, a, 16, device=device)
        actual = flat(x, y)
        assert torch.equal(actual[0], x.transpose(1, 2).reshape(-1).relu())
        assert torch.equal(actual[1], y.transpose(1, 2).flatten(1) * 2)


def test_variances_of_shifted_rows(device):
    x = torch.randn(7, 1000, device=device) + 1e4
    x[3, 5], x[4, 7] = torch.inf, torch.nan
    check(lambda x: (torch.var_mean(x, 1), x.std(0)), x, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("dim", [0, 1])
def test_softmax_of_far_and_masked_values(device, dim):
    x = torch.randn(48, 80, device=device) * 50
    x[x > 60] = -torch.inf
    x[3], x[:, 5] = -torch.inf, 1e4
    x[7, 9] = torch.nan

    def function(x):
        masked = x.masked_fill(torch.ones_like(x, dtype=torch.bool).triu(1), -torch.inf) * 0.125
        below = x.exp() / x.exp().sum(dim, keepdim=True), (x - x.amax(dim, keepdim=True)).exp()
        return x.softmax(dim), masked.softmax(dim), x.log_softmax(dim), *below

    check(function, x)
    check(function, torch.randn(48, 80, device=device) - 85)


def test_infinities_and_nan_in_rows(device):
    x = torch.randn(5, 200, device=device)
    x[0, 3], x[1, 190], x[2, 7], x[3] = torch.inf, -torch.inf, torch.nan, -torch.inf
    check(lambda x: (x.softmax(-1), x.amax(-1), x.argmax(-1), x.logsumexp(-1)), x)


@pytest.mark.parametrize(
    "make",
    [
        lambda: nn.LayerNorm(200),
        lambda: nn.RMSNorm(77),
        lambda: nn.Sequential(nn.LayerNorm(64), nn.GELU(), nn.Softmax(-1)),
        lambda: nn.BatchNorm1d(48),
    ],
    ids=["layer norm", "RMS norm", "a chain", "batch norm"],
)
def test_gradients_of_norms(device, make):
    layer = make().to(device)
    width = {"LayerNorm": 200, "RMSNorm": 77, "Sequential": 64, "BatchNorm1d": 48}[type(layer).__name__]
    x = torch.randn(90, width, device=device, requires_grad=True)
    weights = torch.randn(90, width, device=device)
    results = []
    for function in (layer, torch.compile(layer)):
        result = function(x)
        results.append((result, *torch.autograd.grad((result * weights).sum(), [x, *layer.parameters()])))
    torch.testing.assert_close(*results, rtol=1e-4, atol=1e-4)


def test_cross_entropy_of_a_vocabulary_of_odd_size(device):
    logits = torch.randn(30, 5003, device=device, requires_grad=True)
    target = torch.randint(0, 5003, (30,), device=device)
    results = []
    for function in (F.cross_entropy, torch.compile(F.cross_entropy)):
        loss = function(logits, target)
        results.append((loss, *torch.autograd.grad(loss, logits)))
    torch.testing.assert_close(*results)


@pytest.mark.parametrize("shape", [(2, 48, 16, 16), (1, 50, 15, 15)], ids=str)
def test_norms_over_channels_whose_result_is_channels_last(device, shape):
    x, weight = torch.randn(shape, device=device), torch.randn(shape[1], device=device)
    other = torch.randn(shape[0], *shape[2:], shape[1], device=device)

    def function(x, weight, other):
        rows = F.layer_norm(x.permute(0, 2, 3, 1), weight.shape, weight).reshape(-1, weight.numel())
        return rows, x.softmax(1).permute(0, 2, 3, 1).contiguous(), (x.permute(0, 2, 3, 1) * other).sum((1, 2))

    check(function, x, weight, other)


@pytest.mark.parametrize("dynamic", [False, True], ids=["static", "dynamic"])
def test_rows_shorter_than_a_vector(device, dynamic):
    def points(x, scale, bias):
        return (x * scale + bias).relu(), x.sum(1), x.square().sum(0), torch.cat([x, bias], 1), x > scale

    def images(x, scale):
        normed = (x - scale[None, :, None, None]) * x.var((0, 2, 3))[None, :, None, None]
        return normed, x.mean((0, 2, 3)), x.amax((2, 3))

    for length, columns in ((333, 3), (64, 5)):
        tensors = (torch.randn(shape, device=device) for shape in ((length, columns), (columns,), (length, 1)))
        check(points, *tensors, dynamic=dynamic)
    check(images, torch.randn(8, 40, 2, 2, device=device), torch.randn(40, device=device), dynamic=dynamic)


def test_long_reductions_with_few_results(device):
    rows, columns = torch.randn(2, 140_007, device=device) + 3, torch.randn(70_001, 17, device=device)
    check(
        lambda x, y: (x.sum(1), x.var(1), x.mean(), x.amax(), y.sum(0), y.var(0)), rows, columns, rtol=1e-4, atol=1e-2
    )


@pytest.mark.parametrize("dynamic", [False, True], ids=["static", "dynamic"])
@pytest.mark.parametrize("shape", [(1500, 1000), (517, 3001), (70_000, 24), (40, 50_000)], ids=str)
def test_reductions_of_many_columns(device, shape, dynamic):
    """Larger than caches: rows are split if there are few columns, and the longest possible reads are used."""

    def gradients(x, grad, mean, scale):
        normed = (x - mean) * scale
        return (grad * normed).sum(0), grad.sum(0), grad * normed

    def extremes(x, grad, mean):
        return x.amax(0), (x * grad).argmin(0), x.var(0), (x - mean).abs().sum(0)

    x, grad = torch.randn(2, *shape, device=device)
    mean, scale = torch.randn(2, shape[0], 1, device=device)
    check(gradients, x, grad, mean, scale, dynamic=dynamic, rtol=1e-4, atol=5e-3)
    check(extremes, x, grad, mean, dynamic=dynamic, rtol=1e-4, atol=5e-3)


@pytest.mark.parametrize(
    ("shape", "function"),
    [
        ((2, 5, 18, 20), lambda x: F.max_pool2d(x.sin(), 3, 2, 1).exp()),
        ((2, 5, 18, 20), lambda x: F.avg_pool2d(x.sin(), 3, 2, 1).exp()),
        ((2, 3, 6, 8, 10), lambda x: F.max_pool3d(x, 2) + F.avg_pool3d(x, 2)),
        ((30, 24), lambda x: F.embedding(torch.arange(60, device=x.device).view(3, 20) % 7, x, padding_idx=2).exp()),
        ((2, 3, 20, 20), lambda x: F.conv2d(x, x[:1, :, :3, :3].detach(), x[0, 0, 0, :1].detach()).relu()),
    ],
    ids=["max pooling", "average pooling", "3-D pooling", "embedding", "convolution with a bias"],
)
def test_gradients_beside_operators_of_eager_mode(device, shape, function):
    x = torch.randn(shape, device=device, requires_grad=True)
    results = []
    for each in (function, torch.compile(function)):
        result = each(x)
        results.append((result, torch.autograd.grad(result.square().sum(), x)))
    torch.testing.assert_close(*results, rtol=1e-4, atol=1e-4)


def test_batch_norm_updates_its_statistics_in_its_own_kernel(device):
    layer = nn.BatchNorm2d(16).to(device)
    x = torch.randn(4, 16, 8, 8, device=device)
    _, (code,) = run_and_get_code(torch.compile(lambda x: layer(x).relu()), x)
    # One for the normalisation, and one for the counter of batches.
    assert code.count("_opencl_launch(") <= 2
    expected = nn.BatchNorm2d(16).to(device)
    expected(x)
    torch.testing.assert_close(dict(layer.named_buffers()), dict(expected.named_buffers()))


def test_sums_of_rows_are_added_to_memory_once(device):
    index = torch.tensor([0, 1, 1, 2], device=device)
    check(lambda x: torch.zeros(3, device=device).index_add(0, index, x.sum(-1)), torch.randn(4, 1000, device=device))


def test_tensors_that_are_read_and_replaced_in_one_kernel(device):
    def replace(x, y, weight):
        before = x * 2
        x.copy_(x.softmax(-1))
        y.sub_(y.mean(-1, keepdim=True)).mul_(weight)
        weight.add_(1).mul_(weight)
        return before, x.sum(-1), y.square().mean(-1), x + y

    tensors = [torch.randn(shape, device=device) for shape in ((50, 200), (50, 200), (200,))]
    copies = [tensor.clone() for tensor in tensors]
    results = torch.compile(replace)(*tensors), replace(*copies)
    torch.testing.assert_close((results[0], tensors), (results[1], copies), rtol=1e-5, atol=1e-5)


def replaced_after_a_loop(x, row):
    total = x.sum(-1)
    scaled = (x - total[:, None]) * row[:, None]
    row.copy_(total * 2)
    return scaled


def replaced_after_two_loops(x, row):
    largest = (x - (row + x.sum(-1))[:, None]).amax(-1)
    row.copy_(largest)
    return x * largest[:, None]


def replaced_by_what_is_reduced(x, row):
    row.copy_((x * row[:, None]).sum(-1))
    return row + 1


def added_to(x, row):
    largest = x.amax(-1)
    scaled = x * row[:, None] * largest[:, None]
    row.index_add_(0, torch.arange(row.numel(), device=row.device), largest)
    return scaled


@pytest.mark.parametrize(
    "function", [replaced_after_a_loop, replaced_after_two_loops, replaced_by_what_is_reduced, added_to]
)
def test_a_value_of_a_row_is_replaced_once_all_of_it_has_read_it(device, function):
    x, row = torch.randn(20, 300, device=device), torch.randn(20, device=device)
    copy = row.clone()
    results = torch.compile(function)(x, row), function(x, copy)
    torch.testing.assert_close((results[0], row), (results[1], copy), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("dtype", [torch.float32, torch.int64])
def test_tiles_fit_the_local_memory_of_every_device(device, dtype):
    def function(p, q, r, s, t):
        return p + (q + r + s + t).t(), p * 2, p * 3, p * 4, p * 5

    tensors = [torch.randint(-9, 9, (70, 70), device=device).to(dtype) for _ in range(5)]
    result, (code,) = run_and_get_code(torch.compile(function), *tensors)
    torch.testing.assert_close(result, function(*tensors))
    tile = 32 * 33 * dtype.itemsize
    assert tile * code.count("[32][33]") <= 32 << 10


def test_outputs_larger_than_the_caches(device):
    x = torch.randn(2049, 2055, device=device)
    check(lambda x: (x.sigmoid() + 1, x.t().contiguous() * 2, x.bfloat16()), x)


@pytest.mark.slow
def test_loops_for_gpus():
    if torch.opencl.get_device_properties().device_class == "gpu":
        pytest.skip("the class of this device")
    some = (
        "static and (read or layouts or joined or shorter) or 1024 or 300 or odd_size or nan or groups or flat"
        " or shifted or far or few_results or over_channels or statistics or sums_of_rows or replaced or tiles"
    )
    done = run_python("-m pytest -q -x", __file__, "-k", some, TORCH_OPENCL_DEVICE_CLASS="gpu")
    assert done.returncode == 0, done.stdout + done.stderr
