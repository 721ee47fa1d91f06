"""torch.compile: element-wise operations after a convolution are fused into its kernel on GPU devices."""

import pytest
import torch
import torch.nn.functional as F
from epilogue_checks import close, compiled
from releases import requires_torch
from torch import nn
from torch._inductor.utils import run_and_get_code

pytestmark = [
    requires_torch("2.13", "the fusion of nodes whose loops have other dimensions"),
    pytest.mark.skipif(
        torch.opencl.get_device_properties().device_class != "gpu",
        reason="test_compile_epilogues.py runs it with this class",
    ),
]


@pytest.fixture(autouse=True)
def fresh():
    torch._dynamo.reset()
    torch.manual_seed(0)
    with torch._inductor.config.patch(force_disable_caches=True):
        yield


def images(device, *shape, dtype=torch.float32, channels_last=False):
    values = torch.randn(shape, device=device).to(dtype)
    formats = {4: torch.channels_last, 5: torch.channels_last_3d}
    return values.to(memory_format=formats[len(shape)]) if channels_last else values


def weights(device, *shape, dtype=torch.float32):
    k = torch.Size(shape[1:]).numel()
    return (torch.randn(shape, device=device) / k**0.5).to(dtype)


def result_and_more(z, y, b):
    return z, F.gelu(z + b), z * y


# z is the convolution's result; y has its shape, b a value for each channel.
CHAINS = {
    "a scale and a shift": lambda z, y, b: F.silu(z * b.exp() + b),
    "a residual": lambda z, y, b: (z + y).relu(),
    "a dtype of 16 bits": lambda z, y, b: (F.gelu(z) * y).half(),
    "several results, and the convolution's": result_and_more,
}


@pytest.mark.parametrize("channels_last", [False, True])
@pytest.mark.parametrize("name", CHAINS)
def test_chains_after_a_convolution_are_fused(device, name, channels_last):
    x = images(device, 2, 8, 7, 6, channels_last=channels_last)
    y = images(device, 2, 12, 7, 6, channels_last=channels_last)
    w, b = weights(device, 12, 8, 3, 3), torch.randn(12, 1, 1, device=device)
    function = lambda x, w, y, b: CHAINS[name](F.conv2d(x, w, padding=1), y, b)  # noqa: E731 compiled and not
    close(compiled(function, x, w, y, b), function(x, w, y, b))


# The input, the weight, and the convolution's other arguments.
GEOMETRIES = {
    "1x1": ((2, 8, 7, 6), (12, 8, 1, 1), {}),
    "1x1 with strides": ((2, 8, 7, 6), (12, 8, 1, 1), {"stride": 2}),
    "strides, padding and dilation": (
        (2, 8, 13, 11),
        (5, 8, 3, 2),
        {"stride": (2, 1), "padding": (1, 2), "dilation": 2},
    ),
    "groups": ((2, 8, 7, 6), (12, 4, 3, 3), {"groups": 2, "padding": 1}),
    "splits of k with partial sums": ((1, 70, 4, 5), (6, 70, 3, 3), {"padding": 1}),
    "one position": ((2, 8, 3, 3), (12, 8, 3, 3), {}),
    "pieces of tiles": ((3, 6, 17, 9), (70, 6, 3, 3), {}),
    "one dimension": ((3, 8, 20), (12, 8, 3), {"stride": 2}),
    "three dimensions": ((2, 6, 4, 5, 6), (7, 6, 2, 3, 3), {"padding": (0, 1, 1)}),
}
LAYOUTS = [(name, False) for name in GEOMETRIES] + [(name, True) for name in GEOMETRIES if name != "one dimension"]


@pytest.mark.parametrize(("name", "channels_last"), LAYOUTS)
def test_every_kind_of_convolution_has_epilogues(device, name, channels_last):
    shape, weight_shape, options = GEOMETRIES[name]
    x, w = images(device, *shape, channels_last=channels_last), weights(device, *weight_shape)
    bias = torch.randn(weight_shape[0], device=device)
    convolve = getattr(F, f"conv{len(shape) - 2}d")
    y = torch.randn_like(convolve(x, w, bias, **options))
    function = lambda x, w, bias, y: F.silu(convolve(x, w, bias, **options)) * y  # noqa: E731 as above
    close(compiled(function, x, w, bias, y), function(x, w, bias, y))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_16_bit_floats_are_rounded_once(device, dtype):
    x, w = images(device, 2, 8, 7, 6, dtype=dtype), weights(device, 12, 8, 3, 3, dtype=dtype)
    bias = torch.randn(12, device=device).to(dtype)
    function = lambda x, w, bias: F.gelu(F.conv2d(x, w, bias)).to(x.dtype)  # noqa: E731 as above
    exact = function(*(each.double().cpu() for each in (x, w, bias)))
    close(compiled(function, x, w, bias).cpu(), exact.to(dtype), rtol=2 * torch.finfo(dtype).eps, atol=1e-3)


def test_an_image_without_a_batch(device):
    x, w, y = images(device, 8, 7, 6), weights(device, 12, 8, 3, 3), images(device, 12, 5, 4)
    function = lambda x, w, y: F.conv2d(x, w).sigmoid() * y  # noqa: E731 as above
    close(compiled(function, x, w, y, launches=None), function(x, w, y))


def test_autocast(device):
    x, w = images(device, 2, 8, 7, 6), weights(device, 12, 8, 3, 3)

    def function(x, w):
        with torch.autocast("opencl", torch.bfloat16):
            return F.conv2d(x, w).float().sigmoid() * 2

    close(compiled(function, x, w, launches=None), function(x, w), rtol=2e-2, atol=2e-2)


class Block(nn.Module):
    """A residual block, with more output channels if it has strides."""

    def __init__(self, channels, out_channels, stride=1):
        super().__init__()
        self.conv1 = nn.Conv2d(channels, out_channels, 3, stride, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(out_channels)
        self.conv2 = nn.Conv2d(out_channels, out_channels, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(out_channels)
        if stride == 1:
            self.shortcut = nn.Identity()
        else:
            self.shortcut = nn.Sequential(nn.Conv2d(channels, out_channels, 1, stride), nn.BatchNorm2d(out_channels))

    def forward(self, x):
        x = F.relu(x)
        return F.relu(self.bn2(self.conv2(F.relu(self.bn1(self.conv1(x))))) + self.shortcut(x))


def residual_net(device):
    """Return two blocks whose norms have non-default statistics."""
    torch.manual_seed(0)
    model = nn.Sequential(Block(12, 12), Block(12, 16, stride=2)).to(device)
    for norm in model.modules():
        if isinstance(norm, nn.BatchNorm2d):
            nn.init.normal_(norm.running_mean)
            nn.init.uniform_(norm.running_var, 0.5, 2)
            nn.init.normal_(norm.weight)
    return model


@pytest.mark.parametrize("channels_last", [False, True])
def test_residual_blocks_in_inference(device, channels_last):
    model, x = residual_net(device).eval(), images(device, 2, 12, 10, 10, channels_last=channels_last)
    with torch.no_grad():
        # The last addition reads two convolutions and two norms: more buffers than a kernel takes.
        actual = compiled(model, x, fused=3, launches=2)
        close(actual, model(x))
        assert actual.stride() == model(x).stride()


def test_norms_folded_into_weights_by_freezing(device):
    model, x = residual_net(device).eval(), images(device, 2, 12, 10, 10)
    with torch.no_grad(), torch._inductor.config.patch(freezing=True):
        close(compiled(model, x, fused=4, launches=1), model(x))


def test_training_of_residual_blocks(device):
    eager, model = residual_net(device), residual_net(device)
    fast = torch.compile(model)
    x = images(device, 4, 12, 10, 10)
    for net in (eager, fast):
        (net(x) ** 2).mean().backward()
    for actual, expected in zip(model.parameters(), eager.parameters(), strict=True):
        close(actual.grad, expected.grad, rtol=1e-3, atol=1e-3)
    for actual, expected in zip(model.buffers(), eager.buffers(), strict=True):
        close(actual, expected)


def test_gradients_need_the_convolution_itself(device):
    def layer():
        torch.manual_seed(0)
        return nn.Sequential(nn.Conv2d(8, 12, 3), nn.GELU(), nn.Conv2d(12, 8, 1), nn.SiLU()).to(device)

    eager, model = layer(), layer()
    x = images(device, 2, 8, 9, 9)
    (eager(x) ** 2).sum().backward()
    (compiled(model, x, fused=2) ** 2).sum().backward()
    for actual, expected in zip(model.parameters(), eager.parameters(), strict=True):
        close(actual.grad, expected.grad, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("channels_last", [False, True])
@pytest.mark.parametrize(("stride", "fused"), [(1, 1), (2, 0)])
def test_one_kernel_serves_all_sizes(device, stride, fused, channels_last):
    # If strides divide sizes, Inductor does not recognise that an output is read in memory order.
    model = nn.Sequential(nn.Conv2d(8, 12, 3, stride, padding=1), nn.SiLU()).to(device).eval()
    first, *others = (
        images(device, *shape, channels_last=channels_last) for shape in ((2, 8, 7, 6), (3, 8, 12, 6), (5, 8, 9, 20))
    )
    with torch.no_grad():
        close(compiled(model, first, fused=fused, launches=None, dynamic=True), model(first))
        fast = torch.compile(model, dynamic=True)
        for x in others:
            close(fast(x), model(x))


def test_batches_of_changing_size_are_fused(device):
    x, w, y = images(device, 2, 8, 7, 6), weights(device, 12, 8, 3, 3), images(device, 2, 12, 5, 4)
    for each in (x, y):
        torch._dynamo.mark_dynamic(each, 0)
    function = lambda x, w, y: F.relu(F.conv2d(x, w) + y)  # noqa: E731 as above
    close(compiled(function, x, w, y), function(x, w, y))


def test_an_input_may_be_added_to_the_result(device):
    x, w = images(device, 2, 8, 7, 6), weights(device, 8, 8, 3, 3)

    def function(x, w):
        x = F.relu(x * 2)
        return F.conv2d(x, w, padding=1) + x

    close(compiled(function, x, w, launches=1), function(x, w))


def test_as_many_buffers_as_kernels_take(device):
    x, w, *others = images(device, 2, 8, 7, 6), weights(device, 8, 8, 3, 3), *(images(device, 5, 2, 8, 7, 6))
    function = lambda x, w, *others: (F.conv2d(x, w, padding=1) + sum(others)).relu()  # noqa: E731 as above
    close(compiled(function, x, w, *others), function(x, w, *others))
    result, _ = run_and_get_code(torch.compile(function), x, w, *others, x)
    close(result, function(x, w, *others, x))


def test_results_read_in_another_order_are_not_fused(device):
    x, w, y = images(device, 2, 8, 7, 6), weights(device, 12, 8, 3, 3), images(device, 2, 12, 5, 2)
    parts = lambda x, w, y: F.conv2d(x, w)[..., ::2] * y  # noqa: E731 as above
    close(compiled(parts, x, w, y, fused=0, launches=1), parts(x, w, y))
    alone = lambda x, w, y: F.conv2d(x, w)  # noqa: E731 as above
    close(compiled(alone, x, w, y, fused=0), alone(x, w, y))


@pytest.mark.parametrize(
    ("shape", "weight_shape", "options"),
    [
        ((2, 8, 7, 6), (8, 1, 3, 3), {"groups": 8}),
        ((2, 3, 7, 6), (4, 3, 3, 3), {}),
        ((2, 8, 7, 6), (12, 8, 3, 3), {"dtype": torch.float64}),
    ],
)
def test_convolutions_without_our_gemm_are_not_fused(device, shape, weight_shape, options):
    options = dict(options)
    dtype = options.pop("dtype", torch.float32)
    x, w = images(device, *shape, dtype=dtype), weights(device, *weight_shape, dtype=dtype)
    function = lambda x, w: F.conv2d(x, w, **options).relu()  # noqa: E731 as above
    close(compiled(function, x, w, fused=0, launches=1), function(x, w))


def test_transposed_convolutions_are_not_fused(device):
    x, w = images(device, 2, 8, 7, 6), weights(device, 8, 12, 3, 3)
    function = lambda x, w: F.conv_transpose2d(x, w, stride=2).relu()  # noqa: E731 as above
    close(compiled(function, x, w, fused=0, launches=1), function(x, w))


def test_epilogue_fusion_can_be_turned_off(device):
    x, w = images(device, 2, 8, 7, 6), weights(device, 12, 8, 3, 3)
    function = lambda x, w: F.conv2d(x, w).relu()  # noqa: E731 as above
    with torch._inductor.config.patch(epilogue_fusion=False):
        close(compiled(function, x, w, fused=0, launches=1), function(x, w))


def test_nothing_is_fused_with_another_blas_library(device):
    x, w = images(device, 2, 8, 7, 6), weights(device, 12, 8, 3, 3)
    function = lambda x, w: F.conv2d(x, w).relu()  # noqa: E731 as above
    before = torch.backends.opencl.preferred_blas_library()
    try:
        torch.backends.opencl.preferred_blas_library("host")
    except RuntimeError as refusal:
        pytest.skip(str(refusal))
    try:
        close(compiled(function, x, w, fused=0, launches=1), function(x, w))
    finally:
        torch.backends.opencl.preferred_blas_library(before)
